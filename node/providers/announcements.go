package providers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"penstock/routing/provider"
)

// Announcements is what a node tells the leader about the endpoints that proxies
// have announced to it: all of them, or what changed.
type Announcements struct {
	// Instance is the process that sends it.
	Instance string `json:"instance"`
	// Version is that of the list with this message applied, Base the one before it.
	Base    uint64 `json:"base"`
	Version uint64 `json:"version"`
	// Reset begins a complete list, which takes effect with the first message
	// without More.
	Reset bool                `json:"reset,omitempty"`
	More  bool                `json:"more,omitempty"`
	Put   []AnnouncedEndpoint `json:"put,omitempty"`
	Gone  []AnnouncedEndpoint `json:"gone,omitempty"` // service and address alone
}

// AnnouncedEndpoint is an endpoint of a service.
type AnnouncedEndpoint struct {
	Service string            `json:"service"`
	Address string            `json:"address"`
	Weight  int               `json:"weight,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	State   uint8             `json:"state,omitempty"`
}

// AnnouncementsResult is the answer to Announcements.
type AnnouncementsResult struct {
	// Unknown: the receiver does not have Base. The sender repeats the complete list.
	Unknown bool `json:"unknown,omitempty"`
}

// partWriter divides endpoints into messages.
type partWriter struct {
	list []*Announcements // not empty
	size int              // of the last one
}

func (w *partWriter) put(service string, e *provider.Endpoint) {
	size := 32 + len(service) + len(e.Address)
	for k, v := range e.Tags {
		size += 8 + len(k) + len(v)
	}
	m := w.part(size)
	m.Put = append(m.Put, AnnouncedEndpoint{service, e.Address, e.Weight, e.Tags, uint8(e.State)})
}

func (w *partWriter) remove(key announcedKey) {
	m := w.part(32 + len(key.service) + len(key.address))
	m.Gone = append(m.Gone, AnnouncedEndpoint{Service: key.service, Address: key.address})
}

// part returns the message with room for size bytes.
func (w *partWriter) part(size int) *Announcements {
	if w.size += size; w.size > maxPart {
		w.list, w.size = append(w.list, &Announcements{}), size
	}
	return w.list[len(w.list)-1]
}

// nodeList is what one node has announced.
type nodeList struct {
	instance  string
	version   uint64
	endpoints endpointSet
	staged    endpointSet // of a complete list that is being received; nil: none is
	expires   time.Time
	told      time.Time // when the list was known to be complete last
}

// endpointSet has endpoints by service and address.
type endpointSet map[string]map[string]provider.Endpoint

func (s endpointSet) put(e *AnnouncedEndpoint) {
	if s[e.Service] == nil {
		s[e.Service] = map[string]provider.Endpoint{}
	}
	s[e.Service][e.Address] = provider.Endpoint{Address: e.Address, Weight: e.Weight, Tags: e.Tags, State: provider.State(e.State)}
}

func (s endpointSet) remove(e *AnnouncedEndpoint) {
	delete(s[e.Service], e.Address)
	if len(s[e.Service]) == 0 {
		delete(s, e.Service)
	}
}

func (s endpointSet) size() (n int) {
	for _, endpoints := range s {
		n += len(endpoints)
	}
	return n
}

// collector holds what the nodes have announced to this one. Those of a former
// leader expire. Create it with newCollector.
type collector struct {
	wake chan struct{} // has room for one: there are changes

	mu    sync.Mutex
	lists map[string]*nodeList // by node ID
	dirty map[string]bool      // services whose endpoints may have changed
}

func newCollector() *collector {
	return &collector{wake: make(chan struct{}, 1), lists: map[string]*nodeList{}, dirty: map[string]bool{}}
}

// Receive takes what a node, by its ID, has announced to it.
func (p *Providers) Receive(node string, m *Announcements) (*AnnouncementsResult, error) {
	return p.collector.receive(node, m, time.Now())
}

func (c *collector) receive(node string, m *Announcements, now time.Time) (*AnnouncementsResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lists[node]
	if l == nil {
		l = &nodeList{}
		c.lists[node] = l
	}
	switch {
	case m.Reset:
		l.staged = endpointSet{}
	case l.instance != m.Instance || l.version != m.Base:
		return &AnnouncementsResult{Unknown: true}, nil
	}
	set := l.staged
	if set == nil {
		set = l.endpoints
	}
	if n := set.size() + len(m.Put); n > maxAnnounced+len(m.Gone) {
		return nil, fmt.Errorf("node %s announces %d endpoints; the maximum is %d", node, n, maxAnnounced)
	}
	for i := range m.Put {
		set.put(&m.Put[i])
	}
	for i := range m.Gone {
		set.remove(&m.Gone[i])
	}
	l.instance, l.version, l.expires = m.Instance, m.Version, now.Add(lease)
	switch {
	case m.More:
		return &AnnouncementsResult{}, nil
	case l.staged != nil:
		c.replace(l, l.staged)
	default:
		for i := range m.Put {
			c.dirty[m.Put[i].Service] = true
		}
		for i := range m.Gone {
			c.dirty[m.Gone[i].Service] = true
		}
	}
	l.told = now
	c.wakeUp()
	return &AnnouncementsResult{}, nil
}

// replace gives a list other endpoints. c.mu is held.
func (c *collector) replace(l *nodeList, next endpointSet) {
	for service, endpoints := range next {
		if !maps.EqualFunc(endpoints, l.endpoints[service], func(a, b provider.Endpoint) bool { return a.Equal(&b) }) {
			c.dirty[service] = true
		}
	}
	for service := range l.endpoints {
		if next[service] == nil {
			c.dirty[service] = true
		}
	}
	l.endpoints, l.staged = next, nil
}

func (c *collector) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// expire drops the lists of nodes that are silent, or no members any more.
func (c *collector) expire(now time.Time, members []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for node, l := range c.lists {
		if now.Before(l.expires) && slices.Contains(members, node) {
			continue
		}
		c.replace(l, nil)
		delete(c.lists, node)
	}
}

// allTold reports whether all members have told their lists since a time.
func (c *collector) allTold(members []string, since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, node := range members {
		if l := c.lists[node]; l == nil || l.told.Before(since) {
			return false
		}
	}
	return true
}

// takeDirty returns the services whose endpoints may have changed since the last
// call.
func (c *collector) takeDirty() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	dirty := c.dirty
	c.dirty = map[string]bool{}
	return dirty
}

// union returns the endpoints of a service from all nodes. An address that
// several nodes have comes in the order of their IDs.
func (c *collector) union(service string) []provider.Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes, n := slices.Sorted(maps.Keys(c.lists)), 0
	for _, l := range c.lists {
		n += len(l.endpoints[service])
	}
	all := make([]provider.Endpoint, 0, n)
	for _, node := range nodes {
		for _, e := range c.lists[node].endpoints[service] {
			all = append(all, e)
		}
	}
	return all
}

// announcedSource reports on the leader what all nodes have announced to it.
type announcedSource struct {
	collector *collector
	members   func() []string
	// known is what was in force when this node began to lead. It counts until
	// every member has told its list, or a lease has passed: a new leader removes
	// nothing that a node has not had the time to repeat.
	known map[provider.Query][]provider.Endpoint
}

// Run implements provider.Source.
func (s *announcedSource) Run(ctx context.Context, sink provider.Sink) error {
	begun := time.Now()
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	queries, replaced := sink.Wanted()
	all := true
	for {
		now, members := time.Now(), s.members()
		s.collector.expire(now, members)
		if s.known != nil && (!now.Before(begun.Add(lease)) || s.collector.allTold(members, begun)) {
			s.known, all = nil, true
		}
		dirty := s.collector.takeDirty()
		for _, q := range queries {
			if all || dirty[q.Service] {
				sink.Report(q, append(s.collector.union(q.Service), s.known[q]...))
			}
		}
		all = false
		if !pause(ctx, coalesce) {
			return ctx.Err()
		}
		select {
		case <-s.collector.wake:
		case <-ticker.C:
		case <-replaced:
			queries, replaced = sink.Wanted()
			all = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
