// Package provider watches outside places for the endpoints of services: DNS,
// files, HTTP, Kubernetes, Consul, etcd, another control plane. A Source, one
// package below for each type, knows one such place and its protocol. A Runner
// does what is the same for all: it restarts a source that fails, keeps the
// last answer, holds back an answer that would remove most of a service, and
// passes on what changed, at a bounded rate.
//
//	r := provider.NewRunner(provider.Config{Name: "consul", Source: src, Apply: apply})
//	r.Want([]provider.Query{{Service: "web"}})
//	err := r.Run(ctx)
//
// Sources never touch a routing table, and deciding about a connection never
// touches a source.
package provider

import (
	"context"
	"maps"
)

// ZoneTag is the tag in which sources report the zone of an endpoint.
const ZoneTag = "zone"

// Query names the endpoints that a service wants from a provider. It is
// comparable, and means what its provider says it means: the name of a Consul
// service, namespace/name of a Kubernetes Service, a host name of DNS.
type Query struct {
	Service string
	// Port is the name or number of the port, for providers whose services have
	// several; "" if the provider knows.
	Port string
}

// State is whether an endpoint takes new connections.
type State uint8

const (
	// Ready endpoints take connections.
	Ready State = iota
	// NotReady endpoints get no new connections until they are ready. Established
	// connections stay.
	NotReady
	// Terminating endpoints get no new connections and are about to leave.
	Terminating
)

// String returns "ready", "notReady" or "terminating".
func (s State) String() string {
	switch s {
	case NotReady:
		return "notReady"
	case Terminating:
		return "terminating"
	default:
		return "ready"
	}
}

// ParseState undoes String; "" is Ready.
func ParseState(s string) (state State, ok bool) {
	for _, state = range []State{Ready, NotReady, Terminating} {
		if s == state.String() {
			return state, true
		}
	}
	return Ready, s == ""
}

// Endpoint is one address that a provider reports for a query.
type Endpoint struct {
	// Address is IP:port, [v6]:port or host:port.
	Address string
	// Weight is the share among the endpoints, 0 to 1,000,000.
	Weight int
	// Priority is 0 to MaxPriority; a higher number gets what the lower ones cannot take.
	Priority int
	// Tags select subsets of the service. They must not be changed once reported.
	Tags  map[string]string
	State State
}

// Equal reports whether two endpoints are the same in everything.
func (e *Endpoint) Equal(other *Endpoint) bool {
	return e.Address == other.Address && e.Weight == other.Weight && e.Priority == other.Priority &&
		e.State == other.State && maps.Equal(e.Tags, other.Tags)
}

// A Source reads endpoints from one outside place.
type Source interface {
	// Run reports the endpoints of all wanted queries to sink, and again whenever
	// they change, until ctx ends or the source cannot go on by itself. It is run
	// again after a pause then. It bounds what it holds of an answer, and it must
	// not report an answer of which it read a part only.
	Run(ctx context.Context, sink Sink) error
}

// Sink receives what a source finds. Its methods are safe for concurrent use.
type Sink interface {
	// Wanted returns the queries to answer, in a stable order, and a channel that
	// is closed when they are replaced. Neither may be changed by the source. All of
	// the new queries must be answered by Report or Failed then, also those that
	// were there before: one may have left and come back in between.
	Wanted() (queries []Query, replaced <-chan struct{})
	// Report gives the complete answer to a query, which ends its failure. An
	// answer without endpoints says that the place knows the service, or for sure
	// that there is none. The endpoints need not be sorted; addresses may occur
	// several times. The sink keeps the slice and sorts it, so that the source must
	// not use it again.
	Report(q Query, endpoints []Endpoint)
	// Confirm says that the last answer reported is the current one still, as when a
	// server answers that nothing has changed. It costs less than another Report. It
	// does not end a failure: Report has to.
	Confirm(q Query)
	// Warn says what is wrong beside the answer that was just reported,
	// such as one of several servers that does not answer. The next Report ends it.
	Warn(q Query, err error)
	// Failed reports that a query cannot be answered now: its last answer is kept,
	// marked as stale. It may be repeated.
	Failed(q Query, err error)
	// FailedAll is Failed for all queries, as when the place cannot be reached.
	FailedAll(err error)
}
