// Package snapshot defines what the discovery server serves: resources of xDS v3,
// and the views that the proxies of each service have of them. Package translate
// makes them from the routing table, package stream sends them.
//
// Everything here is immutable and a pure function of the replicated state at one
// index, so that no two nodes contradict one another: what a single node knows,
// such as health or the addresses of host names, is no part of it.
package snapshot

import "penstock/routing/resource"

// Type is a type of xDS resources. The order is that in which an aggregated
// stream sends them: nothing refers to what the proxy does not know yet
// (the xDS protocol, "Eventual consistency considerations").
type Type uint8

// The types.
const (
	Cluster  Type = iota // CDS
	Endpoint             // EDS: ClusterLoadAssignment
	Listener             // LDS
	Route                // RDS: RouteConfiguration
	Secret               // SDS
	Types                // the number of types
)

const urlPrefix = "type.googleapis.com/envoy."

var urls = [Types]string{
	Cluster:  urlPrefix + "config.cluster.v3.Cluster",
	Endpoint: urlPrefix + "config.endpoint.v3.ClusterLoadAssignment",
	Listener: urlPrefix + "config.listener.v3.Listener",
	Route:    urlPrefix + "config.route.v3.RouteConfiguration",
	Secret:   urlPrefix + "extensions.transport_sockets.tls.v3.Secret",
}

var names = [Types]string{"cluster", "endpoint", "listener", "route", "secret"}

// URL returns the type URL.
func (t Type) URL() string { return urls[t] }

// String returns "cluster", "endpoint", "listener", "route" or "secret".
func (t Type) String() string { return names[t] }

// TypeOf undoes URL.
func TypeOf(url string) (t Type, ok bool) {
	for t = range Types {
		if urls[t] == url {
			return t, true
		}
	}
	return Types, false
}

// Resource is one encoded resource. It must not be changed.
type Resource struct {
	Name string
	// Version identifies the content: 16 hex digits of its SHA-256. The same
	// content has the same version on every node, after a restart too.
	Version string
	// Any is the encoded google.protobuf.Any.
	Any []byte
}

// Identity is who a proxy is, from its verified certificate.
type Identity struct {
	// SPIFFE is the SPIFFE ID, the certificate's only URI; "": none.
	SPIFFE string
	// CommonName is the subject's; it counts only without a SPIFFE ID.
	CommonName string
}

// String returns the SPIFFE ID, otherwise the common name.
func (id Identity) String() string {
	if id.SPIFFE != "" {
		return id.SPIFFE
	}
	return id.CommonName
}

// Snapshot is everything that the discovery server serves at one index.
type Snapshot interface {
	// Index is the index of the replicated store.
	Index() uint64
	// Identify returns the service whose proxies have an identity. ok is false if
	// no service or more than one names it; why says so.
	Identify(id Identity) (service string, ok bool, why string)
	// View returns what the proxies of a service may see; nil if the service does
	// not exist or has no discovery.
	View(service string) View
	// Changed returns the names of the resources of a type that may differ from an
	// earlier snapshot, sorted, gone ones included. ok is false if that is unknown:
	// any may.
	Changed(since Snapshot, t Type) (names []string, ok bool)
}

// View is what the proxies of one service may see.
type View interface {
	// Service returns the service's name.
	Service() string
	// Get returns a resource by name; nil if there is none or it may not be seen.
	// Some resources, such as the listeners of gRPC clients, are found here alone.
	Get(t Type, name string) *Resource
	// All returns what a subscription to all resources has, sorted by name.
	All(t Type) []*Resource
	// Announce says how a connected proxy becomes an endpoint of its service; nil:
	// it does not.
	Announce() *resource.Announce
}
