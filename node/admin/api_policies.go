package admin

import "penstock/routing"

// The methods about what policies come to.
const (
	MethodEffective = "effective" // EffectiveRequest -> EffectiveResult
	MethodSimulate  = "simulate"  // SimulateRequest -> SimulateResult
)

// EffectiveRequest asks which policies decide for which sources. Where there
// are many, an answer has a part of them; EffectiveResult.More says how to ask
// for the next.
type EffectiveRequest struct {
	// Destination is a service; "": all that policies are for.
	Destination string `json:"destination,omitempty"`
	// All are the services that no policy is for as well.
	All bool `json:"all,omitempty"`
	// After is EffectiveResult.More of the answer before.
	After routing.EffectiveCursor `json:"after,omitzero"`
	// Limit bounds the sources and policies of the answer; 0 and whatever is
	// above MaxEffective: MaxEffective.
	Limit int  `json:"limit,omitempty"`
	Stale bool `json:"stale,omitempty"` // GetRequest.Stale's
}

// MaxEffective bounds the sources and policies that one answer lists.
const MaxEffective = 10_000

// EffectiveResult is what acts on the node asked, by destination.
type EffectiveResult struct {
	Node         string              `json:"node"`
	Destinations []routing.Effective `json:"destinations"`
	// More is where the next answer begins; nil: that was all.
	More *routing.EffectiveCursor `json:"more,omitempty"`
}

// SimulateRequest asks what a change would do to traffic. Nothing is changed.
type SimulateRequest struct {
	Node string `json:"node,omitempty"` // name or ID; "": the one asked
	// Documents and Prune are ApplyRequest's.
	Documents [][]byte          `json:"documents"`
	Prune     map[string]string `json:"prune,omitempty"`
	Stale     bool              `json:"stale,omitempty"` // GetRequest.Stale's
	// Connections is how many to play of each kind, at most routing.MaxPlayed;
	// 0: none, the answer has words alone.
	Connections int `json:"connections,omitempty"`
	// Connection is what to play; nil: connections to Destination.
	Connection *ExplainRequest `json:"connection,omitempty"`
	// Destination is a service; "": whatever the change may lead elsewhere.
	Destination string `json:"destination,omitempty"`
	// Tags are the source of connections to a destination; nil: one play for
	// each source that policies tell apart.
	Tags map[string]string `json:"tags,omitempty"`
	// Request is what each connection asks for; nil: connections are played,
	// and of destinations requests for each of their rules.
	Request *HTTPRequest `json:"request,omitempty"`
}

// SimulateResult is what the change would do, on the node asked.
type SimulateResult struct {
	Node string `json:"node"`
	// Words has a sentence for each change; established connections are those
	// of all nodes that answered.
	Words []string `json:"words"`
	// Counted says which nodes these are; nil: there is one, or no words.
	Counted *Counted `json:"counted,omitempty"`
	// Simulation is what was played; nil: nothing.
	Simulation *routing.Simulation `json:"simulation,omitempty"`
}

// Counted says whose connections were counted.
type Counted struct {
	Nodes   int      `json:"nodes"`             // that answered, the one asked included
	Of      int      `json:"of"`                // members of the cluster
	Missing []string `json:"missing,omitempty"` // names of those that did not answer in time
}
