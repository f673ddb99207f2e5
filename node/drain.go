package node

import (
	"context"
	"errors"
	"time"

	"penstock/node/api"
	"penstock/node/lifecycle"
)

// drainRun is one drain, until it is finished or undone.
type drainRun struct {
	window       chan time.Duration // replaces the window
	done         chan struct{}      // closed when it has ended
	undo         context.CancelFunc
	undone       context.Context // ends when it is undone
	finalCallers int             // number of callers that end the node after it; guarded by drainMu
}

// drain takes the node out of service: the node reports not ready, goes on
// accepting for DrainWait so that load balancers notice, and then closes its
// connections over the window. Only one drain runs at a time. A later call sets
// a new window for the remaining connections and waits for the same drain: a
// signal to end the node must not wait for a one-hour window set by a command.
// drain returns early with the context's error. A final drain cannot be undone.
func (n *Node) drain(ctx context.Context, over time.Duration, final bool) error {
	n.drainMu.Lock()
	run := n.drainRun
	begin := run == nil
	if begin {
		run = &drainRun{window: make(chan time.Duration), done: make(chan struct{})}
		run.undone, run.undo = context.WithCancel(context.Background())
		n.drainRun = run
		n.state.Advance(lifecycle.Draining)
		n.handOverLeadership()
		n.data.Quiesce()
		n.xds.Drain()
		n.events.Drain()
	}
	if final {
		run.finalCallers++
	}
	n.drainMu.Unlock()
	if begin {
		defer close(run.done)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(run.undone, cancel)()
		return n.runDrain(ctx, run, over)
	}
	select {
	case run.window <- over:
	case <-run.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-run.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cancelFinalDrain takes back one final drain and puts the node back into service. It fails
// if another caller still wants to end the node.
func (n *Node) cancelFinalDrain() error {
	n.drainMu.Lock()
	n.drainRun.finalCallers--
	n.drainMu.Unlock()
	return n.undrain()
}

// undrain puts the node back into service. Connections that the drain has closed
// stay closed.
func (n *Node) undrain() error {
	n.drainMu.Lock()
	defer n.drainMu.Unlock()
	run := n.drainRun
	switch {
	case run == nil:
		return api.Errorf(api.Refused, "node %s is not draining", n.cfg.Name)
	case run.finalCallers > 0:
		return api.Errorf(api.Refused, "node %s is stopping", n.cfg.Name)
	}
	run.undo()
	<-run.done
	n.data.Resume()
	n.xds.Resume()
	n.drainRun = nil
	n.state.Resume()
	n.log.Info("back in service")
	return nil
}

// runDrain carries out the drain, restarting it when a new window arrives.
func (n *Node) runDrain(ctx context.Context, run *drainRun, over time.Duration) error {
	n.log.Info("draining", "connections", n.data.Engine.Stats().Connections, "wait", n.cfg.DrainWait, "over", over)
	wait := time.NewTimer(n.cfg.DrainWait)
	defer wait.Stop()
	for waiting := true; waiting; {
		select {
		case <-wait.C:
			waiting = false
		case over = <-run.window:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		// The last connections are closed at the window's end; the time that
		// closing takes comes on top.
		trying, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func(over time.Duration) { ended <- n.data.Engine.Drain(trying, over) }(over)
		select {
		case over = <-run.window:
			cancel()
			// Wait for it, so that windows take effect in order.
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				n.log.Warn("drain failed", "error", err)
			}
			n.log.Info("drain window changed", "connections", n.data.Engine.Stats().Connections, "over", over)
		case err := <-ended:
			cancel()
			if err == nil {
				n.state.Advance(lifecycle.Drained)
				n.log.Info("drained")
			}
			return err
		}
	}
}

// drainMethod begins a drain and returns the number of connections, or undoes a
// drain.
func (n *Node) drainMethod(ctx context.Context, r *api.DrainRequest) (*api.DrainResult, error) {
	if passed, err := n.ops.Peers.Forward(ctx, r.Node); passed {
		return nil, err
	}
	over := n.cfg.DrainTimeout
	if r.Over != nil {
		over = *r.Over
	}
	if over < 0 {
		return nil, api.Errorf(api.Invalid, "invalid drain window %v: want 0s or more", over)
	}
	result := &api.DrainResult{Node: n.cfg.Name, Connections: int64(n.data.Engine.Stats().Connections), Over: over}
	if r.Undo {
		return result, n.undrain()
	}
	n.background.Go(func() {
		if err := n.drain(n.ctx, over, false); err != nil && !errors.Is(err, context.Canceled) {
			n.log.Error("drain failed", "error", err)
		}
	})
	return result, nil
}
