package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/node/trust"
)

// Remove takes a node that will not come back out of the cluster. Unless it
// is forced, it refuses where that node is up, and where the voters that
// remain would be too few to decide anything.
func (c *Cluster) Remove(ctx context.Context, req *admin.RemoveRequest) (*admin.Empty, error) {
	return untilKnown(func(ctx context.Context, req *admin.RemoveRequest) (*admin.Empty, error) {
		return ask(ctx, c, admin.MethodRemove, req, c.remove)
	}, admin.NotFound)(ctx, req)
}

func (c *Cluster) remove(ctx context.Context, req *admin.RemoveRequest) (*admin.Empty, error) {
	view, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	m, err := c.Resolve(req.Node)
	switch id, going := c.going(view, req.Node); {
	case err != nil && going: // asked before, or on its way by itself
		return &admin.Empty{}, c.waitGone(ctx, id)
	case err != nil:
		return nil, err
	case m.Self:
		return nil, admin.Errorf(admin.Refused, "%s leads the cluster and is up: have it leave (penstock leave %s)", m.Name, m.Name)
	case m.Up() && !req.Force:
		return nil, admin.Errorf(admin.Refused, "%s is up at %s: have it leave (penstock leave), or say --force", m.Name, m.Cluster)
	}
	if err := c.spared(ctx, m.ID); err != nil && !req.Force {
		if errors.Is(err, consensus.ErrQuorum) {
			err = admin.Errorf(admin.Refused, "%v: bring the others back, or remove them first", err)
		}
		var refused *admin.Error
		if errors.As(err, &refused) && refused.Code == admin.Refused {
			return nil, admin.Errorf(admin.Refused, "%s; or say --force", refused.Message)
		}
		return nil, err
	}
	if err := c.depart(ctx, m.ID, "remove"); err != nil {
		return nil, err
	}
	return &admin.Empty{}, c.waitGone(ctx, m.ID)
}

// going finds the node of an ID or a name that is no member any more, and is
// in Raft's configuration still.
func (c *Cluster) going(view consensus.Snapshot, nameOrID string) (id string, ok bool) {
	servers, _ := c.servers()
	for _, s := range servers {
		r, known := record(view, s.id)
		if known && !r.member() && (r.ID == nameOrID || r.Name == nameOrID) {
			return r.ID, true
		}
	}
	return "", false
}

// quorumWithout says whether the voters that remain without a node can decide.
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
		return admin.Errorf(admin.Refused, "%s is the only node that votes: without it there is no cluster; stop it instead", name)
	case up < need:
		return admin.Errorf(admin.Refused, "without %s there are %d voters; %d must be up to decide anything, and %d are; not in reach: %s; bring back who is missing, or remove it first", name, voters, need, up, some(down))
	}
	return nil
}

// spared says, on the leader, whether the others can decide without a node: by
// what is known of them, and by who answers now (consensus.ErrQuorum).
func (c *Cluster) spared(ctx context.Context, id string) error {
	if err := quorumWithout(c.Members(), id); err != nil {
		return err
	}
	return c.Store().Without(ctx, id)
}

// waitGone waits until a node is in Raft's configuration no more: until then
// its vote counts. Where it gives up, the node is no member any more all the
// same: whoever asks again waits again.
func (c *Cluster) waitGone(ctx context.Context, id string) error {
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
		poke(c.leading)
		select {
		case <-changes:
		case <-time.After(c.cfg.Timing.Tick):
		case <-ctx.Done():
			return admin.Errorf(admin.UnknownOutcome, "it is no member any more, but the voters have not agreed in time to go on without it; the same request waits for that again")
		}
	}
}

// Leave takes this node out of its cluster for good and ends its part in it.
// The folder says so afterwards, and does not start again.
//
// One that leads hands the lead over first. Where no other node votes, one is
// made to, which takes a moment; then it leads.
func (c *Cluster) Leave(ctx context.Context) (err error) {
	c.leaving.Store(true)
	defer func() {
		if err != nil {
			c.leaving.Store(false)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	if err := c.untilLet(ctx, c.askToDepart); err != nil {
		return err
	}
	c.log.Info("left the cluster")
	if err := c.markLeft("it left on " + time.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	c.leaveGossip(ctx)
	return errors.Join(c.close(), forgetLeft(c.cfg.Dir)) // again, in case it was being closed before it was marked
}

// untilLet asks until this node was taken out or was refused that.
func (c *Cluster) untilLet(ctx context.Context, ask func(context.Context) error) error {
	for lost := false; ; { // lost: an attempt before may have taken it out
		// Where another node leads it is that one's to say: this one may lag, and
		// miss who has left before it.
		if err := c.MayLeave(); err != nil && !lost && c.leads() == c.ID() {
			return err
		}
		c.handOver(ctx, false)
		err := ask(ctx)
		switch {
		case err == nil, lost && refusedAs(err, admin.Unauthenticated):
			return nil // done, now or the time before
		case refusedAs(err, admin.NoLeader) && c.letGo(ctx):
			return nil // those that stay talk Raft with it no more
		case refusedAs(err, admin.Refused):
			lost = false // whoever was taken out before is not refused (handleDepart)
		case unknownOutcome(err), c.takenOut():
			lost = true
		}
		if !lost && !errors.Is(err, errLeads) && !refusedAs(err, admin.Busy) {
			return c.notLeft(nil, err)
		}
		select { // it came to lead again meanwhile, or the leader went, or others are slow
		case <-time.After(c.cfg.Timing.Tick / 2):
		case <-ctx.Done():
			return c.notLeft(ctx.Err(), err)
		}
	}
}

// letGo tells whether a majority of the voters that stay go on without this node.
// It asks them itself: from when the leader has taken it out of the configuration
// it is sent nothing of the log, nor who leads.
//
// Each answer has the voters of that node's configuration. An answer counts where
// most of these give the same answer: then no leader can have this node's vote.
func (c *Cluster) letGo(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	without := map[string][]string{} // by who says it: those that vote without this node
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
			res, err := admin.Call[AnnounceResult](ctx, client, admin.MethodAnnounce, c.announcement())
			if err == nil && res.Removed {
				mu.Lock()
				defer mu.Unlock()
				without[s.id] = res.Voters
			}
		})
	}
	all.Wait()
	return goOnWithout(without)
}

// goOnWithout tells whether an answer counts: most of the voters that it names
// have given one. The keys are who answered.
func goOnWithout(answers map[string][]string) bool {
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

// takenOut tells whether this node knows that it is no member any more. Its vote
// may still count.
func (c *Cluster) takenOut() bool {
	r, ok := record(c.Store().Snapshot(), c.ID())
	return ok && !r.member()
}

// notLeft says why this node could not leave: over is why it tries no more,
// last what the last attempt ended with.
func (c *Cluster) notLeft(over, last error) error {
	if c.takenOut() {
		return admin.Errorf(admin.Unavailable, "it is no member any more, but the voters have not agreed yet to go on without its vote (%v); it serves until they have, and ends then", last)
	}
	var refused *admin.Error
	switch {
	case errors.Is(over, context.Canceled):
		return admin.Errorf(admin.Refused, "its process was ended before the others let it go: it is a member still, and comes back with its folder")
	case over != nil:
		return admin.Errorf(admin.Unavailable, "the others did not let it go within %v: %v", leavePatience, last)
	case errors.As(last, &refused):
		return last
	case errors.Is(last, context.DeadlineExceeded):
		return admin.Errorf(admin.Unavailable, "the leader did not answer within %v", leavePatience)
	}
	return last
}

var errLeads = errors.New("this node leads, and found nobody to take the lead")

// leavePatience bounds the wait of a node that leaves for the others to go on
// without it.
const leavePatience = time.Minute

// MayLeave says why this node cannot leave now; nil: it may try.
func (c *Cluster) MayLeave() error {
	members := c.Members()
	alone, heir := true, false
	for _, m := range members {
		alone = alone && (m.Self || m.Role == RoleNonVoter)
		heir = heir || !m.Self && m.Up()
	}
	if alone && heir {
		return nil // it comes to vote first
	}
	return quorumWithout(members, c.ID())
}

// HandOver gives the lead to another voter that is up and stays in service,
// where this node has it and there is one: before a drain, for example.
func (c *Cluster) HandOver(ctx context.Context) { c.handOver(ctx, true) }

// askToDepart asks the leader to take this node out.
func (c *Cluster) askToDepart(ctx context.Context) error {
	_, err := ask(ctx, c, methodDepart, &departRequest{ID: c.ID()}, func(context.Context, *departRequest) (*admin.Empty, error) {
		return nil, errLeads
	})
	return err
}

// handleDepart takes the caller out, on the leader.
func (c *Cluster) handleDepart(ctx context.Context, req *departRequest) (*admin.Empty, error) {
	if caller := admin.Caller(ctx); caller.Node != req.ID {
		return nil, admin.Errorf(admin.Invalid, "node %.40q asks to take %.40q out", caller.Node, req.ID)
	}
	view, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	// One that asked before and lost the answer is not refused what was agreed.
	if r, ok := record(view, req.ID); ok && !r.member() {
		return &admin.Empty{}, c.waitGone(ctx, req.ID)
	}
	switch err := c.spared(ctx, req.ID); {
	case errors.Is(err, consensus.ErrQuorum): // they are slow, or it is soon known that they are gone
		return nil, admin.Errorf(admin.Busy, "%v", err)
	case err != nil:
		return nil, err
	}
	if err := c.depart(ctx, req.ID, "leave"); err != nil {
		return nil, err
	}
	return &admin.Empty{}, c.waitGone(ctx, req.ID)
}

// Transfer hands the lead to a node, by ID or name; "": to the best.
func (c *Cluster) Transfer(ctx context.Context, req *admin.TransferRequest) (*admin.Empty, error) {
	return ask(ctx, c, admin.MethodTransfer, req, c.transfer)
}

func (c *Cluster) transfer(ctx context.Context, req *admin.TransferRequest) (*admin.Empty, error) {
	to := ""
	if req.To != "" {
		m, err := c.Resolve(req.To)
		switch {
		case err != nil:
			return nil, err
		case m.Role == RoleNonVoter:
			return nil, admin.Errorf(admin.Refused, "%s does not vote, so it cannot lead", m.Name)
		case !m.Up():
			return nil, admin.Errorf(admin.Refused, "%s is not in reach", m.Name)
		}
		to = m.ID
	} else if heirs := c.heirs(c.Silent()); len(heirs) > 0 {
		to = heirs[0].ID
	}
	if err := c.Store().Transfer(ctx, to); err != nil {
		if errors.Is(err, consensus.ErrNotLeader) {
			return nil, err
		}
		return nil, admin.Errorf(admin.Refused, "%v", err)
	}
	return &admin.Empty{}, nil
}

// Rotate replaces the CA or the gossip key. It begins with the next one; the
// old one goes when all nodes have it, and the leader sees to that.
func (c *Cluster) Rotate(ctx context.Context, req *admin.RotateRequest) (*admin.Empty, error) {
	return ask(ctx, c, admin.MethodRotate, req, c.rotate)
}

func (c *Cluster) rotate(ctx context.Context, req *admin.RotateRequest) (*admin.Empty, error) {
	view, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	switch req.What {
	case "gossip":
		err = c.rotateGossip(ctx, view)
	case "ca":
		err = c.rotateCA(ctx, view)
	default:
		return nil, admin.Errorf(admin.Invalid, "%.40q: want ca or gossip", req.What)
	}
	if errors.Is(err, errRotating) || errors.Is(err, consensus.ErrVersion) {
		return nil, admin.Errorf(admin.Refused, "the last rotation is not over: not all nodes have the new secret yet")
	}
	poke(c.leading)
	return &admin.Empty{}, err
}

func (c *Cluster) rotateGossip(ctx context.Context, view consensus.Snapshot) error {
	cur, version, ok, err := unseal[gossipSecret](c.Sealer(), view, keyGossip)
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
	return c.commit(ctx, cmpName(admin.Caller(ctx).Name, c.Name()), "rotate gossip", []consensus.Op{{Key: keyGossip, Value: value, IfVersion: &version}})
}

func (c *Cluster) rotateCA(ctx context.Context, view consensus.Snapshot) error {
	s, version, ok, err := unseal[caSecret](c.Sealer(), view, keyCA)
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
	return c.putCA(ctx, view, next, version, "rotate ca")
}
