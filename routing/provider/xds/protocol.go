package xds

import (
	"fmt"
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// The types of resources.
const (
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	// wrapperType wraps a resource in the state of the world, to add its name.
	wrapperType = "type.googleapis.com/envoy.service.discovery.v3.Resource"
)

// request is what both variants of the protocol say to the control plane.
type request struct {
	typeURL string
	// nonce is that of the response answered. In the state of the world it is that
	// of the last response in every request.
	nonce string
	// fault refuses the response (NACK); "" accepts it (ACK).
	fault string
	// version and names are of the state of the world: the last one accepted, and
	// all resources subscribed to.
	version string
	names   []string
	// subscribe and unsubscribe are of the delta variant, as is known: the versions
	// of the resources that the client has, in the first request of a stream.
	subscribe, unsubscribe []string
	known                  map[string]string
}

// response is what both variants of the protocol say to the client.
type response struct {
	typeURL, version, nonce string
	resources               []resource
	removed                 []string // delta
	errors                  []*discoveryv3.ResourceError
}

// resource is one of a response.
type resource struct {
	name    string // "" in the state of the world: it is in the body
	version string
	body    *anypb.Any // nil: a heartbeat, the resource is unchanged
}

// subscription is the client's side of the protocol for one type of resources.
// It does no I/O: its methods return the requests to send.
type subscription struct {
	typeURL  string
	delta    bool
	wildcard bool     // all resources; names is empty
	names    []string // subscribed to, sorted

	// version is that of the last response accepted whole, and known has the
	// versions of all resources accepted. Both outlive the stream.
	version string
	known   map[string]string

	// opened is true after the first request of the stream; nonce is of its last
	// response.
	opened bool
	nonce  string
}

// restart prepares for a new stream, on which the control plane knows nothing of
// the last one.
func (s *subscription) restart() {
	s.opened, s.nonce = false, ""
}

// subscribe replaces the names, which must be sorted, and forgets the versions of
// resources not subscribed to any more. It returns the request that tells the
// control plane, and nil if it knows already. The first request of a stream is
// not sent without names: it would mean all resources.
func (s *subscription) subscribe(names []string) *request {
	before := s.names
	s.names = names
	for _, name := range without(before, names) {
		delete(s.known, name)
	}
	switch {
	case !s.opened && len(names) == 0 && !s.wildcard:
		return nil
	case !s.opened:
		return s.first()
	case slices.Equal(before, names):
		return nil
	case s.delta:
		return &request{typeURL: s.typeURL, subscribe: without(names, before), unsubscribe: without(before, names)}
	}
	return s.world()
}

// first returns the first request of a stream.
func (s *subscription) first() *request {
	s.opened = true
	if s.delta {
		return &request{typeURL: s.typeURL, subscribe: s.names, known: maps.Clone(s.known)}
	}
	r := s.world()
	for _, name := range s.names {
		// To some control planes a version says that the client has all of it.
		if _, ok := s.known[name]; !ok {
			r.version = ""
		}
	}
	return r
}

// world returns a request in the state of the world.
func (s *subscription) world() *request {
	return &request{typeURL: s.typeURL, version: s.version, names: s.names, nonce: s.nonce}
}

// answer returns the request that accepts a response, or refuses it for a fault.
func (s *subscription) answer(r *response, fault string) *request {
	s.nonce = r.nonce
	if fault == "" {
		s.version = r.version
	}
	if s.delta {
		return &request{typeURL: s.typeURL, nonce: r.nonce, fault: fault}
	}
	answer := s.world()
	answer.fault = fault
	return answer
}

// without returns the elements of a sorted list that another does not have.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		_, found := slices.BinarySearch(other, name)
		return found
	})
}

// check returns an error if a response has a name, version or nonce that is too
// long to be kept.
func (r *response) check() error {
	texts := []string{r.version, r.nonce}
	for i := range r.resources {
		texts = append(texts, r.resources[i].name, r.resources[i].version)
	}
	for _, text := range texts {
		if len(text) > maxName {
			return fmt.Errorf("it sent a name, version or nonce of %d bytes; the maximum is %d", len(text), maxName)
		}
	}
	return nil
}
