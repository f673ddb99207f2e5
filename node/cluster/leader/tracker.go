// Package leader is about the leader of a cluster: who it is (Tracker), how a
// request of any node reaches it (Requests), what it does (Leader), and how it
// hands the lead over (HandOver). A request is sent again only if it cannot have
// acted, or is the same whether it acts once or twice; otherwise the outcome is
// unknown, and the caller is told so.
package leader

import (
	"context"
	"sync"
	"time"
)

// Tracker knows who leads, as far as this node knows. Its methods may be called
// from any goroutine.
type Tracker struct {
	self string // this node's ID

	mu      sync.Mutex
	id      string        // "": none
	since   time.Time     // when id changed
	changed chan struct{} // closed when id changes, then replaced
	term    term          // of the last known leader
}

// NewTracker returns the tracker of the node self. No leader is known yet.
func NewTracker(self string) *Tracker {
	return &Tracker{self: self, since: time.Now(), changed: make(chan struct{})}
}

// ID returns the leader's ID; "" if none is known. Each request calls it, so it
// is cheap.
func (t *Tracker) ID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.id
}

// Self reports whether this node leads.
func (t *Tracker) Self() bool { return t.ID() == t.self }

// Changed returns a channel that is closed when the leader changes or is lost.
func (t *Tracker) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// AbsentFor returns how long there has been no leader; 0 if there is one.
func (t *Tracker) AbsentFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.id != "" {
		return 0
	}
	return time.Since(t.since)
}

// Set records who leads, and reports whether that has changed.
func (t *Tracker) Set(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id == t.id {
		return false
	}
	t.id, t.since = id, time.Now()
	t.beginTerm(id)
	close(t.changed)
	t.changed = make(chan struct{})
	return true
}

// term is the time of one leader. It ends replacedLeaderGrace after
// another node has taken the lead; a period without a leader does not end it.
type term struct {
	leader string // "": there has been none
	ctx    context.Context
	cancel context.CancelFunc
}

// beginTerm begins the term of a new leader. The caller holds t.mu.
func (t *Tracker) beginTerm(leader string) {
	if leader == "" || leader == t.term.leader {
		return
	}
	if cancel := t.term.cancel; cancel != nil {
		time.AfterFunc(replacedLeaderGrace, cancel)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.term = term{leader, ctx, cancel}
}

// whenReplaced calls cancel when that leader's term ends, unless stop is called
// first. Each forwarded request uses it.
func (t *Tracker) whenReplaced(leader string, cancel func()) (stop func()) {
	t.mu.Lock()
	current := t.term
	t.mu.Unlock()
	if current.leader != leader { // replaced a moment ago
		timer := time.AfterFunc(replacedLeaderGrace, cancel)
		return func() { timer.Stop() }
	}
	unhook := context.AfterFunc(current.ctx, cancel)
	return func() { unhook() }
}
