package ops

import (
	"context"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/dataplane"
	"penstock/node/rpc"
)

// minInterval is the shortest interval between two samples of top.
const minInterval = 100 * time.Millisecond

// top has the method that streams samples of the current traffic.
type top struct {
	peers *Peers
	data  *dataplane.Dataplane
}

// top sends samples of this node, of another, or of the whole cluster.
func (t *top) top(ctx context.Context, r *api.TopRequest, send func(*api.TopSample) error) error {
	if r.Interval < minInterval {
		return api.Errorf(api.Invalid, "invalid interval %v: want %v or more", r.Interval, minInterval)
	}
	own := r.Node == "" || r.Node == t.peers.self.Name || r.Node == t.peers.self.ID
	switch {
	case own && r.Cluster && t.peers.cluster != nil:
		return t.topCluster(ctx, r, send)
	case own:
		return t.topHere(ctx, r, send)
	case t.peers.cluster == nil:
		return api.Errorf(api.NotFound, "there is no node %q; this one is %q", r.Node, t.peers.self.Name)
	}
	return t.forwardTop(ctx, r.Node, &api.TopRequest{Interval: r.Interval, Count: r.Count, Connections: r.Connections}, send)
}

// forwardTop forwards the samples of another node.
func (t *top) forwardTop(ctx context.Context, node string, r *api.TopRequest, send func(*api.TopSample) error) error {
	c, err := t.peers.cluster.Directory.Client(ctx, node)
	if err != nil {
		return err
	}
	return rpc.Stream(ctx, c, api.MethodTop, r, send)
}

// topHere sends a sample of the flows after each interval.
func (t *top) topHere(ctx context.Context, r *api.TopRequest, send func(*api.TopSample) error) error {
	ticker := time.NewTicker(r.Interval)
	defer ticker.Stop()
	last, at := t.sample(), time.Now()
	clusters := clusterTotals(t.data.Kafka)
	for i := 0; r.Count == 0 || i < r.Count; i++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := rpc.LargeResponse(ctx); err != nil {
			return err
		}
		next, now := t.sample(), time.Now()
		s := t.compare(last, next, now, now.Sub(at))
		totals := clusterTotals(t.data.Kafka)
		s.VirtualClusters = clusterRates(clusters, totals, now.Sub(at))
		clusters = totals
		if r.Connections > 0 {
			s.Latest = t.latest(min(r.Connections, maxLatest))
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

// latest describes the newest connections, at most limit.
func (t *top) latest(limit int) []api.Connection {
	var list []api.Connection
	for _, c := range t.data.Engine.Connections(limit) {
		service, at, _ := strings.Cut(c.Label, " ")
		one := api.Connection{
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

// sample returns the current counters of each flow with a service.
func (t *top) sample() map[*dataplane.Flow]api.Flow {
	m := map[*dataplane.Flow]api.Flow{}
	for _, f := range t.data.Flows() {
		if f.Service() == "" {
			continue
		}
		c := f.Counts()
		m[f] = api.Flow{
			Listener: f.Listener(), Service: f.Service(), Connections: c.Active,
			Total: c.Connections, BytesIn: c.BytesIn, BytesOut: c.BytesOut,
		}
	}
	return m
}

// compare computes the rates between two samples.
func (t *top) compare(last, next map[*dataplane.Flow]api.Flow, now time.Time, over time.Duration) *api.TopSample {
	s := &api.TopSample{
		Node: t.peers.self.Name, At: now, Interval: over,
		Connections: int64(t.data.Engine.Stats().Connections), Flows: []api.Flow{},
	}
	for _, f := range t.data.Flows() {
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
