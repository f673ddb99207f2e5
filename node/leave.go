package node

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"penstock/node/admin"
)

// departures are the attempts of this node to leave its cluster, one at a
// time. The last one is remembered until the process ends: whoever asked for
// it wants to hear what came of it, which is known only after the drain.
type departures struct {
	mu   sync.Mutex
	last departure
}

// departure is one attempt.
type departure struct {
	id    string // random; "": there was none
	state string // one of admin's
	why   *admin.Error
}

// begin begins an attempt; where one is under way, that is joined.
func (d *departures) begin() (id string, begun bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.id != "" && (d.last.state == admin.LeaveDraining || d.last.state == admin.LeaveLeaving) {
		return d.last.id, false
	}
	d.last = departure{id: rand.Text(), state: admin.LeaveDraining}
	return d.last.id, true
}

// at notes how far the attempt is.
func (d *departures) at(state string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last.state, d.last.why = state, nil
	if err != nil && !errors.As(err, &d.last.why) {
		d.last.why = admin.Errorf(admin.Internal, "%v", err)
	}
}

// of gives the attempt of an ID.
func (d *departures) of(id string) (departure, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last, id != "" && d.last.id == id
}

// leave takes the node that is meant out of the cluster, and ends it. The
// answer is what it begins with; leaving tells what came of it.
func (n *Node) leave(ctx context.Context, r *admin.LeaveRequest) (*admin.LeaveResult, error) {
	if passed, err := n.ops.Peers.Elsewhere(ctx, r.Node); passed {
		return nil, err
	}
	if n.cluster == nil {
		return nil, admin.Errorf(admin.Refused, "this node is not in a cluster: end it with SIGTERM")
	}
	over := n.cfg.DrainTimeout
	if r.Over != nil {
		over = max(0, *r.Over)
	}
	if err := n.cluster.MayLeave(); err != nil {
		return nil, err // before it is drained for nothing
	}
	result := &admin.LeaveResult{Node: n.cfg.Name, Connections: int64(n.data.Engine.Stats().Connections)}
	var begun bool
	if result.ID, begun = n.departures.begin(); !begun {
		return result, nil
	}
	n.background.Go(func() {
		if err := n.drain(n.alive, over, true); err != nil {
			if !errors.Is(err, context.Canceled) {
				n.log.Error("drain", "error", err)
			}
			n.departures.at(admin.LeaveFailed, admin.Errorf(admin.Refused, "it did not get to the end of its drain: %v", err))
			return
		}
		n.departures.at(admin.LeaveLeaving, nil)
		if err := n.cluster.Leave(n.alive); err != nil {
			n.log.Error("the node could not leave the cluster, and serves again", "error", err)
			if err := n.stay(); err != nil {
				n.log.Warn("back into service", "error", err)
			}
			n.departures.at(admin.LeaveFailed, err)
			return
		}
		n.departures.at(admin.LeaveLeft, nil)
		n.left.Store(true)
		n.failed.Do(func() { close(n.done) })
	})
	return result, nil
}

// leaving tells how far an attempt to leave is.
func (n *Node) leaving(ctx context.Context, r *admin.LeavingRequest) (*admin.Leaving, error) {
	if passed, err := n.ops.Peers.Elsewhere(ctx, r.Node); passed {
		return nil, err
	}
	d, ok := n.departures.of(r.ID)
	if !ok {
		return &admin.Leaving{State: admin.LeaveUnknown}, nil
	}
	return &admin.Leaving{State: d.state, Connections: int64(n.data.Engine.Stats().Connections), Why: d.why}, nil
}
