package resource

import "net/netip"

// TrafficSource selects clients. All fields that are given must match; of the
// values of one field any may. An empty one selects every client.
type TrafficSource struct {
	// Identities are SPIFFE IDs that the client has proven in its TLS handshake. *
	// stands for any characters within one segment of the path, or for any trust
	// domain; ** as the last segment for one or more segments.
	Identities []string `yaml:"identities"`
	// Services are names of the client's service: the tag service or
	// kuma.io/service of its source.
	Services []string `yaml:"services"`
	// Tags must all be among the tags of the client's source.
	Tags map[string]string `yaml:"tags"`
	// Networks contain the client's address; a plain address is a network of one.
	Networks []netip.Prefix `yaml:"networks"`
	// Principals are Kafka principals ("User:alice") that a broker has confirmed by
	// SASL; a prefix ends in *. User:ANONYMOUS is a client without SASL. In a
	// TrafficPermission only where every destination has kafka, in a RateLimit only
	// for requests, produce and fetch, which then are those of Kafka clients.
	Principals []string `yaml:"principals"`
	// ClientIDs are client ids of Kafka requests, which nobody proves; a prefix
	// ends in *. Up to 63 bytes. Only where Principals may be.
	ClientIDs []string `yaml:"clientIDs"`
}

// TrafficDestination selects what clients connect to. All fields that are given
// must match; of the values of one field any may. An empty one selects everything.
type TrafficDestination struct {
	// Services are the destinations of connections and requests, before routes
	// send them elsewhere.
	Services []string `yaml:"services"`
	// VirtualClusters are Kafka clusters as clients see them.
	VirtualClusters []string `yaml:"virtualClusters"`
	// Listeners are where connections arrive.
	Listeners []string `yaml:"listeners"`
}

// trafficRefs appends what a destination names.
func trafficRefs(refs []Ref, path string, services, clusters, listeners []string) []Ref {
	add := func(kind, field string, names []string) {
		for i, name := range names {
			refs = append(refs, Ref{Key: Key{kind, name}, Path: Item(path+"."+field, i), Optional: true})
		}
	}
	add("Service", "services", services)
	add("VirtualCluster", "virtualClusters", clusters)
	add("Listener", "listeners", listeners)
	return refs
}
