package ops

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
)

// topCluster sends the sums of all nodes' samples. Each round requests one sample
// from every node. It ends when all have answered, or reportTimeout after the
// interval.
func (t *top) topCluster(ctx context.Context, r *api.TopRequest, send func(*api.TopSample) error) error {
	for i := 0; r.Count == 0 || i < r.Count; i++ {
		parts := t.topRound(ctx, r)
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := rpc.LargeResponse(ctx); err != nil {
			return err
		}
		if err := send(sumTop(parts, r.Connections)); err != nil {
			return err
		}
	}
	return nil
}

// topPart is the answer of one node in a round.
type topPart struct {
	node   string
	sample *api.TopSample
	err    error // if not nil, sample is nil
}

// topRound requests one sample from each node. The result is sorted by name.
func (t *top) topRound(ctx context.Context, r *api.TopRequest) []topPart {
	ctx, cancel := context.WithTimeout(ctx, r.Interval+reportTimeout)
	defer cancel()
	one := &api.TopRequest{Interval: r.Interval, Count: 1, Connections: r.Connections}
	members := t.peers.cluster.Directory.Members()
	answers := make(chan topPart, len(members))
	for _, m := range members {
		go func() {
			p := topPart{node: m.Name}
			take := func(s *api.TopSample) error { p.sample = s; return nil }
			switch {
			case m.Self:
				p.err = t.topHere(ctx, one, take)
			case !m.Up():
				p.err = errors.New(cmp.Or(m.State, "unreachable"))
			default:
				p.err = t.topMember(ctx, m, one, take)
			}
			if p.err == nil && p.sample == nil {
				p.err = errors.New("sent no sample")
			}
			answers <- p
		}()
	}
	var parts []topPart
	for range members {
		parts = append(parts, <-answers)
	}
	slices.SortFunc(parts, func(a, b topPart) int { return strings.Compare(a.node, b.node) })
	return parts
}

// topMember streams the samples of another node while it is up.
func (t *top) topMember(ctx context.Context, m directory.Member, r *api.TopRequest, take func(*api.TopSample) error) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	go t.peers.whileUp(asking, m.ID, cancel)
	err := t.forwardTop(asking, m.ID, r, take)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("did not respond")
	case asking.Err() != nil && ctx.Err() == nil:
		return errors.New("is no longer reachable")
	}
	return err
}

// sumTop adds up the samples of the nodes. latest bounds the connections that it
// lists.
func sumTop(parts []topPart, latest int) *api.TopSample {
	sum := &api.TopSample{Flows: []api.Flow{}}
	flows, clusters := map[[2]string]int{}, map[string]int{}
	for _, p := range parts {
		node := api.NodeSample{Name: p.node}
		if p.err != nil {
			node.Error = p.err.Error()
			sum.Nodes = append(sum.Nodes, node)
			continue
		}
		s := p.sample
		node.Connections = s.Connections
		sum.Connections += s.Connections
		if s.At.After(sum.At) {
			sum.At = s.At
		}
		sum.Interval = max(sum.Interval, s.Interval)
		for _, f := range s.Flows {
			node.NewRate += f.NewRate
			node.InRate += f.InRate
			node.OutRate += f.OutRate
			at, ok := flows[[2]string{f.Listener, f.Service}]
			if !ok {
				at = len(sum.Flows)
				flows[[2]string{f.Listener, f.Service}] = at
				sum.Flows = append(sum.Flows, api.Flow{Listener: f.Listener, Service: f.Service})
			}
			addFlow(&sum.Flows[at], &f)
		}
		for _, c := range s.VirtualClusters {
			at, ok := clusters[c.Name]
			if !ok {
				at = len(sum.VirtualClusters)
				clusters[c.Name] = at
				sum.VirtualClusters = append(sum.VirtualClusters, api.ClusterRate{Name: c.Name})
			}
			to := &sum.VirtualClusters[at]
			to.Requests, to.Errors, to.Throttled = to.Requests+c.Requests, to.Errors+c.Errors, to.Throttled+c.Throttled
		}
		for _, c := range s.Latest {
			c.Node = p.node
			sum.Latest = append(sum.Latest, c)
		}
		sum.Nodes = append(sum.Nodes, node)
	}
	slices.SortFunc(sum.Flows, func(a, b api.Flow) int {
		return cmp.Or(strings.Compare(a.Listener, b.Listener), strings.Compare(a.Service, b.Service))
	})
	slices.SortFunc(sum.VirtualClusters, func(a, b api.ClusterRate) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(sum.Latest, func(a, b api.Connection) int { return cmp.Compare(a.Age, b.Age) })
	if len(sum.Latest) > latest {
		sum.Latest = sum.Latest[:latest]
	}
	return sum
}

// addFlow adds one node's part of a flow to the sum.
func addFlow(to, f *api.Flow) {
	to.Connections += f.Connections
	to.NewRate += f.NewRate
	to.InRate += f.InRate
	to.OutRate += f.OutRate
	to.Total += f.Total
	to.BytesIn += f.BytesIn
	to.BytesOut += f.BytesOut
}
