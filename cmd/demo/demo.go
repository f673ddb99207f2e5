// Package demo shows what Penstock does on one machine: it starts a node and
// real services behind it, sends real client traffic through, lets one
// endpoint die and come back, moves a split while connections run, and counts
// whether every connection was answered.
//
// Nothing on its screen is made up: the split is what the clients were
// answered, everything else is what the node says of itself.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"penstock/node/admin"
)

// ErrUnanswered is returned when a client's connection was not answered.
var ErrUnanswered = errors.New("not every connection was answered")

// Options say how the demo runs.
type Options struct {
	// For ends the demo after that time; 0: when the context ends.
	For time.Duration
	// Screen draws a live screen with terminal codes; otherwise plain lines.
	Screen bool
	Out    io.Writer
	// StartNode runs a node with a data folder and returns the address of
	// its admin RPC, its cluster and HTTP addresses, and what stops it.
	StartNode func(ctx context.Context, dataDir string) (Node, error)
}

// Node is a node that the demo has started.
type Node struct {
	Admin string // for admin.Dial
	HTTP  string
	Stop  func() error
}

// Run runs the demo. It returns nil when every connection was answered,
// ErrUnanswered when not, and any other error when it could not run.
func Run(ctx context.Context, o Options) error {
	if o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	dir, err := os.MkdirTemp("", "penstock-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	// 1. The services, and what they are called from outside.
	w, err := newWorld(dir)
	if err != nil {
		return err
	}
	defer w.close()
	// 2. The node, with its resources applied as a user would.
	node, err := o.StartNode(ctx, dir)
	if err != nil {
		return err
	}
	err = play(ctx, &o, w, node)
	// 5. Clients first, then the node, then the services: whoever is asked
	// last must still be there.
	return errors.Join(err, node.Stop())
}

func play(ctx context.Context, o *Options, w *world, node Node) error {
	c, err := admin.Dial(ctx, node.Admin)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := w.apply(ctx, c, w.resources(90)); err != nil {
		return err
	}
	// 3. Clients.
	t := newTraffic(w)
	stop := t.start()
	// 4. Events and the screen, until the time is over.
	v := &view{
		out: o.Out, screen: o.Screen, world: w, traffic: t, client: c, node: node,
		began: time.Now(), health: map[string]string{},
	}
	var wg sync.WaitGroup
	wg.Go(func() { w.script(ctx, c, v) })
	wg.Go(func() { v.watchEndpoints(ctx) })
	v.run(ctx)
	wg.Wait()
	stop()
	return v.summary()
}

// script is what happens while the traffic runs, over and over.
func (w *world) script(ctx context.Context, c *admin.Client, v *view) {
	const beat = 2 * time.Second
	steps := []struct {
		say string
		do  func() error
	}{
		{"endpoint flaky-b dies", w.flakyB.die},
		{"canary moves from 10 % to 50 % v2", func() error { return w.apply(ctx, c, w.route(50)) }},
		{"endpoint flaky-b comes back", w.flakyB.live},
		{"canary moves back to 10 % v2", func() error { return w.apply(ctx, c, w.route(90)) }},
		{"", nil},
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s := steps[i%len(steps)]
		if s.do == nil {
			continue
		}
		if err := s.do(); err != nil && ctx.Err() == nil {
			v.event(fmt.Sprintf("%s: %v", s.say, err))
		} else if err == nil {
			v.event(s.say)
		}
	}
}
