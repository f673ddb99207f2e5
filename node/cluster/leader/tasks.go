package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"penstock/consensus/membership"
	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/identity"
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

// Config has what a Leader needs.
type Config struct {
	Entries   record.Store
	Directory *directory.Directory
	// Voters, ReplaceAfter and ForgetAfter are those of the node's configuration,
	// Tick and Stable of its timing.
	Voters                                  int
	ReplaceAfter, ForgetAfter, Tick, Stable time.Duration
	// Announcement returns what this node publishes about itself. Answered acts
	// on the answer to it.
	Announcement func() directory.Announcement
	Answered     func(*directory.AnnounceResult, directory.Announcement)
	// Leaving reports whether this node leaves the cluster.
	Leaving func() bool
	Log     *slog.Logger
}

// Leader does the work of the leader. Every node has one, which acts while its
// node leads. Its methods may be called from any goroutine.
type Leader struct {
	Config
	wake    chan struct{} // capacity 1; wakes Run
	records sync.Mutex    // serializes changes of node records
}

// New returns the Leader of a node.
func New(cfg Config) *Leader { return &Leader{Config: cfg, wake: make(chan struct{}, 1)} }

// Wake has the tasks run soon: something has changed.
func (l *Leader) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tasks are the tasks of the leader, with what it remembers about them.
type tasks struct {
	l      *Leader
	logged directory.LogOnce
	// lastTick is when the tasks of each tick were last due, lastCleanup when
	// cleanUp was.
	lastTick, lastCleanup time.Time
	rotation              rotation.Steps
}

func (l *Leader) newTasks() *tasks {
	return &tasks{l: l, logged: directory.LogOnce{}, rotation: rotation.Steps{Entries: l.Entries, Log: l.Log}}
}

// Run performs the tasks while this node leads, until ctx ends: about once a
// second, and whenever something has changed.
func (l *Leader) Run(ctx context.Context) {
	ticker := time.NewTicker(l.Tick)
	defer ticker.Stop()
	tasks := l.newTasks()
	for {
		if l.Entries.Replica().Leadership().Ready {
			tasks.runDue(ctx, time.Now())
		} else {
			tasks = l.newTasks()
		}
		select {
		case <-ticker.C:
		case <-l.wake:
			select { // changes come in bursts
			case <-time.After(l.Tick / 50):
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// cleanupInterval is how often the leader deletes outdated entries.
const cleanupInterval = time.Minute

// task is one task of the leader.
type task struct {
	name string
	run  func(context.Context) error
}

// runDue runs the tasks that are due. A task that fails is retried in the next
// round, or by the next leader.
func (lt *tasks) runDue(ctx context.Context, now time.Time) {
	due := []task{{"announce", lt.updateOwnRecord}, {"membership", lt.reconcileMembers}, {"log", lt.allowBatchGroups}}
	if now.Sub(lt.lastTick) >= lt.l.Tick {
		lt.lastTick = now
		due = append(due, task{"gossip key", lt.advanceGossipKey}, task{"CA", lt.retireOldCA},
			task{"tickets", lt.rotation.RotateTickets})
	}
	if now.Sub(lt.lastCleanup) >= cleanupInterval {
		lt.lastCleanup = now
		due = append(due, task{"tidy", lt.cleanUp})
	}
	for _, task := range due {
		one, cancel := context.WithTimeout(ctx, actTimeout)
		err := task.run(one)
		cancel()
		switch {
		case err == nil:
			delete(lt.logged, task.name)
		case ctx.Err() != nil || errors.Is(err, store.ErrNotLeader):
			return
		case !errors.Is(err, store.ErrVersion) && !errors.Is(err, replica.ErrServers): // another change came first
			lt.logged.Warn(lt.l.Log, "a task of the leader failed; retrying", task.name, err)
		}
	}
}

// allowBatchGroups allows groups of batches in the log once every member
// understands them; nodes of the release before would have to stop at one.
func (lt *tasks) allowBatchGroups(context.Context) error {
	lt.l.Entries.Replica().SetGroupsDisabled(len(lt.l.Directory.MembersBelow(record.LevelGroups)) > 0)
	return nil
}

// updateOwnRecord keeps the leader's own record up to date.
func (lt *tasks) updateOwnRecord(ctx context.Context) error {
	a := lt.l.Announcement()
	if r, ok := record.FindNode(lt.l.Entries.Snapshot(), lt.l.Directory.ID()); ok && r.Name == a.Name && a.ApplyTo(r) == r {
		return nil
	}
	var res directory.AnnounceResult
	if err := lt.l.RecordAnnouncement(ctx, a, &res); err != nil {
		return err
	}
	lt.l.Answered(&res, a)
	return nil
}

// reconcileMembers brings Raft's configuration in line with the records.
func (lt *tasks) reconcileMembers(ctx context.Context) error {
	lt.l.Directory.RecordUpStates(time.Now())
	observed, addrs, index := lt.l.Observe()
	for _, a := range membership.Plan(observed) {
		lt.l.Log.Info("membership change", "action", string(a.Kind), "node", a.ID, "why", a.Why)
		next, err := lt.l.applyAction(ctx, a, addrs[a.ID], index)
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
func (l *Leader) applyAction(ctx context.Context, a membership.Action, addr string, index uint64) (uint64, error) {
	switch a.Kind {
	case membership.AddNonvoter:
		return l.Entries.Replica().AddNonvoter(ctx, a.ID, addr, index)
	case membership.Promote:
		return l.Entries.Replica().AddVoter(ctx, a.ID, addr, index)
	case membership.Demote:
		return l.Entries.Replica().Demote(ctx, a.ID, index)
	case membership.Remove:
		return l.Entries.Replica().Remove(ctx, a.ID, index)
	case membership.Transfer:
		return 0, l.Entries.Replica().Transfer(ctx, a.ID)
	case membership.Forget:
		return 0, l.MarkDeparted(ctx, a.ID, "forget")
	}
	return 0, nil
}

// Observe returns what the leader sees of the members, their addresses, and the
// index of the configuration that it saw.
func (l *Leader) Observe() (o membership.Observed, addrs map[string]string, index uint64) {
	snap := l.Entries.Snapshot()
	servers, index := l.Entries.Replica().Servers()
	last := snap.Index()
	entries := l.Directory.GossipEntries()
	upStates := l.Directory.UpStates()
	nodes := map[string]*membership.Node{}
	for _, r := range l.Directory.Records(snap) {
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
	o = membership.Observed{Self: l.Directory.ID(), Now: time.Now(), Settings: membership.Settings{
		Voters: l.Voters, KeepTwo: l.expected() > 1, StableAfter: l.Stable,
		ReplaceAfter: l.ReplaceAfter, ForgetAfter: l.ForgetAfter,
	}}
	addrs = make(map[string]string, len(nodes))
	for id, n := range nodes {
		if n.Leaving && !n.Server {
			continue // only its record is left
		}
		n.Up, n.Since = upStates[id].Up, upStates[id].Since
		n.CaughtUp = entries[id].Index+closeEnough > last
		n.Draining = Fitness(entries[id].Facts) == FitnessLeaving
		if id == l.Directory.ID() {
			n.Up, n.CaughtUp = true, true
			n.Leaving = n.Leaving || l.Leaving()
		}
		addrs[id] = n.Addr
		o.Nodes = append(o.Nodes, *n)
	}
	return o, addrs, index
}

// expected returns how many nodes formed the cluster together; 0 if one node
// founded it, or this node does not have the record.
func (l *Leader) expected() int {
	e, ok := l.Entries.Snapshot().Get(record.KeyCluster)
	if !ok {
		return 0
	}
	r, err := record.Unmarshal[record.Cluster](record.KeyCluster, e.Value)
	if err != nil {
		return 0
	}
	return r.Expect
}

// MarkDeparted records that a node is no longer a member. Raft's configuration
// follows (reconcileMembers). The record stays, so that the node's certificate is
// refused.
//
// The record may change while this is agreed on: the last announcement of a
// node that has just died may be in the log although no caller waits for it any
// more.
func (l *Leader) MarkDeparted(ctx context.Context, id, what string) error {
	l.records.Lock()
	defer l.records.Unlock()
	snap := l.Entries.Snapshot()
	for {
		r, ok := record.FindNode(snap, id)
		if !ok || !r.Member() {
			return nil
		}
		r.Left = time.Now().UTC()
		err := l.Entries.Commit(ctx, l.Entries.Identity().Name, what, []store.Op{record.PutNode(snap, r)})
		if err == nil {
			l.Log.Info("a node is no longer a member", "node", r.Name, "id", id, "why", what)
			l.Wake()
			return nil
		}
		if !errors.Is(err, store.ErrVersion) {
			return err
		}
		if snap, err = l.Entries.Current(ctx); err != nil {
			return err
		}
	}
}

// cleanUp deletes tokens that ended long ago, workload certificates that have
// expired everywhere, and records of nodes that left so
// long ago that no certificate of theirs can be valid.
func (lt *tasks) cleanUp(ctx context.Context) error {
	snap, now := lt.l.Entries.Snapshot(), time.Now()
	ops := identity.Outdated(snap, now)
	for e := range snap.Kind(record.KindToken) {
		t, err := trust.ParseTokenRecord(lt.l.Entries.Sealer(), e.Value)
		if err != nil {
			continue
		}
		if now.Sub(t.Expires) > expiredFor || !t.Revoked.IsZero() && now.Sub(t.Revoked) > expiredFor {
			ops = append(ops, store.Op{Key: e.Key, IfVersion: &e.Version})
		}
	}
	for e := range snap.Kind(record.KindNode) {
		r, err := record.Unmarshal[record.Node](e.Key, e.Value)
		if err == nil && !r.Member() && now.Sub(r.Left) > leftFor {
			ops = append(ops, store.Op{Key: e.Key, IfVersion: &e.Version})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	return lt.l.Entries.Commit(ctx, lt.l.Entries.Identity().Name, "tidy", ops)
}

// advanceGossipKey takes the next step of the gossip key's rotation when it is
// due.
func (lt *tasks) advanceGossipKey(ctx context.Context) error {
	entries := lt.l.Directory.GossipEntries()
	up := func(id string) bool { return id == lt.l.Directory.ID() || entries[id].State == directory.StateUp }
	return lt.rotation.AdvanceGossipKey(ctx, lt.l.Directory.Records(lt.l.Entries.Snapshot()), up)
}

// retireOldCA retires the old CA when no member needs it any more.
func (lt *tasks) retireOldCA(ctx context.Context) error {
	late, err := lt.rotation.RetireOldCA(ctx, lt.l.Directory.Records(lt.l.Entries.Snapshot()))
	if len(late) > 0 {
		lt.logged.Warn(lt.l.Log, "the old CA stays trusted until these nodes have certificates of the new one", "old CA",
			errors.New(directory.ListNames(late)))
	}
	return err
}

// BeginRotation begins to replace the CA or the gossip key, on the leader.
func (l *Leader) BeginRotation(ctx context.Context, req *api.RotateRequest) (*api.Empty, error) {
	defer l.Wake()
	return rotation.Begin(ctx, l.Entries, req)
}
