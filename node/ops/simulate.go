package ops

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
	"penstock/routing"
)

// simulate computes the effect of a change on traffic, on a copy of this node's
// routing table.
func (d *decisions) simulate(ctx context.Context, r *api.SimulateRequest) (*api.SimulateResult, error) {
	if passed, err := d.peers.Forward(ctx, r.Node); passed {
		return nil, err
	}
	if !r.Stale {
		if err := d.peers.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	table := d.data.Router.Table()
	simulation, err := d.simulateRequest(r, table)
	if err != nil {
		return nil, err
	}
	objects, err := d.catalog.Decode(r.Documents)
	if err != nil {
		return nil, err
	}
	changes, warnings, err := d.catalog.Preview(catalog.Change{Objects: objects, Prune: r.Prune})
	if err != nil {
		return nil, err
	}
	whatIf, err := table.WhatIf(changes, d.data.Resolver, time.Now())
	if err != nil {
		return nil, api.Errorf(api.Invalid, "%v", err)
	}
	result := &api.SimulateResult{Node: d.peers.self.Name, Warnings: warnings}
	summarize := func(h *connectionCounts) []string {
		return append(whatIf.DiffSummary(h.endpoint), d.data.Kafka.DiffSummary(changes, h.cluster)...)
	}
	if result.Words = summarize(new(connectionCounts)); len(result.Words) > 0 {
		if h := d.countElsewhere(ctx); h.counted != nil {
			result.Words, result.Counted = summarize(h), h.counted
		}
	} else {
		result.Words = []string{}
	}
	d.summarizeRevoked(ctx, changes, table, whatIf, result)
	if simulation == nil {
		return result, nil
	}
	result.Simulation, err = whatIf.Simulate(ctx, simulation, time.Now())
	if errors.Is(err, routing.ErrConnectionCount) {
		err = api.Errorf(api.Invalid, "%v", err)
	}
	return result, err
}

// simulateRequest returns the connections to simulate; nil: none.
func (d *decisions) simulateRequest(r *api.SimulateRequest, table *routing.Table) (*routing.SimulateRequest, error) {
	if r.Connections == 0 {
		return nil, nil
	}
	simulation := &routing.SimulateRequest{
		Connections: r.Connections, Destination: r.Destination, Source: r.Tags, Request: requestOf(r.Request),
	}
	if r.Connection == nil {
		return simulation, nil
	}
	in, err := inputOf(r.Connection)
	if err != nil {
		return nil, err
	}
	if d.data.Kafka.Table().HasListener(in.Listener) {
		return nil, api.Errorf(api.Invalid, "listener %q serves Kafka, which has no routes to simulate", in.Listener)
	}
	if l, ok := table.Listener(in.Listener); ok {
		if err := checkUser(r.Connection, l); err != nil {
			return nil, err
		}
	}
	simulation.Input = &in
	return simulation, nil
}

// connectionCounts counts the connections of the other nodes that answered.
type connectionCounts struct {
	endpoints map[endpointKey]int64
	clusters  map[string]int64 // by virtual cluster
	counted   *api.Counted     // nil: there are no other nodes
}

// endpointKey identifies an endpoint of a service.
type endpointKey struct{ service, address string }

func (h *connectionCounts) endpoint(service, address string) int64 {
	return h.endpoints[endpointKey{service, address}]
}
func (h *connectionCounts) cluster(name string) int64 { return h.clusters[name] }

// countElsewhere collects the connection counts of the other nodes. It lists those
// that do not answer within reportTimeout as missing.
func (d *decisions) countElsewhere(ctx context.Context) *connectionCounts {
	h := &connectionCounts{endpoints: map[endpointKey]int64{}, clusters: map[string]int64{}}
	if d.peers.cluster == nil {
		return h
	}
	members := slices.DeleteFunc(d.peers.cluster.Directory.Members(), func(m directory.Member) bool { return m.Self })
	if len(members) == 0 {
		return h
	}
	h.counted = &api.Counted{Nodes: 1, Of: len(members) + 1}
	for i, r := range d.status.reports(ctx, members, false) {
		if r == nil {
			h.counted.Missing = append(h.counted.Missing, members[i].Name)
			continue
		}
		h.counted.Nodes++
		h.add(r)
	}
	return h
}

// add adds the counts of another node's report.
func (h *connectionCounts) add(r *api.Report) {
	for i := range r.Services {
		service := &r.Services[i]
		for j := range service.Endpoints {
			e := &service.Endpoints[j]
			h.endpoints[endpointKey{service.Name, cmp.Or(e.Resolved, e.Address)}] += e.Connections
		}
	}
	for i := range r.VirtualClusters {
		h.clusters[r.VirtualClusters[i].Name] += r.VirtualClusters[i].Connections
	}
}
