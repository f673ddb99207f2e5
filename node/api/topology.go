package api

import "penstock/routing"

// MethodTopology describes services and the routes between them, from the table
// in force on a node: TopologyRequest -> TopologyResult.
const MethodTopology = "topology"

// TopologyRequest asks for the topology.
type TopologyRequest struct {
	// Service restricts it to one service and what leads to it and from it.
	Service string `json:"service,omitempty"`
	// ServicesOnly leaves out listeners and edges.
	ServicesOnly bool `json:"servicesOnly,omitempty"`
	Stale        bool `json:"stale,omitempty"` // as in GetRequest
}

// MaxTopology bounds the listeners, services and edges of one response.
const MaxTopology = 100_000

// TopologyResult is the topology as a node has it.
type TopologyResult struct {
	Node string `json:"node"`
	routing.Topology
}
