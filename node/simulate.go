package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"penstock/node/admin"
	"penstock/node/catalog"
	"penstock/routing"
)

// simulate tells what a change would do to traffic, by trying it on copies of
// what routing has here.
func (n *Node) simulate(ctx context.Context, r *admin.SimulateRequest) (*admin.SimulateResult, error) {
	if passed, err := n.elsewhere(ctx, r.Node); passed {
		return nil, err
	}
	if !r.Stale {
		if err := n.current(ctx); err != nil {
			return nil, err
		}
	}
	if err := admin.Large(ctx); err != nil {
		return nil, err
	}
	table := n.router.Table()
	play, err := n.playRequest(r, table)
	if err != nil {
		return nil, err
	}
	objects, err := n.catalog.Decode(r.Documents)
	if err != nil {
		return nil, err
	}
	changes, err := n.catalog.Preview(catalog.Change{Objects: objects, Prune: r.Prune})
	if err != nil {
		return nil, err
	}
	trial, err := table.Try(changes, n.rooms.resolver, time.Now())
	if err != nil {
		return nil, admin.Errorf(admin.Invalid, "%v", err)
	}
	result := &admin.SimulateResult{Node: n.cfg.Name, Words: trial.Words(nil)}
	switch {
	case result.Words == nil:
		result.Words = []string{}
	case len(n.others()) > 0:
		result.Words = trial.Words(n.heldElsewhere(ctx))
	}
	result.Words = append(result.Words, n.rooms.kafka.Words(changes)...)
	if play == nil {
		return result, nil
	}
	result.Simulation, err = trial.Play(ctx, play, time.Now())
	if errors.Is(err, routing.ErrPlayed) {
		err = admin.Errorf(admin.Invalid, "%v", err)
	}
	return result, err
}

// playRequest is what to play; nil: nothing.
func (n *Node) playRequest(r *admin.SimulateRequest, table *routing.Table) (*routing.PlayRequest, error) {
	if r.Connections == 0 {
		return nil, nil
	}
	play := &routing.PlayRequest{Connections: r.Connections, Destination: r.Destination, Source: r.Tags, Request: requestOf(r.Request)}
	if r.Connection == nil {
		return play, nil
	}
	in, err := inputOf(r.Connection)
	if err != nil {
		return nil, err
	}
	if n.rooms.kafka.Table().Has(in.Listener) {
		return nil, admin.Errorf(admin.Invalid, "listener %q is Kafka's: what it does is no matter of routes", in.Listener)
	}
	play.Input = &in
	return play, nil
}

// heldElsewhere asks the other nodes how many connections they have at which
// endpoint. One that does not answer in time is left out.
func (n *Node) heldElsewhere(ctx context.Context) routing.Held {
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	type place struct{ service, address string }
	held := map[place]int64{}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, m := range n.others() {
		asked.Go(func() {
			c, err := n.cluster.Client(ctx, m.ID)
			if err != nil {
				return
			}
			report, err := admin.Call[admin.Report](ctx, c, admin.MethodReport, admin.Empty{})
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, s := range report.Services {
				for _, e := range s.Endpoints {
					at := e.Address
					if e.Resolved != "" {
						at = e.Resolved
					}
					held[place{s.Name, at}] += e.Connections
				}
			}
		})
	}
	asked.Wait()
	return func(service, address string) int64 { return held[place{service, address}] }
}
