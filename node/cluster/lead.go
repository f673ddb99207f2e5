package cluster

import (
	"context"
	"errors"
	"time"

	"penstock/consensus"
	"penstock/consensus/membership"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/record"
	"penstock/node/cluster/rotation"
	"penstock/node/trust"
)

const (
	// actTimeout bounds one action of the leader.
	actTimeout = 5 * time.Second
	// closeEnough is how many log entries a node may be behind and still become
	// a voter.
	closeEnough = 1000
	// expiredFor is how long an expired or revoked token is still listed.
	expiredFor = 7 * 24 * time.Hour
	// leftFor is how long the record of a node that has left is kept: as long
	// as any of its certificates may be valid.
	leftFor = 100 * 24 * time.Hour
)

// leaderTasks are the tasks of the leader, with what it remembers about them.
type leaderTasks struct {
	logged directory.LogOnce
	// lastTick is when the tasks of each tick were last due, lastCleanup when
	// cleanUp was.
	lastTick, lastCleanup time.Time
	rotation              rotation.Steps
}

func (c *Cluster) newLeaderTasks() leaderTasks {
	return leaderTasks{logged: directory.LogOnce{}, rotation: rotation.Steps{Entries: c.entries, Log: c.log}}
}

// lead performs the leader's tasks while this node leads: about once a second,
// and whenever something has changed.
func (c *Cluster) lead() {
	ticker := time.NewTicker(c.cfg.Timing.Tick)
	defer ticker.Stop()
	tasks := c.newLeaderTasks()
	for {
		if c.Store().Leadership().Ready {
			tasks.runDue(c, time.Now())
		} else {
			tasks = c.newLeaderTasks()
		}
		select {
		case <-ticker.C:
		case <-c.leadWake:
			select { // changes come in bursts
			case <-time.After(c.cfg.Timing.Tick / 50):
			case <-c.ctx.Done():
				return
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// cleanupInterval is how often the leader deletes outdated entries.
const cleanupInterval = time.Minute

// leaderTask is one task of the leader.
type leaderTask struct {
	name string
	run  func(context.Context, *Cluster) error
}

// runDue runs the tasks that are due. A task that fails is retried in the next
// round, or by the next leader.
func (lt *leaderTasks) runDue(c *Cluster, now time.Time) {
	due := []leaderTask{{"announce", lt.updateOwnRecord}, {"membership", lt.reconcileMembers}, {"log", allowBatchGroups}}
	if now.Sub(lt.lastTick) >= c.cfg.Timing.Tick {
		lt.lastTick = now
		due = append(due, leaderTask{"gossip key", lt.advanceGossipKey}, leaderTask{"CA", lt.retireOldCA},
			leaderTask{"tickets", func(ctx context.Context, _ *Cluster) error { return lt.rotation.RotateTickets(ctx) }})
	}
	if now.Sub(lt.lastCleanup) >= cleanupInterval {
		lt.lastCleanup = now
		due = append(due, leaderTask{"tidy", lt.cleanUp})
	}
	for _, task := range due {
		ctx, cancel := context.WithTimeout(c.ctx, actTimeout)
		err := task.run(ctx, c)
		cancel()
		switch {
		case err == nil:
			delete(lt.logged, task.name)
		case c.ctx.Err() != nil || errors.Is(err, consensus.ErrNotLeader):
			return
		case !errors.Is(err, consensus.ErrVersion) && !errors.Is(err, consensus.ErrServers): // another change came first
			lt.logged.Warn(c.log, "a task of the leader failed; retrying", task.name, err)
		}
	}
}

// allowBatchGroups allows groups of batches in the log once every member
// understands them; nodes of the release before would have to stop at one.
func allowBatchGroups(_ context.Context, c *Cluster) error {
	c.Store().SetGroupsDisabled(len(c.Directory.MembersBelow(record.LevelGroups)) > 0)
	return nil
}

// updateOwnRecord keeps the leader's own record up to date.
func (lt *leaderTasks) updateOwnRecord(ctx context.Context, c *Cluster) error {
	a := c.announcement()
	if r, ok := record.FindNode(c.Store().Snapshot(), c.ID()); ok && r.Name == a.Name && a.ApplyTo(r) == r {
		return nil
	}
	var res AnnounceResult
	if err := c.recordAnnouncement(ctx, a, &res); err != nil {
		return err
	}
	c.applyAnnounceResult(&res, a)
	return nil
}

// reconcileMembers brings Raft's configuration in line with the records.
func (lt *leaderTasks) reconcileMembers(ctx context.Context, c *Cluster) error {
	c.Directory.RecordUpStates(time.Now())
	observed, addrs, index := c.observe()
	for _, a := range membership.Plan(observed) {
		c.log.Info("membership change", "action", string(a.Kind), "node", a.ID, "why", a.Why)
		next, err := c.applyAction(ctx, a, addrs[a.ID], index)
		if err != nil {
			return err
		}
		if next != 0 {
			index = next
		}
	}
	return nil
}

// applyAction executes one action on the configuration with an index, and
// returns the index of the next one; 0 if it has not changed.
func (c *Cluster) applyAction(ctx context.Context, a membership.Action, addr string, index uint64) (uint64, error) {
	switch a.Kind {
	case membership.AddNonvoter:
		return c.Store().AddNonvoter(ctx, a.ID, addr, index)
	case membership.Promote:
		return c.Store().AddVoter(ctx, a.ID, addr, index)
	case membership.Demote:
		return c.Store().Demote(ctx, a.ID, index)
	case membership.Remove:
		return c.Store().Remove(ctx, a.ID, index)
	case membership.Transfer:
		return 0, c.Store().Transfer(ctx, a.ID)
	case membership.Forget:
		return 0, c.markDeparted(ctx, a.ID, "forget")
	}
	return 0, nil
}

// observe returns what the leader sees of the members, their addresses, and the
// index of the configuration that it saw.
func (c *Cluster) observe() (o membership.Observed, addrs map[string]string, index uint64) {
	snap := c.Store().Snapshot()
	servers, index := c.Store().Servers()
	last := snap.Index()
	entries := c.Directory.GossipEntries()
	upStates := c.Directory.UpStates()
	nodes := map[string]*membership.Node{}
	for _, r := range c.Directory.Records(snap) {
		nodes[r.ID] = &membership.Node{
			ID: r.ID, Name: r.Name, Addr: r.Cluster, Zone: r.Zone, Joined: r.Joined, Leaving: !r.Member(),
		}
	}
	for _, s := range servers {
		n := nodes[s.ID]
		if n == nil { // its record was deleted: it goes as well
			n = &membership.Node{ID: s.ID, Name: s.ID, Addr: s.Addr}
			nodes[s.ID] = n
		}
		// The address in the configuration stays what it was: it is never
		// dialled, and Raft reads it without a lock while changing it.
		n.Server, n.Voter, n.ConfigAddr, n.Addr = true, s.Voter, s.Addr, s.Addr
	}
	o = membership.Observed{Self: c.ID(), Now: time.Now(), Settings: membership.Settings{
		Voters: c.cfg.Voters, KeepTwo: c.expected() > 1, StableAfter: c.cfg.Timing.Stable,
		ReplaceAfter: c.cfg.ReplaceAfter, ForgetAfter: c.cfg.ForgetAfter,
	}}
	addrs = make(map[string]string, len(nodes))
	for id, n := range nodes {
		if n.Leaving && !n.Server {
			continue // only its record is left
		}
		n.Up, n.Since = upStates[id].Up, upStates[id].Since
		n.CaughtUp = entries[id].Index+closeEnough > last
		n.Draining = leader.Fitness(entries[id].Facts) == leader.FitnessLeaving
		if id == c.ID() {
			n.Up, n.CaughtUp = true, true
			n.Leaving = n.Leaving || c.leaving.Load()
		}
		addrs[id] = n.Addr
		o.Nodes = append(o.Nodes, *n)
	}
	return o, addrs, index
}

// expected returns how many nodes formed the cluster together; 0 if one node
// founded it, or this node does not have the record.
func (c *Cluster) expected() int {
	e, ok := c.Store().Snapshot().Get(record.KeyCluster)
	if !ok {
		return 0
	}
	r, err := record.Unmarshal[record.Cluster](record.KeyCluster, e.Value)
	if err != nil {
		return 0
	}
	return r.Expect
}

// markDeparted records that a node is no longer a member. Raft's configuration
// follows (members). The record stays, so that the node's certificate is
// refused.
//
// The record may change while this is agreed on: the last announcement of a
// node that has just died may be in the log although no caller waits for it any
// more.
func (c *Cluster) markDeparted(ctx context.Context, id, what string) error {
	c.recordsMu.Lock()
	defer c.recordsMu.Unlock()
	snap := c.Store().Snapshot()
	for {
		r, ok := record.FindNode(snap, id)
		if !ok || !r.Member() {
			return nil
		}
		r.Left = time.Now().UTC()
		err := c.entries.Commit(ctx, c.Name(), what, []consensus.Op{record.PutNode(snap, r)})
		if err == nil {
			c.log.Info("a node is no longer a member", "node", r.Name, "id", id, "why", what)
			notify(c.leadWake)
			return nil
		}
		if !errors.Is(err, consensus.ErrVersion) {
			return err
		}
		if snap, err = c.entries.Current(ctx); err != nil {
			return err
		}
	}
}

// cleanUp deletes tokens that ended long ago, and records of nodes that left so
// long ago that no certificate of theirs can be valid.
func (lt *leaderTasks) cleanUp(ctx context.Context, c *Cluster) error {
	snap, now := c.Store().Snapshot(), time.Now()
	var ops []consensus.Op
	for e := range snap.Kind(record.KindToken) {
		t, err := trust.ParseTokenRecord(c.Sealer(), e.Value)
		if err != nil {
			continue
		}
		if now.Sub(t.Expires) > expiredFor || !t.Revoked.IsZero() && now.Sub(t.Revoked) > expiredFor {
			ops = append(ops, consensus.Op{Key: e.Key, IfVersion: &e.Version})
		}
	}
	for e := range snap.Kind(record.KindNode) {
		r, err := record.Unmarshal[record.Node](e.Key, e.Value)
		if err == nil && !r.Member() && now.Sub(r.Left) > leftFor {
			ops = append(ops, consensus.Op{Key: e.Key, IfVersion: &e.Version})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	return c.entries.Commit(ctx, c.Name(), "tidy", ops)
}

// advanceGossipKey takes the next step of the gossip key's rotation when it is
// due.
func (lt *leaderTasks) advanceGossipKey(ctx context.Context, c *Cluster) error {
	entries := c.Directory.GossipEntries()
	up := func(id string) bool { return id == c.ID() || entries[id].State == directory.StateUp }
	return lt.rotation.AdvanceGossipKey(ctx, c.Directory.Records(c.Store().Snapshot()), up)
}

// retireOldCA retires the old CA when no member needs it any more.
func (lt *leaderTasks) retireOldCA(ctx context.Context, c *Cluster) error {
	late, err := lt.rotation.RetireOldCA(ctx, c.Directory.Records(c.Store().Snapshot()))
	if len(late) > 0 {
		lt.logged.Warn(c.log, "the old CA stays trusted until these nodes have certificates of the new one", "old CA",
			errors.New(directory.ListNames(late)))
	}
	return err
}
