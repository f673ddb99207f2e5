package node

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"penstock/node/api"
)

// leaveAttempts tracks the attempts of this node to leave its cluster, one at a
// time. It keeps the last one until the process ends: the outcome is known only
// after the drain, and the command polls for it.
type leaveAttempts struct {
	mu   sync.Mutex
	last leaveAttempt
}

// leaveAttempt is one attempt.
type leaveAttempt struct {
	id      string // random; "": no attempt yet
	state   string // one of the constants api.Leave...
	failure *api.Error
}

// begin begins an attempt, or returns the ID of the one that is under way.
func (d *leaveAttempts) begin() (id string, begun bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.id != "" && (d.last.state == api.LeaveDraining || d.last.state == api.LeaveLeaving) {
		return d.last.id, false
	}
	d.last = leaveAttempt{id: rand.Text(), state: api.LeaveDraining}
	return d.last.id, true
}

// setState records the state of the attempt, and the error with which it failed.
func (d *leaveAttempts) setState(state string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last.state, d.last.failure = state, nil
	if err != nil && !errors.As(err, &d.last.failure) {
		d.last.failure = api.Errorf(api.Internal, "%v", err)
	}
}

// get returns the attempt with an ID, if it is the last one.
func (d *leaveAttempts) get(id string) (leaveAttempt, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last, id != "" && d.last.id == id
}

// leave removes the requested node from the cluster and ends it. It returns once
// the drain has begun; the method leaving reports the outcome.
func (n *Node) leave(ctx context.Context, r *api.LeaveRequest) (*api.LeaveResult, error) {
	if passed, err := n.ops.Peers.Forward(ctx, r.Node); passed {
		return nil, err
	}
	if n.cluster == nil {
		return nil, api.Errorf(api.Refused, "this node is not in a cluster: stop it with SIGTERM")
	}
	over := n.cfg.DrainTimeout
	if r.Over != nil {
		over = max(0, *r.Over)
	}
	if err := n.cluster.MayLeave(); err != nil {
		return nil, err // checked before the drain, which would be in vain
	}
	result := &api.LeaveResult{Node: n.cfg.Name, Connections: int64(n.data.Engine.Stats().Connections)}
	var begun bool
	if result.ID, begun = n.leaveAttempts.begin(); !begun {
		return result, nil
	}
	if err := n.audit.Now(ctx); err != nil {
		n.leaveAttempts.setState(api.LeaveFailed, err)
		return nil, err
	}
	n.background.Go(func() {
		if err := n.drain(n.ctx, over, true); err != nil {
			if !errors.Is(err, context.Canceled) {
				n.log.Error("drain failed", "error", err)
			}
			n.leaveAttempts.setState(api.LeaveFailed, api.Errorf(api.Refused, "its drain did not complete: %v", err))
			return
		}
		n.leaveAttempts.setState(api.LeaveLeaving, nil)
		n.flushAudit()
		if err := n.cluster.Leave(n.ctx); err != nil {
			n.log.Error("cannot leave the cluster; returning to service", "error", err)
			if err := n.cancelFinalDrain(); err != nil {
				n.log.Warn("cannot return to service", "error", err)
			}
			n.leaveAttempts.setState(api.LeaveFailed, err)
			return
		}
		n.leaveAttempts.setState(api.LeaveLeft, nil)
		n.left.Store(true)
		n.failOnce.Do(func() { close(n.done) })
	})
	return result, nil
}

// leaveProgress reports the state of an attempt to leave.
func (n *Node) leaveProgress(ctx context.Context, r *api.LeavingRequest) (*api.Leaving, error) {
	if passed, err := n.ops.Peers.Forward(ctx, r.Node); passed {
		return nil, err
	}
	d, ok := n.leaveAttempts.get(r.ID)
	if !ok {
		return &api.Leaving{State: api.LeaveUnknown}, nil
	}
	return &api.Leaving{State: d.state, Connections: int64(n.data.Engine.Stats().Connections), Why: d.failure}, nil
}

// flushAudit records what this node has done and not recorded yet, since nobody else
// knows of it. It waits for a leader no longer than leaving itself may take.
func (n *Node) flushAudit() {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.DrainTimeout)
	defer cancel()
	n.audit.Flush(ctx)
}
