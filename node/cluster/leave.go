package cluster

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"penstock/consensus"
	"penstock/node/api"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// Remove takes a node that will not come back out of the cluster. Unless
// forced, it refuses if that node is up, and if too few voters would remain to
// decide anything.
func (c *Cluster) Remove(ctx context.Context, req *api.RemoveRequest) (*api.Empty, error) {
	return retryUnknown(func(ctx context.Context, req *api.RemoveRequest) (*api.Empty, error) {
		return askLeader(ctx, c, api.MethodRemove, req, c.remove)
	}, api.NotFound)(ctx, req)
}

func (c *Cluster) remove(ctx context.Context, req *api.RemoveRequest) (*api.Empty, error) {
	snap, err := c.currentSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	m, err := c.Resolve(req.Node)
	switch id, going := c.findDeparting(snap, req.Node); {
	case err != nil && going: // removed by an earlier request, or leaving by itself
		return &api.Empty{}, c.awaitRemoval(ctx, id)
	case err != nil:
		return nil, err
	case m.Self:
		return nil, api.Errorf(api.Refused, "%s is up and leads the cluster: use penstock leave %s instead", m.Name, m.Name)
	case m.Up() && !req.Force:
		return nil, api.Errorf(api.Refused, "%s is up at %s: use penstock leave instead, or add --force", m.Name, m.Cluster)
	}
	if err := c.checkQuorumWithout(ctx, m.ID); err != nil && !req.Force {
		if errors.Is(err, consensus.ErrQuorum) {
			err = api.Errorf(api.Refused, "%v: bring the others back, or remove them first", err)
		}
		var refused *api.Error
		if errors.As(err, &refused) && refused.Code == api.Refused {
			return nil, api.Errorf(api.Refused, "%s; or add --force", refused.Message)
		}
		return nil, err
	}
	if err := c.markDeparted(ctx, m.ID, "remove"); err != nil {
		return nil, err
	}
	return &api.Empty{}, c.awaitRemoval(ctx, m.ID)
}

// findDeparting finds a node, by ID or name, that is no longer a member but
// still in Raft's configuration.
func (c *Cluster) findDeparting(snap consensus.Snapshot, nameOrID string) (id string, ok bool) {
	servers, _ := c.servers()
	for _, s := range servers {
		r, known := record(snap, s.id)
		if known && !r.member() && (r.ID == nameOrID || r.Name == nameOrID) {
			return r.ID, true
		}
	}
	return "", false
}

// quorumWithout returns an error if the voters that remain without a node
// cannot decide.
func quorumWithout(members []Member, id string) error {
	voters, up, was := 0, 0, false
	var down []string
	name := id
	for _, m := range members {
		switch {
		case m.ID == id:
			was, name = m.Role != RoleNonVoter, m.Name
		case m.Role == RoleNonVoter:
		case m.Up():
			voters, up = voters+1, up+1
		default:
			voters++
			down = append(down, m.Name)
		}
	}
	need := voters/2 + 1
	switch {
	case !was:
		return nil
	case voters == 0:
		return api.Errorf(api.Refused, "%s is the only voter: without it there is no cluster; stop it instead", name)
	case up < need:
		return api.Errorf(api.Refused, "without %s there are %d voters; %d must be up to commit anything, and %d are; "+
			"unreachable: %s; bring the missing ones back, or remove them first", name, voters, need, up, listNames(down))
	}
	return nil
}

// checkQuorumWithout returns an error, on the leader, if the others cannot
// decide without a node: by the members' states, and by the voters that answer
// now (consensus.ErrQuorum).
func (c *Cluster) checkQuorumWithout(ctx context.Context, id string) error {
	if err := quorumWithout(c.Members(), id); err != nil {
		return err
	}
	return c.Store().CheckQuorumWithout(ctx, id)
}

// awaitRemoval waits until a node is no longer in Raft's configuration: until
// then its vote counts. If ctx ends first, the node is no longer a member all
// the same, and a repeated request waits again.
func (c *Cluster) awaitRemoval(ctx context.Context, id string) error {
	for {
		changes := c.Store().Changes()
		servers, _ := c.servers()
		there := false
		for _, s := range servers {
			there = there || s.id == id
		}
		if !there {
			return nil
		}
		notify(c.leadWake)
		select {
		case <-changes:
		case <-time.After(c.cfg.Timing.Tick):
		case <-ctx.Done():
			return api.Errorf(api.UnknownOutcome, "the node is no longer a member, "+
				"but the voters have not agreed in time to continue without it; repeat the request to wait again")
		}
	}
}

// Leave takes this node out of its cluster for good and stops it. Its data
// folder is marked, and does not start again.
//
// A leader hands the lead over first. If no other node votes, one is promoted
// before, which takes a moment.
func (c *Cluster) Leave(ctx context.Context) (err error) {
	c.leaving.Store(true)
	defer func() {
		if err != nil {
			c.leaving.Store(false)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := c.awaitDeparture(ctx, c.requestDeparture); err != nil {
		return err
	}
	c.log.Info("left the cluster")
	if err := c.markLeft("it left on " + time.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	c.leaveGossip(ctx)
	return errors.Join(c.close(), removeLeftIdentity(c.cfg.Dir)) // again: Close may have run before the mark
}

// awaitDeparture repeats ask until this node has been taken out or was refused.
func (c *Cluster) awaitDeparture(ctx context.Context, ask func(context.Context) error) error {
	for lost := false; ; { // lost: an earlier attempt may have taken this node out
		// If another node leads, that one decides: this one may lag behind and
		// miss nodes that have left.
		if err := c.MayLeave(); err != nil && !lost && c.leaderID() == c.ID() {
			return err
		}
		c.transferLead(ctx, false)
		err := ask(ctx)
		switch {
		case err == nil, lost && refusedAs(err, api.Unauthenticated):
			return nil // done, by this attempt or an earlier one
		case refusedAs(err, api.NoLeader) && c.removalConfirmed(ctx):
			return nil // the remaining voters go on without it
		case refusedAs(err, api.Refused):
			lost = false // a node that was taken out before is not refused (handleDepart)
		case unknownOutcome(err), c.selfDeparted():
			lost = true
		}
		if !lost && !errors.Is(err, errStillLeads) && !refusedAs(err, api.Busy) {
			return c.leaveError(nil, err)
		}
		select { // this node leads again, the leader is lost, or others are slow
		case <-time.After(c.cfg.Timing.Tick / 2):
		case <-ctx.Done():
			return c.leaveError(ctx.Err(), err)
		}
	}
}

// removalConfirmed reports whether a majority of the remaining voters goes on
// without this node. It calls them itself: once the leader has taken this node
// out of the configuration, this node receives neither the log nor who leads.
//
// Each answer lists the voters of that node's configuration. An answer counts
// if most of these voters confirm the removal: then no leader can have this
// node's vote.
func (c *Cluster) removalConfirmed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	without := map[string][]string{} // by ID of the node that answers: the voters of its configuration
	servers, _ := c.servers()
	for _, s := range servers {
		if s.id == c.ID() || !s.voter {
			continue
		}
		all.Go(func() {
			client, err := c.pool.Get(ctx, s.id)
			if err != nil {
				return
			}
			res, err := rpc.Call[AnnounceResult](ctx, client, api.MethodAnnounce, c.announcement())
			if err == nil && res.Removed {
				mu.Lock()
				defer mu.Unlock()
				without[s.id] = res.Voters
			}
		})
	}
	all.Wait()
	return majorityConfirms(without)
}

// majorityConfirms reports whether an answer counts: most of the voters that it
// lists have given one. The keys are the nodes that answered.
func majorityConfirms(answers map[string][]string) bool {
	for _, voters := range answers {
		agree := 0
		for _, id := range voters {
			if _, ok := answers[id]; ok {
				agree++
			}
		}
		if agree > len(voters)/2 {
			return true
		}
	}
	return false
}

// selfDeparted reports whether this node has learned that it is no longer a
// member. Its vote may still count.
func (c *Cluster) selfDeparted() bool {
	r, ok := record(c.Store().Snapshot(), c.ID())
	return ok && !r.member()
}

// leaveError returns why this node could not leave: over is why it stopped
// trying, last is the error of the last attempt.
func (c *Cluster) leaveError(over, last error) error {
	if c.selfDeparted() {
		return api.Errorf(api.Unavailable, "the node is no longer a member, but the voters have not agreed yet "+
			"to continue without its vote (%v); it serves until they have, then stops", last)
	}
	var refused *api.Error
	switch {
	case errors.Is(over, context.Canceled):
		return api.Errorf(api.Refused, "the process was stopped before the other nodes agreed: "+
			"the node is still a member, and returns when started again")
	case over != nil:
		return api.Errorf(api.Unavailable, "the other nodes did not agree within %v: %v", leaveTimeout, last)
	case errors.As(last, &refused):
		return last
	case errors.Is(last, context.DeadlineExceeded):
		return api.Errorf(api.Unavailable, "the leader did not answer within %v", leaveTimeout)
	}
	return last
}

var errStillLeads = errors.New("this node leads, and no other node could take over")

// leaveTimeout bounds how long a leaving node waits for the others to go on
// without it.
const leaveTimeout = time.Minute

// MayLeave returns why this node cannot leave now; nil: it may try.
func (c *Cluster) MayLeave() error {
	members := c.Members()
	alone, successor := true, false
	for _, m := range members {
		alone = alone && (m.Self || m.Role == RoleNonVoter)
		successor = successor || !m.Self && m.Up()
	}
	if alone && successor {
		return nil // the successor is promoted first
	}
	return quorumWithout(members, c.ID())
}

// HandOver gives the lead to another voter that is up and stays in service, if
// this node leads and there is one: before a drain, for example.
func (c *Cluster) HandOver(ctx context.Context) { c.transferLead(ctx, true) }

// requestDeparture has the leader take this node out; errStillLeads if this
// node leads.
func (c *Cluster) requestDeparture(ctx context.Context) error {
	_, err := askLeader(ctx, c, methodDepart, &departRequest{ID: c.ID()}, func(context.Context, *departRequest) (*api.Empty, error) {
		return nil, errStillLeads
	})
	return err
}

// handleDepart takes the caller out, on the leader.
func (c *Cluster) handleDepart(ctx context.Context, req *departRequest) (*api.Empty, error) {
	if caller := rpc.Caller(ctx); caller.Node != req.ID {
		return nil, api.Errorf(api.Invalid, "node %.40q may not request the departure of %.40q", caller.Node, req.ID)
	}
	snap, err := c.currentSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	// The answer to an earlier request may have been lost: what was agreed is not refused.
	if r, ok := record(snap, req.ID); ok && !r.member() {
		return &api.Empty{}, c.awaitRemoval(ctx, req.ID)
	}
	switch err := c.checkQuorumWithout(ctx, req.ID); {
	case errors.Is(err, consensus.ErrQuorum): // the voters are slow, or will soon be known to be down
		return nil, api.Errorf(api.Busy, "%v", err)
	case err != nil:
		return nil, err
	}
	if err := c.markDeparted(ctx, req.ID, "leave"); err != nil {
		return nil, err
	}
	return &api.Empty{}, c.awaitRemoval(ctx, req.ID)
}

// Transfer hands the lead to a node, by ID or name; "": to the fittest.
func (c *Cluster) Transfer(ctx context.Context, req *api.TransferRequest) (*api.Empty, error) {
	return askLeader(ctx, c, api.MethodTransfer, req, c.transfer)
}

func (c *Cluster) transfer(ctx context.Context, req *api.TransferRequest) (*api.Empty, error) {
	to := ""
	if req.To != "" {
		m, err := c.Resolve(req.To)
		switch {
		case err != nil:
			return nil, err
		case m.Role == RoleNonVoter:
			return nil, api.Errorf(api.Refused, "%s is not a voter, so it cannot lead", m.Name)
		case !m.Up():
			return nil, api.Errorf(api.Refused, "%s is unreachable", m.Name)
		}
		to = m.ID
	} else if successors := c.successors(c.Silent()); len(successors) > 0 {
		to = successors[0].ID
	}
	if err := c.Store().Transfer(ctx, to); err != nil {
		if errors.Is(err, consensus.ErrNotLeader) {
			return nil, err
		}
		return nil, api.Errorf(api.Refused, "%v", err)
	}
	return &api.Empty{}, nil
}

// Rotate begins to replace the CA or the gossip key. The leader drops the old
// one when all nodes have the new one.
func (c *Cluster) Rotate(ctx context.Context, req *api.RotateRequest) (*api.Empty, error) {
	return askLeader(ctx, c, api.MethodRotate, req, c.rotate)
}

func (c *Cluster) rotate(ctx context.Context, req *api.RotateRequest) (*api.Empty, error) {
	snap, err := c.currentSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	switch req.What {
	case "gossip":
		err = c.rotateGossip(ctx, snap)
	case "ca":
		err = c.rotateCA(ctx, snap)
	default:
		return nil, api.Errorf(api.Invalid, "%.40q: want ca or gossip", req.What)
	}
	if errors.Is(err, errRotating) || errors.Is(err, consensus.ErrVersion) {
		return nil, api.Errorf(api.Refused, "the previous rotation is still under way: not all nodes have the new secret yet")
	}
	notify(c.leadWake)
	return &api.Empty{}, err
}

func (c *Cluster) rotateGossip(ctx context.Context, snap consensus.Snapshot) error {
	cur, version, ok, err := unseal[gossipSecret](c.Sealer(), snap, keyGossip)
	if err != nil || !ok {
		return errors.Join(err, errRotating)
	}
	next, err := beginGossip(cur, trust.NewGossipKey())
	if err != nil {
		return err
	}
	value, err := seal(c.Sealer(), keyGossip, next)
	if err != nil {
		return err
	}
	return c.commit(ctx, cmp.Or(rpc.Caller(ctx).Name, c.Name()), "rotate gossip",
		[]consensus.Op{{Key: keyGossip, Value: value, IfVersion: &version}})
}

func (c *Cluster) rotateCA(ctx context.Context, snap consensus.Snapshot) error {
	s, version, ok, err := unseal[caSecret](c.Sealer(), snap, keyCA)
	if err != nil || !ok {
		return errors.Join(err, errRotating)
	}
	ca, err := trust.ParseCA(s.CA)
	if err != nil {
		return err
	}
	if ca.Rotating() {
		return errRotating
	}
	next, err := ca.Next(time.Now())
	if err != nil {
		return err
	}
	return c.putCA(ctx, snap, next, version, "rotate ca")
}
