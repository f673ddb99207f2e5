package admin

import "penstock/routing"

// The methods about what policies come to.
const (
	MethodEffective = "effective" // EffectiveRequest -> EffectiveResult
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
