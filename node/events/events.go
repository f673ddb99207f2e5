// Package events sends what changes in a node's view of its cluster to browsers, as
// server-sent events.
//
// A Hub has topics. A stream names some of them, each with the parameters of the topic's
// own URL, and gets an event whenever one has changed. What a topic sends is computed and
// encoded once for all streams that ask for it with the same parameters (a feed), and only
// while there are any: a hub without streams has no goroutine.
//
// A stream holds no events of its own. It remembers how far it has come in each of its
// feeds, and a feed keeps what its topic says (Source.Keep). So a browser that does not
// read costs the buffers of its socket, until a write to it times out; one that reads too
// slowly misses states in between, and is told when it has missed items of a list.
//
// The number of streams is bounded, for the node and for each principal, and so is that
// of feeds. The package decides nothing about topics beyond the role that they need.
//
//	hub := events.New(events.Config{Valid: tokens.Check}, topics...)
//	err := hub.Serve(w, r, principal, until) // until the stream ends
//	hub.Sweep()                              // every second: tokens that expire
package events

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/node/api"
)

// The defaults of Config.
const (
	DefaultStreams      = 1000
	DefaultPerPrincipal = 100
	DefaultFeeds        = 256
)

// The bounds of the interval of a stream.
const (
	MinInterval = time.Second
	MaxInterval = time.Minute
)

// Config configures a Hub. Zero fields take the defaults.
type Config struct {
	Streams      int // of the node
	PerPrincipal int // of them, of one token
	Feeds        int // topics with different parameters that are computed at once

	// Heartbeat is the time between two comment lines: 15s. They keep proxies from closing
	// a stream, and find browsers that have gone.
	Heartbeat time.Duration
	// WriteTimeout bounds each write to a browser: 15s.
	WriteTimeout time.Duration

	// Valid returns an error if a principal's token is not valid any more; nil: all are. It
	// must be quick.
	Valid func(api.Principal) error
	// Opened is called with the request of each stream that begins. May be nil.
	Opened func(*http.Request)
	Log    *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Streams, c.PerPrincipal = cmp.Or(c.Streams, DefaultStreams), cmp.Or(c.PerPrincipal, DefaultPerPrincipal)
	c.Feeds = cmp.Or(c.Feeds, DefaultFeeds)
	c.Heartbeat, c.WriteTimeout = cmp.Or(c.Heartbeat, 15*time.Second), cmp.Or(c.WriteTimeout, 15*time.Second)
	if c.Valid == nil {
		c.Valid = func(api.Principal) error { return nil }
	}
	if c.Opened == nil {
		c.Opened = func(*http.Request) {}
	}
	return c
}

// Topic is a kind of event.
type Topic struct {
	Name string   // of the events
	Role api.Role // that a stream needs for it
	// Source reads the topic's parameters from the query of a stream, which may have those
	// of other topics too.
	Source func(*http.Request) (Source, error)
}

// Source is what a topic sends with certain parameters: either State or Items is set.
type Source struct {
	// Key distinguishes the sources of a topic: streams with the same key share a feed.
	Key string
	// State returns the current state. It is sent when it differs from the one before.
	State func(context.Context) (any, error)
	// Items sends values as they come, until ctx ends. The argument is the interval at
	// which they are wanted. It is called again after an error.
	Items func(ctx context.Context, interval time.Duration, send func(any)) error
	// Keep is the number of items that a new or a slow stream gets, at most maxKept bytes
	// of them. 0 with Items: those that come while a stream is open.
	Keep int
}

// The reasons for which streams end, in metrics and events.
const (
	EndClient   = "client"   // the browser has closed it
	EndSlow     = "slow"     // a write to the browser timed out
	EndSession  = "session"  // the session has ended: its token is not valid any more, or it is too old
	EndDraining = "draining" // the node drains: a browser that comes again may reach another one
	EndStopping = "stopping" // the node stops
	EndTooMany  = "too_many" // there are too many already; the stream has not begun
)

var reasons = []string{EndClient, EndSlow, EndSession, EndDraining, EndStopping, EndTooMany}

// Hub has the topics and the streams of a node. Its methods are safe for concurrent use.
type Hub struct {
	cfg    Config
	topics []Topic
	ctx    context.Context // ends with Close
	close  context.CancelFunc
	work   sync.WaitGroup // feeds

	mu      sync.Mutex
	streams map[*stream]struct{}
	by      map[string]int // streams of each principal
	feeds   map[string]*feed
	ended   map[string]uint64 // streams, by reason
	closed  bool
}

// New returns a hub.
func New(cfg Config, topics ...Topic) *Hub {
	h := &Hub{
		cfg: cfg.withDefaults(), topics: topics,
		streams: map[*stream]struct{}{}, by: map[string]int{}, feeds: map[string]*feed{}, ended: map[string]uint64{},
	}
	for _, r := range reasons {
		h.ended[r] = 0
	}
	h.ctx, h.close = context.WithCancel(context.Background())
	return h
}

// Stats are the counts of a hub.
type Stats struct {
	Streams, Feeds int
	Ended          map[string]uint64 // streams, by reason
}

// Stats returns the counts.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{Streams: len(h.streams), Feeds: len(h.feeds), Ended: map[string]uint64{}}
	for r, n := range h.ended {
		s.Ended[r] = n
	}
	return s
}

// Sweep ends the streams of sessions that have ended. It is called once a second, and
// after tokens were revoked.
func (h *Hub) Sweep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	valid := map[string]bool{} // by token: many streams have the same
	for s := range h.streams {
		ok, known := valid[s.principal.TokenID]
		if !known {
			ok = h.cfg.Valid(s.principal) == nil
			valid[s.principal.TokenID] = ok
		}
		if !ok || !s.until.IsZero() && !now.Before(s.until) {
			s.end(EndSession)
		}
	}
}

// Drain ends the streams. New ones may begin: people watch a drain.
func (h *Hub) Drain() { h.endAll(EndDraining) }

// Close ends the streams for good, and waits for the feeds.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.endAll(EndStopping)
	h.close()
	h.work.Wait()
}

func (h *Hub) endAll(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		s.end(reason)
	}
}

// topic returns a topic by name.
func (h *Hub) topic(name string) (*Topic, error) {
	names := make([]string, len(h.topics))
	for i := range h.topics {
		if names[i] = h.topics[i].Name; names[i] == name {
			return &h.topics[i], nil
		}
	}
	slices.Sort(names)
	return nil, api.Errorf(api.Invalid, "topics: there is no %.40q: want some of %s", name, strings.Join(names, ","))
}
