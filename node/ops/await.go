package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
	"penstock/routing/gateway"
)

// awaitTimeout is the default for how long a change waits to take effect on the
// nodes.
const awaitTimeout = 10 * time.Second

// awaitIndex waits until an index is in force on the number of nodes that the sender
// wants, and collects their warnings about the listeners among the changes.
func (c *changes) awaitIndex(ctx context.Context, index uint64, wait api.Wait, changes []api.Change) (api.Reached, []api.Fault) {
	listeners := c.listenersOf(changes)
	reached, warnings := api.Reached{Nodes: 1}, c.listenWarnings(listeners)
	if wait.Nodes < 0 {
		return reached, warnings
	}
	others := c.peers.others()
	wanted := len(others) + 1
	if wait.Nodes > 0 {
		wanted = wait.Nodes
	}
	if wanted <= 1 || index == 0 {
		return reached, warnings
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(wait.For, awaitTimeout))
	defer cancel()
	answers := c.sendAwait(ctx, others, &api.AwaitRequest{Index: index, Listeners: listeners})
	for range others {
		if reached.Nodes >= wanted {
			break
		}
		a := <-answers
		if a.err != nil {
			switch {
			case errors.Is(a.err, context.DeadlineExceeded):
				a.err = errors.New("has not applied it yet")
			case errors.Is(a.err, context.Canceled) && ctx.Err() == nil:
				a.err = errors.New("is no longer reachable")
			}
			reached.Late = append(reached.Late, api.Late{Node: a.node, Why: a.err.Error()})
			continue
		}
		reached.Nodes++
		warnings = append(warnings, a.result.Warnings...)
	}
	if reached.Nodes >= wanted {
		reached.Late = nil
	} else if wanted > len(others)+1 {
		reached.Late = append(reached.Late, api.Late{Why: fmt.Sprintf("%d nodes are up, %d were asked for", len(others)+1, wanted)})
	}
	return reached, warnings
}

// awaitAnswer is the answer of one node to an AwaitRequest.
type awaitAnswer struct {
	node   string
	result *api.AwaitResult
	err    error
}

// sendAwait sends r to nodes, which answer when the index is in force there. It waits
// for a node that hangs or is cut off only while gossip reports it up; then the
// answer is context.Canceled.
func (c *changes) sendAwait(ctx context.Context, nodes []directory.Member, r *api.AwaitRequest) <-chan awaitAnswer {
	answers := make(chan awaitAnswer, len(nodes))
	for _, m := range nodes {
		go func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go c.peers.whileUp(ctx, m.ID, cancel)
			a := awaitAnswer{node: m.Name}
			var client *rpc.Client
			if client, a.err = c.peers.cluster.Directory.Client(ctx, m.ID); a.err == nil {
				a.result, a.err = rpc.Call[api.AwaitResult](ctx, client, api.MethodAwait, r)
			}
			answers <- a
		}()
	}
	return answers
}

// listenersOf returns the names of the listeners among changes, and of those that
// the Gateways among them define. The changes are already in force on this node.
func (c *changes) listenersOf(changes []api.Change) (names []string) {
	gateways := map[string]bool{}
	for _, ch := range changes {
		switch {
		case ch.Action == api.Deleted:
		case ch.Kind == "Listener":
			names = append(names, ch.Name)
		case ch.Kind == gateway.KindGateway:
			gateways[ch.Name] = true
		}
	}
	if len(gateways) == 0 {
		return names
	}
	for _, l := range c.data.Engine.Listeners() {
		if of, _, ok := strings.Cut(l.Name, "/"); ok && gateways[of] {
			names = append(names, l.Name)
		}
	}
	return names
}

// await returns when an index is in force on this node.
func (c *changes) await(ctx context.Context, r *api.AwaitRequest) (*api.AwaitResult, error) {
	if err := c.catalog.Await(ctx, r.Index); err != nil {
		return nil, err
	}
	return &api.AwaitResult{Index: r.Index, Warnings: c.listenWarnings(r.Listeners)}, nil
}

// listenWarnings returns a warning for each of the listeners that cannot listen on this
// node.
func (c *changes) listenWarnings(listeners []string) (warnings []api.Fault) {
	if len(listeners) == 0 {
		return nil
	}
	for _, l := range c.data.Engine.Listeners() {
		if l.Err == nil || !slices.Contains(listeners, l.Name) {
			continue
		}
		f := api.Fault{
			Key: "Listener/" + l.Name, Path: "spec.address",
			Message: "cannot listen on node " + c.peers.self.Name + " (retrying): " + l.Err.Error(),
		}
		if of, at, ok := strings.Cut(l.Name, "/"); ok { // defined by a Gateway
			f.Key, f.Path, f.Value = gateway.KindGateway+"/"+of, "spec.listeners", at
		}
		warnings = append(warnings, f)
	}
	return warnings
}
