package leader

import (
	"context"
	"errors"
	"time"

	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
)

// MethodDepart has the leader take out the node that calls it, which leaves:
// DepartRequest -> api.Empty.
const MethodDepart = "cluster.depart"

// DepartRequest takes the caller out of the cluster.
type DepartRequest struct {
	ID string `json:"id"`
}

// Depart takes the caller out, on the leader.
func (l *Leader) Depart(ctx context.Context, req *DepartRequest) (*api.Empty, error) {
	if caller := rpc.Caller(ctx); caller.Node != req.ID {
		return nil, api.Errorf(api.Invalid, "node %.40q may not request the departure of %.40q", caller.Node, req.ID)
	}
	snap, err := l.Entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	// The answer to an earlier request may have been lost: what was agreed is not refused.
	if r, ok := record.FindNode(snap, req.ID); ok && !r.Member() {
		return &api.Empty{}, l.AwaitRemoval(ctx, req.ID)
	}
	switch err := l.checkQuorumWithout(ctx, req.ID); {
	case errors.Is(err, replica.ErrQuorum): // the voters are slow, or will soon be known to be down
		return nil, api.Errorf(api.Busy, "%v", err)
	case err != nil:
		return nil, err
	}
	if err := l.MarkDeparted(ctx, req.ID, "leave"); err != nil {
		return nil, err
	}
	return &api.Empty{}, l.AwaitRemoval(ctx, req.ID)
}

// Remove takes a node that will not come back out of the cluster. Unless forced,
// it refuses if that node is up, and if too few voters would remain to decide
// anything.
func (l *Leader) Remove(ctx context.Context, req *api.RemoveRequest) (*api.Empty, error) {
	snap, err := l.Entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	m, err := l.Directory.Resolve(req.Node)
	switch id, going := l.findDeparting(snap, req.Node); {
	case err != nil && going: // removed by an earlier request, or leaving by itself
		return &api.Empty{}, l.AwaitRemoval(ctx, id)
	case err != nil:
		return nil, err
	case m.Self:
		return nil, api.Errorf(api.Refused, "%s is up and leads the cluster: use penstock leave %s instead", m.Name, m.Name)
	case m.Up() && !req.Force:
		return nil, api.Errorf(api.Refused, "%s is up at %s: use penstock leave instead, or add --force", m.Name, m.Cluster)
	}
	if err := l.checkQuorumWithout(ctx, m.ID); err != nil && !req.Force {
		if errors.Is(err, replica.ErrQuorum) {
			err = api.Errorf(api.Refused, "%v: bring the others back, or remove them first", err)
		}
		var refused *api.Error
		if errors.As(err, &refused) && refused.Code == api.Refused {
			return nil, api.Errorf(api.Refused, "%s; or add --force", refused.Message)
		}
		return nil, err
	}
	if err := l.MarkDeparted(ctx, m.ID, "remove"); err != nil {
		return nil, err
	}
	return &api.Empty{}, l.AwaitRemoval(ctx, m.ID)
}

// findDeparting finds a node, by ID or name, that is no longer a member but
// still in Raft's configuration.
func (l *Leader) findDeparting(snap store.Snapshot, nameOrID string) (id string, ok bool) {
	servers, _ := l.Entries.Replica().Servers()
	for _, s := range servers {
		r, known := record.FindNode(snap, s.ID)
		if known && !r.Member() && (r.ID == nameOrID || r.Name == nameOrID) {
			return r.ID, true
		}
	}
	return "", false
}

// QuorumWithout returns an error if the voters that remain without a node
// cannot decide.
func QuorumWithout(members []directory.Member, id string) error {
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
// now (replica.ErrQuorum).
func (l *Leader) checkQuorumWithout(ctx context.Context, id string) error {
	if err := QuorumWithout(l.Directory.Members(), id); err != nil {
		return err
	}
	return l.Entries.Replica().CheckQuorumWithout(ctx, id)
}

// AwaitRemoval waits until a node is no longer in Raft's configuration: until
// then its vote counts. If ctx ends first, the node is no longer a member all
// the same, and a repeated request waits again.
func (l *Leader) AwaitRemoval(ctx context.Context, id string) error {
	for {
		changes := l.Entries.Replica().Changes()
		servers, _ := l.Entries.Replica().Servers()
		there := false
		for _, s := range servers {
			there = there || s.ID == id
		}
		if !there {
			return nil
		}
		l.Wake()
		select {
		case <-changes:
		case <-time.After(l.Tick):
		case <-ctx.Done():
			return api.Errorf(api.UnknownOutcome, "the node is no longer a member, "+
				"but the voters have not agreed in time to continue without it; repeat the request to wait again")
		}
	}
}
