package routing

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"penstock/routing/limit"
	"penstock/routing/resource"
)

// rateLimit is one version of a RateLimit. Its buckets outlive versions that have
// the same keys.
type rateLimit struct {
	spec  *resource.RateLimit // defaults filled in
	state *limit.Limit
}

// rateLimits is an index of all rate limits: what a connection is compared with.
// Those that name neither services nor clusters nor listeners are in other.
type rateLimits struct {
	all       []*rateLimit // by name
	service   map[string][]*rateLimit
	cluster   map[string][]*rateLimit
	listener  map[string][]*rateLimit
	other     []*rateLimit
	version   uint64 // no other index has it
	ofRequest bool   // some bound requests of HTTP
	ofKafka   bool   // some bound requests of Kafka, or their bytes
	ofTopic   bool   // some do by topic,
	// topicsOfListeners: of listeners, whatever the virtual cluster.
	topicsOfListeners bool
}

// LimitQuery is a connection whose rate limits are wanted.
type LimitQuery struct {
	Input   *Input
	Service string // destination; "" if it is a virtual cluster
	Cluster string // virtual cluster; "" if it is a service
	// Requests asks for the limits of one HTTP request, Kafka for those of a client's
	// requests to Kafka; otherwise they are those of the connection.
	Requests bool
	Kafka    *KafkaClient
	Now      int64 // see package limit
}

// KafkaClient is what the limits of requests to Kafka know of a client.
type KafkaClient struct {
	Principal string // "" if it is not known
	ClientID  string
}

var limitEpoch = time.Now()

// LimitClock returns the time for rate limits.
func LimitClock() int64 { return int64(time.Since(limitEpoch)) }

// Limits appends the buckets of all rate limits that apply. The caller must Release
// each.
func (t *Table) Limits(dst []*limit.Bucket, q *LimitQuery) []*limit.Bucket {
	if t.limits == nil || q.Requests && !t.limits.ofRequest {
		return dst
	}
	l, ok := t.listeners.Get(q.Input.Listener)
	if !ok {
		l = &noListener
	}
	src := t.source(q.Input, l)
	for r := range t.limits.candidates(q) {
		if r.counts(q) && r.spec.By != byTopic && r.selects(q, &src) {
			dst = append(dst, r.state.Bucket(r.key(q, &src), q.Now))
		}
	}
	return dst
}

// byTopic is the By of limits whose budgets are of topics.
const byTopic = "topic"

// TopicLimits appends the rate limits by topic that apply to a client of Kafka.
// limit.Key of a budget has the topic as Text, and the virtual cluster.
func (t *Table) TopicLimits(dst []*limit.Limit, q *LimitQuery) []*limit.Limit {
	if t.limits == nil || !t.limits.ofTopic {
		return dst
	}
	l, ok := t.listeners.Get(q.Input.Listener)
	if !ok {
		l = &noListener
	}
	src := t.source(q.Input, l)
	for r := range t.limits.candidates(q) {
		if r.spec.By == byTopic && r.selects(q, &src) {
			dst = append(dst, r.state)
		}
	}
	return dst
}

// LimitsTopics reports whether rate limits by topic may apply to clients of a virtual
// cluster.
func (t *Table) LimitsTopics(cluster string) bool {
	if t.limits == nil || !t.limits.ofTopic {
		return false
	}
	is := func(r *rateLimit) bool { return r.spec.By == byTopic }
	return slices.ContainsFunc(t.limits.cluster[cluster], is) || slices.ContainsFunc(t.limits.other, is) || t.limits.topicsOfListeners
}

// KafkaLimitsVersion returns a number of the rate limits for requests to Kafka: while it
// is the same, the same ones apply. 0: there are none.
func (t *Table) KafkaLimitsVersion() uint64 {
	if t.limits == nil || !t.limits.ofKafka {
		return 0
	}
	return t.limits.version
}

// HasLimits reports whether there are rate limits.
func (t *Table) HasLimits() bool { return t.limits != nil }

// noListener stands for one that is gone: a Kafka listener has no tags here either.
var noListener = Listener{spec: &resource.Listener{}}

// candidates yields the limits that the destination may have, each once.
func (x *rateLimits) candidates(q *LimitQuery) iter.Seq[*rateLimit] {
	return func(yield func(*rateLimit) bool) {
		for _, r := range x.other {
			if !yield(r) {
				return
			}
		}
		named := x.service[q.Service]
		if q.Cluster != "" {
			named = x.cluster[q.Cluster]
		}
		for _, r := range named {
			if !yield(r) {
				return
			}
		}
		for _, r := range x.listener[q.Input.Listener] {
			if !slices.Contains(named, r) && !yield(r) {
				return
			}
		}
	}
}

// counts reports whether the limit bounds what is asked for.
func (r *rateLimit) counts(q *LimitQuery) bool {
	switch {
	case q.Kafka != nil:
		return r.boundsKafka()
	case q.Requests:
		return r.spec.Requests != nil && !r.spec.KafkaOnly()
	}
	return r.spec.BoundsConnections()
}

// boundsKafka reports whether the limit bounds requests of Kafka, or their bytes.
func (r *rateLimit) boundsKafka() bool {
	return r.spec.Requests != nil || r.spec.Produce != nil || r.spec.Fetch != nil
}

// selects reports whether the limit applies.
func (r *rateLimit) selects(q *LimitQuery, src *source) bool {
	to := len(r.spec.To) == 0
	for i := range r.spec.To {
		to = to || selectsDestination(&r.spec.To[i], q)
	}
	if !to {
		return false
	}
	from := len(r.spec.From) == 0
	for i := range r.spec.From {
		from = from || selectsSource(&r.spec.From[i], q, src)
	}
	return from
}

func selectsDestination(d *resource.TrafficDestination, q *LimitQuery) bool {
	return (len(d.Services) == 0 || slices.Contains(d.Services, q.Service)) &&
		(len(d.VirtualClusters) == 0 || slices.Contains(d.VirtualClusters, q.Cluster)) &&
		(len(d.Listeners) == 0 || slices.Contains(d.Listeners, q.Input.Listener))
}

func selectsSource(s *resource.TrafficSource, q *LimitQuery, src *source) bool {
	if len(s.Principals)+len(s.ClientIDs) > 0 {
		k := q.Kafka
		if k == nil || !matchesAny(s.Principals, k.Principal) || !matchesAny(s.ClientIDs, k.ClientID) {
			return false
		}
	}
	if len(s.Identities) > 0 {
		id := src.identity()
		if id == "" || !slices.ContainsFunc(s.Identities, func(p string) bool { return resource.MatchSPIFFE(p, id) }) {
			return false
		}
	}
	if len(s.Services) > 0 && !slices.Contains(s.Services, src.service()) {
		return false
	}
	for tag, want := range s.Tags {
		if v, layer := src.get(tag); layer < 0 || v != want {
			return false
		}
	}
	if len(s.Networks) == 0 {
		return true
	}
	client := q.Input.Client.Unmap().WithZone("")
	return slices.ContainsFunc(s.Networks, func(n netip.Prefix) bool { return n.Contains(client) })
}

// matchesAny reports whether a name is one of a list of names and prefixes, which end in
// *. An empty list matches all.
func matchesAny(list []string, name string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(p string) bool {
		prefix, isPrefix := strings.CutSuffix(p, "*")
		return p == name || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// identityTag is the tag of the client layer that holds a proven SPIFFE ID. Other
// layers are configuration, which proves nothing.
const identityTag = "spiffe"

func (s *source) identity() string { return s.layers[0][identityTag] }

// key returns what has a budget of its own. The zero key is that of clients without
// an identity, service, tag or address.
func (r *rateLimit) key(q *LimitQuery, src *source) limit.Key {
	switch r.spec.By {
	case "network":
		client, length := q.Input.Client.Unmap().WithZone(""), r.spec.PrefixIPv6
		if client.Is4() {
			length = r.spec.PrefixIPv4
		}
		network, _ := client.Prefix(length)
		return limit.Key{Network: network}
	case "identity":
		return limit.Key{Text: src.identity()}
	case "service":
		return limit.Key{Text: src.service()}
	case "tag":
		value, _ := src.get(r.spec.Tag)
		return limit.Key{Text: value}
	case "listener":
		return limit.Key{Text: q.Input.Listener}
	case "destination":
		return limit.Key{Text: cmp.Or(q.Service, q.Cluster)}
	case "principal":
		return limit.Key{Text: q.Kafka.Principal, Cluster: q.Cluster}
	case "clientID":
		return limit.Key{Text: q.Kafka.ClientID, Cluster: q.Cluster}
	}
	return limit.Key{}
}

// limitsRequests reports whether a rate limit bounds the requests of a connection,
// so that these are to be seen one by one.
func (t *Table) limitsRequests(in *Input, src *source, s *Service) bool {
	if t.limits == nil || !t.limits.ofRequest || !isHTTP(s.spec.Protocol) || !isHTTP(t.protocol(src).protocol) {
		return false
	}
	q := LimitQuery{Input: in, Service: s.name, Requests: true}
	for r := range t.limits.candidates(&q) {
		if r.counts(&q) && r.selects(&q, src) {
			return true
		}
	}
	return false
}

// RateLimits iterates over the rate limits by name.
func (t *Table) RateLimits() iter.Seq2[*limit.Limit, *resource.RateLimit] {
	return func(yield func(*limit.Limit, *resource.RateLimit) bool) {
		if t.limits == nil {
			return
		}
		for _, r := range t.limits.all {
			if !yield(r.state, r.spec) {
				return
			}
		}
	}
}

// putRateLimit records a changed or deleted rate limit.
func (c *compiler) putRateLimit(name string, spec resource.Spec) error {
	if c.rateLimits == nil {
		c.rateLimits = map[string]*resource.RateLimit{}
	}
	c.rateLimits[name] = nil
	r, ok := spec.(*resource.RateLimit)
	if ok {
		c.rateLimits[name] = r.WithDefaults()
	} else if spec != nil {
		return fmt.Errorf("spec has type %T", spec)
	}
	return nil
}

// makeRateLimits returns the next index. A change of rates keeps the buckets; a
// change of the keys makes new ones, and so does a what-if, which must not change
// buckets that are in use.
func (c *compiler) makeRateLimits() *rateLimits {
	if c.rateLimits == nil {
		return c.old.limits
	}
	now := LimitClock()
	var list []*rateLimit
	if c.old.limits != nil {
		for _, r := range c.old.limits.all {
			spec, changed := c.rateLimits[r.state.Name()]
			if !changed {
				list = append(list, r)
			} else if spec != nil && sameKeys(spec, r.spec) && !c.cfg.isolated {
				r.state.Configure(c.limitConfig(spec), now)
				list = append(list, &rateLimit{spec, r.state})
				c.rateLimits[r.state.Name()] = nil
			} else if !c.cfg.isolated {
				r.state.Configure(limit.Config{MaxKeys: 1}, now) // lets go of connections that it has
			}
		}
	}
	for name, spec := range c.rateLimits {
		if spec != nil {
			list = append(list, &rateLimit{spec, limit.New(name, c.limitConfig(spec), now)})
		}
	}
	slices.SortFunc(list, func(a, b *rateLimit) int { return cmp.Compare(a.state.Name(), b.state.Name()) })
	return indexRateLimits(list)
}

// sameKeys reports whether a bucket by one spec is a bucket by the other.
func sameKeys(a, b *resource.RateLimit) bool {
	return a.Scope == b.Scope && a.By == b.By && a.Tag == b.Tag && a.PrefixIPv4 == b.PrefixIPv4 && a.PrefixIPv6 == b.PrefixIPv6
}

// limitsVersion is the last version of an index.
var limitsVersion atomic.Uint64

func indexRateLimits(list []*rateLimit) *rateLimits {
	if len(list) == 0 {
		return nil
	}
	x := &rateLimits{all: list, version: limitsVersion.Add(1), service: map[string][]*rateLimit{}, cluster: map[string][]*rateLimit{}, listener: map[string][]*rateLimit{}}
	add := func(m map[string][]*rateLimit, names []string, r *rateLimit) {
		for _, name := range names {
			if l := m[name]; len(l) == 0 || l[len(l)-1] != r {
				m[name] = append(l, r)
			}
		}
	}
	for _, r := range list {
		x.ofRequest = x.ofRequest || r.spec.Requests != nil && !r.spec.KafkaOnly()
		x.ofKafka = x.ofKafka || r.boundsKafka()
		x.ofTopic = x.ofTopic || r.spec.By == byTopic
		if len(r.spec.To) == 0 || slices.ContainsFunc(r.spec.To, func(d resource.TrafficDestination) bool {
			return len(d.Services)+len(d.VirtualClusters)+len(d.Listeners) == 0
		}) {
			x.other = append(x.other, r)
			continue
		}
		for i := range r.spec.To {
			switch d := &r.spec.To[i]; {
			case len(d.Services)+len(d.VirtualClusters) > 0:
				add(x.service, d.Services, r)
				add(x.cluster, d.VirtualClusters, r)
			default:
				add(x.listener, d.Listeners, r)
				x.topicsOfListeners = x.topicsOfListeners || r.spec.By == byTopic
			}
		}
	}
	return x
}

// limitConfig returns the configuration of a limit's buckets.
func (c *compiler) limitConfig(r *resource.RateLimit) limit.Config {
	of := limitConfig(r)
	if of.Place = (limit.Place{Of: 1}); of.Divided && c.cfg.LimitPlace != nil {
		of.Place = c.cfg.LimitPlace()
	}
	return of
}

func limitConfig(r *resource.RateLimit) limit.Config {
	c := limit.Config{MaxKeys: r.MaxKeys, Divided: r.Scope == resource.ScopeCluster}
	if r.Concurrent != nil {
		c.Concurrent = int64(*r.Concurrent)
	}
	rate := func(d limit.Dimension, n, burst int64, per resource.Duration) {
		c.Rates[d] = limit.Rate{N: n, Per: per.D(), Burst: burst}
	}
	if x := r.Connections; x != nil {
		rate(limit.Connections, int64(x.Rate), int64(x.Burst), x.Per)
	}
	if x := r.Requests; x != nil {
		rate(limit.Requests, int64(x.Rate), int64(x.Burst), x.Per)
	}
	if x := r.BytesIn; x != nil {
		rate(limit.BytesIn, int64(x.Rate), int64(x.Burst), x.Per)
	}
	if x := r.BytesOut; x != nil {
		rate(limit.BytesOut, int64(x.Rate), int64(x.Burst), x.Per)
	}
	if x := r.Produce; x != nil {
		rate(limit.Produce, int64(x.Rate), int64(x.Burst), x.Per)
	}
	if x := r.Fetch; x != nil {
		rate(limit.Fetch, int64(x.Rate), int64(x.Burst), x.Per)
	}
	if r.Over != "refuse" {
		c.MaxWait = r.Queue.Timeout.D()
	}
	if r.Over == "queue" {
		c.MaxQueue = int64(r.Queue.Length)
	}
	return c
}
