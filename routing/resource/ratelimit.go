package resource

import (
	"reflect"
	"slices"
)

// KindRateLimit is the kind of RateLimit.
const KindRateLimit = "RateLimit"

// RateLimit bounds connections, requests and bytes, on each node or over the whole
// cluster. Each key of By has a budget of its own; all limits that match a connection
// apply to it.
type RateLimit struct {
	// From selects clients; any entry may match. Default everyone.
	From []TrafficSource `yaml:"from"`
	// To selects destinations; any entry may match. Default everything.
	To []TrafficDestination `yaml:"to"`
	// By says what has a budget of its own: all (everything selected shares one),
	// network, identity, service (of the client), tag, listener, destination (the
	// service or virtual cluster), and for Kafka's requests principal (as the broker
	// has confirmed it), clientID or topic. Clients without such a key, which have no
	// identity or tag, share one budget. Default all.
	By string `yaml:"by" default:"all" oneof:"all network identity service tag listener destination principal clientID topic"`
	// Tag is the tag of the client's source that by: tag uses. Required there.
	Tag string `yaml:"tag"`
	// PrefixIPv4 is the length of the networks that by: network uses for IPv4.
	// Default 32, 1..32.
	PrefixIPv4 int `yaml:"prefixIPv4" default:"32" range:"1..32"`
	// PrefixIPv6 is the same for IPv6. Default 64, 1..128.
	PrefixIPv6 int `yaml:"prefixIPv6" default:"64" range:"1..128"`
	// MaxKeys bounds the budgets that are remembered on a node, at about 200 bytes
	// each. Over it, a key without a budget shares one with other such keys. Default
	// 100000, 1..10000000.
	MaxKeys int `yaml:"maxKeys" default:"100000" range:"1..10000000"`
	// Scope says whose a budget is: of each node (node), or of all nodes of the cluster
	// together (cluster). Default node.
	Scope string `yaml:"scope" default:"node" oneof:"node cluster"`
	// Floor is for scope: cluster what each node may have that has had no contact to a
	// leader for 6 s, in percent of an equal share of the budget, 0..100. Default 100.
	Floor *int `yaml:"floor" range:"0..100"`
	// Connections bounds the rate of new connections.
	Connections *Rate `yaml:"connections"`
	// Concurrent bounds the connections at once, 1..1000000000. Left out: no bound.
	Concurrent *int `yaml:"concurrent" range:"1..1000000000"`
	// Requests bounds the rate of HTTP requests, those that are routed one by one:
	// the listener can read them, and the listener and the service speak HTTP. It
	// bounds those of Kafka clients too.
	Requests *Rate `yaml:"requests"`
	// BytesIn bounds the rate of bytes from clients.
	BytesIn *ByteRate `yaml:"bytesIn"`
	// BytesOut bounds the rate of bytes to clients.
	BytesOut *ByteRate `yaml:"bytesOut"`
	// Produce bounds the rate of bytes in Produce requests of Kafka clients.
	Produce *ByteRate `yaml:"produce"`
	// Fetch bounds the rate of bytes in Fetch and ShareFetch responses to Kafka clients.
	Fetch *ByteRate `yaml:"fetch"`
	// Over is for connections and requests over their rate: refuse, queue (they wait
	// for their turn, within Queue) or slow (they wait within the time of Queue,
	// however many they are). Connections over Concurrent are refused, bytes are
	// paced and Kafka's requests slowed down, whatever Over says. Default refuse.
	Over string `yaml:"over" default:"refuse" oneof:"refuse queue slow"`
	// Queue bounds those that wait.
	Queue RateQueue `yaml:"queue"`
}

// ScopeCluster is the Scope of limits that hold over all nodes together.
const ScopeCluster = "cluster"

// FloorPercent returns Floor, or its default.
func (r *RateLimit) FloorPercent() int {
	if r.Floor == nil {
		return 100
	}
	return *r.Floor
}

// KafkaOnly reports whether the limit is about Kafka's requests alone, as what it
// selects or counts by is known of nothing else.
func (r *RateLimit) KafkaOnly() bool {
	return r.By == "principal" || r.By == "clientID" || r.By == "topic" ||
		slices.ContainsFunc(r.From, func(s TrafficSource) bool { return len(s.Principals)+len(s.ClientIDs) > 0 })
}

// BoundsConnections reports whether the limit bounds what connections have, those of
// Kafka clients included: their number, rate or bytes.
func (r *RateLimit) BoundsConnections() bool {
	return r.Connections != nil || r.Concurrent != nil || r.BytesIn != nil || r.BytesOut != nil
}

// Rate is a number per interval, with a burst: a token bucket.
type Rate struct {
	// Rate is the number in each interval, 1..1000000000; at most 10,000,000 for
	// each second. Required.
	Rate int `yaml:"rate" range:"1..1000000000"`
	// Per is the interval. Default 1s, 1ms to 24h.
	Per Duration `yaml:"per" default:"1s" range:"1ms..24h"`
	// Burst is how many may come at once, 1..1000000000. Default Rate.
	Burst int `yaml:"burst" range:"1..1000000000"`
}

// ByteRate is a number of bytes per interval, with a burst.
type ByteRate struct {
	// Rate is the number of bytes in each interval, 1KiB to 1024GiB. Required.
	Rate Size `yaml:"rate" range:"1KiB..1024GiB"`
	// Per is the interval. Default 1s, 1ms to 24h.
	Per Duration `yaml:"per" default:"1s" range:"1ms..24h"`
	// Burst is how many bytes may come at once, 1KiB to 1024GiB. Default Rate.
	Burst Size `yaml:"burst" range:"1KiB..1024GiB"`
}

// RateQueue bounds the connections and requests that wait for a budget.
type RateQueue struct {
	// Length is how many may wait for one budget, with over: queue. Default 100,
	// 1..1000000.
	Length int `yaml:"length" default:"100" range:"1..1000000"`
	// Timeout is how long one may wait. Default 1s, 1ms to 10m.
	Timeout Duration `yaml:"timeout" default:"1s" range:"1ms..10m"`
}

// WithDefaults returns a copy with all defaults filled in.
func (r *RateLimit) WithDefaults() *RateLimit {
	out := *r
	fill(reflect.ValueOf(&out).Elem())
	for _, rate := range []*Rate{out.Connections, out.Requests} {
		if rate != nil && rate.Burst == 0 {
			rate.Burst = rate.Rate
		}
	}
	for _, rate := range []*ByteRate{out.BytesIn, out.BytesOut, out.Produce, out.Fetch} {
		if rate != nil && rate.Burst == 0 {
			rate.Burst = rate.Rate
		}
	}
	return &out
}

// Refs lists what the limit names, all of which may be missing.
func (r *RateLimit) Refs() []Ref {
	var refs []Ref
	for i := range r.To {
		to := &r.To[i]
		refs = trafficRefs(refs, Item("spec.to", i), to.Services, to.VirtualClusters, to.Listeners)
	}
	return refs
}
