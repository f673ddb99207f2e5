package cluster

import (
	"context"
	"errors"
	"time"

	"penstock/consensus"
	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/record"
)

func (c *Cluster) remove(ctx context.Context, req *api.RemoveRequest) (*api.Empty, error) {
	snap, err := c.entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	m, err := c.Directory.Resolve(req.Node)
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
	servers, _ := c.Store().Servers()
	for _, s := range servers {
		r, known := record.FindNode(snap, s.ID)
		if known && !r.Member() && (r.ID == nameOrID || r.Name == nameOrID) {
			return r.ID, true
		}
	}
	return "", false
}

// quorumWithout returns an error if the voters that remain without a node
// cannot decide.
func quorumWithout(members []directory.Member, id string) error {
	voters, up, was := 0, 0, false
	var down []string
	name := id
	for _, m := range members {
		switch {
		case m.ID == id:
			was, name = m.Role != directory.RoleNonVoter, m.Name
		case m.Role == directory.RoleNonVoter:
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
			"unreachable: %s; bring the missing ones back, or remove them first", name, voters, need, up, directory.ListNames(down))
	}
	return nil
}

// checkQuorumWithout returns an error, on the leader, if the others cannot
// decide without a node: by the members' states, and by the voters that answer
// now (consensus.ErrQuorum).
func (c *Cluster) checkQuorumWithout(ctx context.Context, id string) error {
	if err := quorumWithout(c.Directory.Members(), id); err != nil {
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
		servers, _ := c.Store().Servers()
		there := false
		for _, s := range servers {
			there = there || s.ID == id
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
