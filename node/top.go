package node

import (
	"context"
	"strings"
	"time"

	"penstock/node/admin"
	"penstock/node/dataplane"
)

// minInterval is the least time between two samples of top.
const minInterval = 100 * time.Millisecond

// top sends samples of this node, of another, or of the whole cluster.
func (n *Node) top(ctx context.Context, r *admin.TopRequest, send func(*admin.TopSample) error) error {
	if r.Interval < minInterval {
		return admin.Errorf(admin.Invalid, "an interval of %v: want %v or more", r.Interval, minInterval)
	}
	own := r.Node == "" || r.Node == n.cfg.Name || r.Node == n.id
	switch {
	case own && r.Cluster && n.cluster != nil:
		return n.topCluster(ctx, r, send)
	case own:
		return n.topHere(ctx, r, send)
	case n.cluster == nil:
		return admin.Errorf(admin.NotFound, "there is no node %q; this one is %q", r.Node, n.cfg.Name)
	}
	return n.topOf(ctx, r.Node, &admin.TopRequest{Interval: r.Interval, Count: r.Count, Connections: r.Connections}, send)
}

// topOf passes on the samples of another node.
func (n *Node) topOf(ctx context.Context, node string, r *admin.TopRequest, send func(*admin.TopSample) error) error {
	c, err := n.cluster.Client(ctx, node)
	if err != nil {
		return err
	}
	return admin.Stream(ctx, c, admin.MethodTop, r, send)
}

// topHere sends a sample of the flows after each interval.
func (n *Node) topHere(ctx context.Context, r *admin.TopRequest, send func(*admin.TopSample) error) error {
	ticker := time.NewTicker(r.Interval)
	defer ticker.Stop()
	last, at := n.sample(), time.Now()
	clusters := n.clusterTotals()
	for i := 0; r.Count == 0 || i < r.Count; i++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := admin.LargeResponse(ctx); err != nil {
			return err
		}
		next, now := n.sample(), time.Now()
		s := n.compare(last, next, now, now.Sub(at))
		totals := n.clusterTotals()
		s.VirtualClusters = clusterRates(clusters, totals, now.Sub(at))
		clusters = totals
		if r.Connections > 0 {
			s.Latest = n.latest(min(r.Connections, maxLatest))
		}
		if err := send(s); err != nil {
			return err
		}
		last, at = next, now
	}
	return nil
}

// maxLatest bounds the connections that a sample lists.
const maxLatest = 1000

// latest describes the latest connections.
func (n *Node) latest(limit int) []admin.Connection {
	var list []admin.Connection
	for _, c := range n.data.Engine.Connections(limit) {
		service, at, _ := strings.Cut(c.Label, " ")
		one := admin.Connection{
			ID: c.ID, Listener: c.Listener, SNI: c.ServerName, Service: service, Endpoint: at, Phase: c.Phase,
			BytesIn: c.BytesIn, BytesOut: c.BytesOut, Age: c.Age, Idle: c.Idle,
		}
		if c.Client.IsValid() {
			one.Client = c.Client.String()
		}
		list = append(list, one)
	}
	return list
}

// sample is each flow's counts now.
func (n *Node) sample() map[*dataplane.Flow]admin.Flow {
	m := map[*dataplane.Flow]admin.Flow{}
	for _, f := range n.data.Flows() {
		if f.Service() == "" {
			continue
		}
		c := f.Counts()
		m[f] = admin.Flow{
			Listener: f.Listener(), Service: f.Service(), Connections: c.Active,
			Total: c.Connections, BytesIn: c.BytesIn, BytesOut: c.BytesOut,
		}
	}
	return m
}

// compare makes the rates between two samples.
func (n *Node) compare(last, next map[*dataplane.Flow]admin.Flow, now time.Time, over time.Duration) *admin.TopSample {
	s := &admin.TopSample{Node: n.cfg.Name, At: now, Interval: over, Connections: int64(n.data.Engine.Stats().Connections), Flows: []admin.Flow{}}
	for _, f := range n.data.Flows() {
		one, ok := next[f]
		if !ok {
			continue
		}
		before := last[f]
		rate := func(a, b uint64) float64 { return float64(int64(b-a)) / over.Seconds() }
		one.NewRate = rate(before.Total, one.Total)
		one.InRate = rate(before.BytesIn, one.BytesIn)
		one.OutRate = rate(before.BytesOut, one.BytesOut)
		s.Flows = append(s.Flows, one)
	}
	return s
}
