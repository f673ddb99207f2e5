// Package topicmetrics is the filter TopicMetrics: it counts what is produced
// to and fetched from each topic, for metrics. It changes nothing.
//
//	filters:
//	- {type: TopicMetrics, config: {topics: 50}}
//
// Names depend on its place in the chain: before MultiTenant they are the
// tenant's, behind it the physical cluster's.
//
// A name from a client never becomes a metric's label. A topic is counted by
// itself if a response to Metadata has shown that it exists, and if fewer
// topics than the limit were used before it. All others are counted as one. The
// same responses tell which topics the ids in newer versions are.
//
// It walks Produce, Fetch and ShareFetch: it sees names or ids and how many
// bytes belong to a topic, never the records. Behind the last name of a Produce
// request it sees nothing. Where it is not in a chain, none of this costs
// anything.
package topicmetrics

import (
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/routing/resource/validate"
)

// Type returns the type of this filter.
func Type() filter.Type {
	return filter.Type{Name: "TopicMetrics", Config: func() filter.Config { return new(Config) }}
}

// Config is the filter's configuration.
type Config struct {
	// Topics is how many topics are counted by themselves: the first that are
	// used since the filter was configured. Default 100, 1..10000.
	Topics int `yaml:"topics" default:"100" range:"1..10000"`
}

// Validate implements filter.Config.
func (c *Config) Validate(report func(path, message string, value any)) {
	validate.Fields(c, report)
}

// Provision implements filter.Config.
func (c *Config) Provision(filter.Env) (filter.Filter, error) {
	f := &Filter{limit: c.Topics, byName: map[string]*topic{}, byID: map[id]*topic{}}
	f.other.name = Other
	f.other.counts.Store(new(counts))
	return f, nil
}

// Accepts implements filter.Config: counting starts again.
func (c *Config) Accepts(older filter.Config) bool {
	_, ok := older.(*Config)
	return ok
}

// Other is the name under which all other topics are counted. No topic can have
// it.
const Other = "(other)"

// maxTopics bounds the topics, and the ids, of which it is remembered that they
// are there. What is beyond counts as the rest.
const maxTopics = 10_000

type id = [16]byte

// The APIs that are counted.
const (
	produce = iota
	fetch
	shareFetch
	apis
)

var keys = [apis]int16{int16(kmsg.Produce), int16(kmsg.Fetch), int16(kmsg.ShareFetch)}

// counts are those of one topic, by API. Written by all loops.
type counts [apis]struct{ messages, bytes atomic.Uint64 }

// topic is one that the cluster has said to have.
type topic struct {
	name   string
	counts atomic.Pointer[counts] // nil: not used yet
}

// Filter counts for one virtual cluster.
type Filter struct {
	limit int
	other topic

	mu     sync.RWMutex
	byName map[string]*topic
	byID   map[id]*topic
	used   []*topic // that are counted by themselves, at most as many as most
}

// Count is how much went through.
type Count struct {
	Topic, API string
	// Messages are requests of Produce and responses to Fetch that name the
	// topic, Bytes what of them is the topic's: records as they are, and what
	// stands around them.
	Messages, Bytes uint64
}

// Counts returns what was counted, but for what was not used. It may be called
// from anywhere.
func (f *Filter) Counts() []Count {
	f.mu.RLock()
	all := append([]*topic{&f.other}, f.used...)
	f.mu.RUnlock()
	var list []Count
	for _, t := range all {
		sums := t.counts.Load()
		for api, key := range keys {
			c := &sums[api]
			if n := c.messages.Load(); n > 0 {
				list = append(list, Count{t.name, wire.Name(key), n, c.bytes.Load()})
			}
		}
	}
	return list
}

// countsByName and identified give the counts of a topic that is used.
func (f *Filter) countsByName(name []byte) *counts {
	f.mu.RLock()
	t := f.byName[string(name)]
	f.mu.RUnlock()
	return f.countsOf(t)
}

func (f *Filter) countsByID(t id) *counts {
	f.mu.RLock()
	known := f.byID[t]
	f.mu.RUnlock()
	return f.countsOf(known)
}

func (f *Filter) countsOf(t *topic) *counts {
	if t == nil {
		t = &f.other
	}
	if c := t.counts.Load(); c != nil {
		return c
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := t.counts.Load(); c != nil {
		return c
	}
	c := f.other.counts.Load()
	if len(f.used) < f.limit {
		c = new(counts)
		f.used = append(f.used, t)
	}
	t.counts.Store(c)
	return c
}

// learn notes a topic that is there. name is not kept.
func (f *Filter) learn(name []byte, t id) {
	f.mu.RLock()
	one := f.byName[string(name)]
	done := one != nil && (t == id{} || f.byID[t] == one)
	f.mu.RUnlock()
	if done || !isLegalName(name) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if one = f.byName[string(name)]; one == nil {
		if len(f.byName) >= maxTopics {
			return
		}
		one = &topic{name: string(name)}
		f.byName[one.name] = one
	}
	if t != (id{}) && len(f.byID) < maxTopics {
		f.byID[t] = one
	}
}

// isLegalName reports whether a topic may have that name: it becomes a label.
func isLegalName(name []byte) bool {
	const maxName = 249
	for _, c := range name {
		if c != '.' && c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return len(name) > 0 && len(name) <= maxName
}

// Versions implements filter.Filter: every version that is known is carried.
func (f *Filter) Versions(_ int16, have filter.Range) filter.Range { return have }

// Wants implements filter.Filter.
func (f *Filter) Wants(d filter.Direction, key, _ int16) filter.Interest {
	switch {
	case key == int16(kmsg.Metadata) && d == filter.Response:
		return filter.Whole
	case key == keys[produce] && d == filter.Request, (key == keys[fetch] || key == keys[shareFetch]) && d == filter.Response:
		return filter.Walk
	}
	return filter.Nothing
}

// Open implements filter.Filter.
func (f *Filter) Open(filter.Info) filter.Conn {
	c := &conn{f: f}
	for api := range c.meters {
		c.meters[api].init(f, api)
	}
	return c
}

// Close implements filter.Filter.
func (f *Filter) Close() {}
