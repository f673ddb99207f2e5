package node

import (
	"context"
	"errors"
	"time"

	"penstock/node/admin"
)

// drain takes the node out of service: it is not ready from now on, goes on
// accepting for DrainWait so that balancers see that, and then closes its
// connections over the window. It is begun once; whoever comes later sets
// another window for what is left, and waits for the same end: a signal to end
// the node must not wait for an hour that a command has asked for. It returns
// early with the context's error.
func (n *Node) drain(ctx context.Context, over time.Duration) error {
	if n.state.advance(draining) {
		defer close(n.drainDone)
		return n.runDrain(ctx, over)
	}
	select {
	case n.drainOver <- over:
	case <-n.drainDone:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-n.drainDone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runDrain is the drain of whoever began it.
func (n *Node) runDrain(ctx context.Context, over time.Duration) error {
	n.log.Info("draining", "connections", n.engine.Stats().Connections, "wait", n.cfg.DrainWait, "over", over)
	wait := time.NewTimer(n.cfg.DrainWait)
	defer wait.Stop()
	for waiting := true; waiting; {
		select {
		case <-wait.C:
			waiting = false
		case over = <-n.drainOver:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		// The last connections are closed at the window's end; what the close
		// itself takes comes on top of it.
		trying, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func(over time.Duration) { ended <- n.engine.Drain(trying, over) }(over)
		select {
		case over = <-n.drainOver:
			cancel()
			// Waited for, so that the windows take effect in their order.
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				n.log.Warn("drain", "error", err)
			}
			n.log.Info("draining by another window", "connections", n.engine.Stats().Connections, "over", over)
		case err := <-ended:
			cancel()
			if err == nil {
				n.state.advance(drained)
				n.log.Info("drained")
			}
			return err
		}
	}
}

// drainMethod begins a drain and tells how many connections there are.
func (n *Node) drainMethod(_ context.Context, r *admin.DrainRequest) (*admin.DrainResult, error) {
	if r.Node != "" && r.Node != n.cfg.Name && r.Node != n.id {
		return nil, admin.Errorf(admin.NotFound, "there is no node %q; this one is %q", r.Node, n.cfg.Name)
	}
	over := n.cfg.DrainTimeout
	if r.Over != nil {
		over = *r.Over
	}
	if over < 0 {
		return nil, admin.Errorf(admin.Invalid, "a window of %v: want 0s or more", over)
	}
	result := &admin.DrainResult{Node: n.cfg.Name, Connections: int64(n.engine.Stats().Connections), Over: over}
	n.background.Go(func() {
		if err := n.drain(n.alive, over); err != nil && !errors.Is(err, context.Canceled) {
			n.log.Error("drain", "error", err)
		}
	})
	return result, nil
}
