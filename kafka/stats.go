package kafka

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"penstock/kafka/filter/authorize"
	"penstock/kafka/filter/brokeraddress"
	"penstock/kafka/filter/topiclimit"
	"penstock/kafka/filter/topicmetrics"
	"penstock/kafka/model"
	"penstock/kafka/wire"
	"penstock/netio/ports"
)

// Buckets are the upper bounds, in seconds, of the buckets of latency
// histograms. One more bucket has everything above.
var Buckets = [...]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

var bucketBounds = func() (bounds [len(Buckets)]time.Duration) {
	for i, s := range Buckets {
		bounds[i] = time.Duration(s * float64(time.Second))
	}
	return bounds
}()

// Histogram counts latencies by bucket, with their sum.
type Histogram struct {
	Counts [len(Buckets) + 1]uint64
	Sum    time.Duration
}

type histogram struct {
	counts [len(Buckets) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(bucketBounds) && d > bucketBounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) add(to *Histogram) {
	for i := range h.counts {
		to.Counts[i] += h.counts[i].Load()
	}
	to.Sum += time.Duration(h.sum.Load())
}

// apiStats are the counters of one API of one virtual cluster on one loop.
type apiStats struct {
	requests, errors, in, out atomic.Uint64
	broker, proxy             histogram
}

// maxAPI bounds the API keys that are counted; there is none beyond.
const maxAPI = 128

// stats counts the exchanges of one virtual cluster in all its versions. Each
// loop has counters of its own.
type stats struct {
	name     string
	shards   []shard
	brokers  brokerTallies
	open     atomic.Int64 // connections, those being made included
	ports    ports.Count  // connections by broker's address, likewise
	versions versionCache
	guard    *authorize.Filter  // of permissions; used where there are any
	topics   *topiclimit.Filter // of limits by topic; likewise
	denials  denials

	mu      sync.Mutex
	conns   map[*Connection]struct{} // that are connected
	removed bool                     // the cluster is gone: forgotten with its last connection
	// What ends connections or is hidden, rather than answered; written by
	// any loop.
	throttled, denied atomic.Uint64
}

type shard struct {
	apis [maxAPI]atomic.Pointer[apiStats]
	_    [64]byte
}

func newStats(name string, loops int, guard func(*stats) *authorize.Filter) *stats {
	s := &stats{name: name, shards: make([]shard, max(loops, 1)), conns: map[*Connection]struct{}{}, topics: topiclimit.New()}
	s.guard = guard(s)
	return s
}

// tryOpen counts a new connection, and reports false if there are most already;
// 0: no limit.
func (s *stats) tryOpen(most int) bool {
	if n := s.open.Add(1); most > 0 && n > int64(most) {
		s.open.Add(-1)
		return false
	}
	return true
}

// add and remove keep the set of established connections.
func (s *stats) add(c *Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

func (s *stats) remove(c *Connection) {
	s.mu.Lock()
	delete(s.conns, c)
	over := s.removed && len(s.conns) == 0
	s.mu.Unlock()
	if over {
		c.proxy.clusters.remove(c.state)
	}
}

// list returns the connections for which is reports true.
func (s *stats) list(is func(*Connection) bool) []*Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []*Connection
	for c := range s.conns {
		if is(c) {
			some = append(some, c)
		}
	}
	return some
}

// api returns the counters of an API on a loop.
func (s *stats) api(loop int, key int16) *apiStats {
	if key < 0 || key >= maxAPI {
		return nil
	}
	p := &s.shards[loop%len(s.shards)].apis[key]
	a := p.Load()
	if a == nil {
		a = new(apiStats)
		if !p.CompareAndSwap(nil, a) {
			a = p.Load()
		}
	}
	return a
}

// APICounts are the totals of one API of one virtual cluster since start.
type APICounts struct {
	Key                       int16
	API                       string
	Requests, Errors, In, Out uint64
	Broker, Proxy             Histogram
}

// Counts are the totals of a virtual cluster.
type Counts struct {
	Cluster string
	APIs    []APICounts // those that were used
	// Hidden counts brokers that were left out of answers or ended a
	// connection for want of an address that may be shown; Throttled the
	// answers by which the broker asked a client to slow down; Denied what
	// filters refused.
	Hidden, Throttled, Denied uint64
	// Denials are what permissions have denied.
	Denials []PermissionDenials
	// Topics are what the filter TopicMetrics has counted, where there is one.
	Topics []topicmetrics.Count
}

func (s *stats) counts() Counts {
	c := Counts{Cluster: s.name, Throttled: s.throttled.Load(), Denied: s.denied.Load(), Denials: s.denials.list()}
	s.addFilterCounts(&c)
	for key := range int16(maxAPI) {
		one := APICounts{Key: key, API: wire.Name(key)}
		for i := range s.shards {
			if a := s.shards[i].apis[key].Load(); a != nil {
				one.Requests += a.requests.Load()
				one.Errors += a.errors.Load()
				one.In += a.in.Load()
				one.Out += a.out.Load()
				a.broker.add(&one.Broker)
				a.proxy.add(&one.Proxy)
			}
		}
		if one.Requests > 0 {
			c.APIs = append(c.APIs, one)
		}
	}
	return c
}

// addFilterCounts adds what the filters of the version in use have counted.
func (s *stats) addFilterCounts(c *Counts) {
	v := s.versions.latest.Load()
	if v == nil {
		return
	}
	for _, f := range v.Filters() {
		switch f := f.(type) {
		case *brokeraddress.Filter:
			c.Hidden += f.Hidden()
		case *topicmetrics.Filter:
			c.addTopics(f.Counts())
		}
	}
}

// addTopics adds counts of topics, some of which may be there already.
func (c *Counts) addTopics(list []topicmetrics.Count) {
	type key struct{ topic, api string }
	at := make(map[key]int, len(c.Topics))
	for i, t := range c.Topics {
		at[key{t.Topic, t.API}] = i
	}
	for _, t := range list {
		if i, twice := at[key{t.Topic, t.API}]; twice {
			c.Topics[i].Messages += t.Messages
			c.Topics[i].Bytes += t.Bytes
			continue
		}
		c.Topics = append(c.Topics, t)
	}
}

// clusters are the counters of all virtual clusters. Those of a removed cluster
// stay until its last connection ends, so the configuration bounds their
// number.
type clusters struct {
	loops int
	guard func(*stats) *authorize.Filter
	mu    sync.RWMutex
	m     map[*model.VirtualState]*stats
}

func (c *clusters) init(loops int, guard func(*stats) *authorize.Filter) {
	c.loops, c.guard, c.m = loops, guard, map[*model.VirtualState]*stats{}
}

// of returns the counters of a cluster. A caller with an older table may still
// ask for a removed one: it gets counters that nobody reads, and that are not
// added here, where nobody would remove them.
func (c *clusters) of(state *model.VirtualState) *stats {
	c.mu.RLock()
	s, ok := c.m[state]
	c.mu.RUnlock()
	if ok {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok = c.m[state]; !ok {
		s = newStats(state.Name(), c.loops, c.guard)
		// It is retired after its removal shows here, so either it is seen
		// to be removed or it is found by who retires it.
		if !state.Removed() {
			c.m[state] = s
		}
	}
	return s
}

// Ports counts the connections of each virtual cluster by the address of their
// broker, those included that are being made.
func (r *Proxy) Ports() map[string]map[netip.AddrPort]int64 {
	c := &r.clusters
	c.mu.RLock()
	defer c.mu.RUnlock()
	by := make(map[string]map[netip.AddrPort]int64, len(c.m))
	for _, s := range c.m {
		if by[s.name] == nil {
			by[s.name] = map[netip.AddrPort]int64{}
		}
		s.ports.AddTo(by[s.name])
	}
	return by
}

// Counts returns the totals of all virtual clusters, in no order.
func (r *Proxy) Counts() []Counts { return r.clusters.all() }

// markRemoved marks a cluster as removed.
func (c *clusters) markRemoved(state *model.VirtualState) {
	s := c.of(state)
	s.mu.Lock()
	s.removed = true
	idle := len(s.conns) == 0
	s.mu.Unlock()
	if idle {
		c.remove(state)
	}
}

// remove deletes the statistics of a removed cluster.
func (c *clusters) remove(state *model.VirtualState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, state)
}

// all returns the totals of all clusters. A cluster that was removed and
// created again is counted once, with what is left of the one before.
func (c *clusters) all() []Counts {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]Counts, 0, len(c.m))
	at := make(map[string]int, len(c.m))
	for _, s := range c.m {
		if i, twice := at[s.name]; twice {
			list[i].add(s.counts())
			continue
		}
		at[s.name] = len(list)
		list = append(list, s.counts())
	}
	return list
}

// add adds the counts of another cluster of the same name.
func (c *Counts) add(other Counts) {
	c.Hidden += other.Hidden
	c.Throttled += other.Throttled
	c.Denied += other.Denied
	c.Denials = addDenials(c.Denials, other.Denials)
	c.addTopics(other.Topics)
	for i := range other.APIs {
		a := &other.APIs[i]
		at := slices.IndexFunc(c.APIs, func(have APICounts) bool { return have.Key == a.Key })
		if at < 0 {
			c.APIs = append(c.APIs, *a)
			continue
		}
		c.APIs[at].add(a)
	}
}

func (a *APICounts) add(other *APICounts) {
	a.Requests += other.Requests
	a.Errors += other.Errors
	a.In += other.In
	a.Out += other.Out
	a.Broker.add(&other.Broker)
	a.Proxy.add(&other.Proxy)
}

func (h *Histogram) add(other *Histogram) {
	for i := range h.Counts {
		h.Counts[i] += other.Counts[i]
	}
	h.Sum += other.Sum
}
