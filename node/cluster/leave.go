package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/datadir"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
)

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
	if err := datadir.MarkLeft(c.cfg.Dir, "it left on "+time.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	c.Directory.LeaveGossip(ctx)
	return errors.Join(c.close(), datadir.RemoveLeftIdentity(c.cfg.Dir)) // again: Close may have run before the mark
}

// awaitDeparture repeats ask until this node has been taken out or was refused.
func (c *Cluster) awaitDeparture(ctx context.Context, ask func(context.Context) error) error {
	for lost := false; ; { // lost: an earlier attempt may have taken this node out
		// If another node leads, that one decides: this one may lag behind and
		// miss nodes that have left.
		if err := c.MayLeave(); err != nil && !lost && c.leader.Self() {
			return err
		}
		c.handOver.Do(ctx, false)
		err := ask(ctx)
		switch {
		case err == nil, lost && leader.RefusedAs(err, api.Unauthenticated):
			return nil // done, by this attempt or an earlier one
		case leader.RefusedAs(err, api.NoLeader) && c.removalConfirmed(ctx):
			return nil // the remaining voters go on without it
		case leader.RefusedAs(err, api.Refused):
			lost = false // a node that was taken out before is not refused (leader.Leader.Depart)
		case leader.UnknownOutcome(err), c.selfDeparted():
			lost = true
		}
		if !lost && !errors.Is(err, errStillLeads) && !leader.RefusedAs(err, api.Busy) {
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
	ctx, cancel := context.WithTimeout(ctx, directory.CallTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	without := map[string][]string{} // by ID of the node that answers: the voters of its configuration
	servers, _ := c.Store().Servers()
	for _, s := range servers {
		if s.ID == c.ID() || !s.Voter {
			continue
		}
		all.Go(func() {
			client, err := c.Directory.Pool.Get(ctx, s.ID)
			if err != nil {
				return
			}
			res, err := rpc.Call[directory.AnnounceResult](ctx, client, api.MethodAnnounce, c.announcement())
			if err == nil && res.Removed {
				mu.Lock()
				defer mu.Unlock()
				without[s.ID] = res.Voters
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
	r, ok := record.FindNode(c.Store().Snapshot(), c.ID())
	return ok && !r.Member()
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
	members := c.Directory.Members()
	alone, successor := true, false
	for _, m := range members {
		alone = alone && (m.Self || m.Role == directory.RoleNonVoter)
		successor = successor || !m.Self && m.Up()
	}
	if alone && successor {
		return nil // the successor is promoted first
	}
	return leader.QuorumWithout(members, c.ID())
}

// requestDeparture has the leader take this node out; errStillLeads if this
// node leads.
func (c *Cluster) requestDeparture(ctx context.Context) error {
	lead := func(context.Context, *leader.DepartRequest) (*api.Empty, error) { return nil, errStillLeads }
	_, err := leader.Ask(ctx, c.requests, leader.MethodDepart, &leader.DepartRequest{ID: c.ID()}, lead)
	return err
}
