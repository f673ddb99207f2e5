package providers

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"penstock/routing/provider"
)

const (
	// maxAnnounced bounds the endpoints that are announced to one node. A proxy over
	// it is no endpoint until it connects again.
	maxAnnounced = 20_000
	// maxAnnouncedOfService bounds the announced endpoints of a service, over all
	// nodes; the first ones by address are used.
	maxAnnouncedOfService = 10_000
	// lease is how long the leader keeps what a node has told it last, and
	// renewEvery how often a node repeats that its list is the same.
	lease      = 30 * time.Second
	renewEvery = 10 * time.Second
	// coalesce is the least time between two messages with changes.
	coalesce = 100 * time.Millisecond
	// maxPart bounds one message, in bytes, more or less.
	maxPart = 256 << 10
	// tellTimeout bounds one message to the leader.
	tellTimeout = 5 * time.Second
)

// announcedKey identifies an announced endpoint.
type announcedKey struct{ service, address string }

// announcement is one call of Announce that is not withdrawn.
type announcement struct{ endpoint provider.Endpoint }

// announced is one endpoint: the last of its announcements counts.
type announced struct {
	announcements []*announcement
	last          provider.Endpoint
	// leaves is when it is removed although this node drains; zero: it is announced.
	leaves time.Time
}

// announcer holds the endpoints that are announced to this node. Create it with
// newAnnouncer.
type announcer struct {
	// leaving reports whether this node drains: proxies that leave it then connect
	// to another node and announce themselves there.
	leaving func() bool
	wake    chan struct{} // has room for one: there are changes

	mu        sync.Mutex
	endpoints map[announcedKey]*announced
	lingering map[announcedKey]*announced // those with leaves
	changed   map[announcedKey]struct{}   // since the last message
	refused   uint64
}

func newAnnouncer(leaving func() bool) *announcer {
	return &announcer{
		leaving: leaving, wake: make(chan struct{}, 1),
		endpoints: map[announcedKey]*announced{}, lingering: map[announcedKey]*announced{}, changed: map[announcedKey]struct{}{},
	}
}

// Announce makes an endpoint one of a service, on all nodes, until withdraw is
// called. An address that is announced several times is one endpoint until the
// last of them is withdrawn; the latest says what its tags are. An endpoint that
// is invalid, or one too many for this node, is counted, logged and not used.
// Announce never blocks. withdraw may be called several times.
func (p *Providers) Announce(service string, e provider.Endpoint) (withdraw func()) {
	withdraw, err := p.announcer.announce(service, e)
	if err != nil {
		p.cfg.Log.Warn("a connected proxy is not used as an endpoint", "service", service, "error", err)
	}
	return withdraw
}

// Announced returns how many endpoints are announced to this node, and how many
// were refused.
func (p *Providers) Announced() (endpoints int, refused uint64) { return p.announcer.counts() }

func (a *announcer) announce(service string, e provider.Endpoint) (withdraw func(), err error) {
	err = e.Normalize()
	key := announcedKey{service, e.Address}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.refused++
		return func() {}, err
	}
	entry := a.endpoints[key]
	if entry == nil {
		if len(a.endpoints) >= maxAnnounced {
			a.refused++
			return func() {}, fmt.Errorf("%s: %d endpoints are announced to this node already; that is the maximum", e.Address, maxAnnounced)
		}
		entry = &announced{}
		a.endpoints[key] = entry
		a.markChanged(key)
	}
	one := &announcement{e}
	entry.announcements = append(entry.announcements, one)
	a.settle(key, entry)
	return sync.OnceFunc(func() { a.withdraw(key, entry, one) }), nil
}

func (a *announcer) withdraw(key announcedKey, entry *announced, one *announcement) {
	stays := a.leaving != nil && a.leaving()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, other := range entry.announcements {
		if other == one {
			entry.announcements = append(entry.announcements[:i], entry.announcements[i+1:]...)
			break
		}
	}
	switch {
	case len(entry.announcements) > 0:
		a.settle(key, entry)
	case stays:
		entry.leaves = time.Now().Add(lease)
		a.lingering[key] = entry
	default:
		delete(a.endpoints, key)
		a.markChanged(key)
	}
}

// settle makes the last announcement of an endpoint count. a.mu is held.
func (a *announcer) settle(key announcedKey, entry *announced) {
	if !entry.leaves.IsZero() {
		entry.leaves = time.Time{}
		delete(a.lingering, key)
	}
	last := &entry.announcements[len(entry.announcements)-1].endpoint
	if !entry.last.Equal(last) {
		entry.last = *last
		a.markChanged(key)
	}
}

// markChanged records that the leader has to be told. a.mu is held.
func (a *announcer) markChanged(key announcedKey) {
	a.changed[key] = struct{}{}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// sweep removes the endpoints whose proxies left while this node drained, and
// did not come back.
func (a *announcer) sweep(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, entry := range a.lingering {
		if now.After(entry.leaves) {
			delete(a.lingering, key)
			delete(a.endpoints, key)
			a.markChanged(key)
		}
	}
}

// counts returns the announced endpoints, and how many were refused.
func (a *announcer) counts() (endpoints int, refused uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.endpoints), a.refused
}

// take returns the endpoints as messages: all of them, or those that changed
// since the last call.
func (a *announcer) take(complete bool) []*Announcements {
	a.mu.Lock()
	defer a.mu.Unlock()
	parts := partWriter{list: []*Announcements{{}}}
	if complete {
		for key, entry := range a.endpoints {
			parts.put(key.service, &entry.last)
		}
	} else {
		for key := range a.changed {
			if entry := a.endpoints[key]; entry != nil {
				parts.put(key.service, &entry.last)
			} else {
				parts.remove(key)
			}
		}
	}
	clear(a.changed)
	return parts.list
}

// forgetChanges makes the changes so far count as taken.
func (a *announcer) forgetChanges() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.changed)
}

// isChanged reports whether there are changes since the last call of take.
func (a *announcer) isChanged() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.changed) > 0
}

// teller tells the leader of the endpoints that are announced to this node. Its
// goroutine alone uses it.
type teller struct {
	announcer *announcer
	collector *collector // of this node, which may be the leader
	cfg       *Config
	instance  string
	version   uint64
	to        string // the leader that has the list; "": none has
	at        time.Time
	failed    bool // the last message; it is logged once
}

func newTeller(p *Providers) *teller {
	return &teller{announcer: p.announcer, collector: p.collector, cfg: &p.cfg, instance: rand.Text()}
}

// run tells the leader of every change, and renews the lease, until ctx ends.
func (t *teller) run(ctx context.Context) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		t.step(ctx)
		if !pause(ctx, coalesce) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.announcer.wake:
		case now := <-ticker.C:
			t.announcer.sweep(now)
			t.collector.expire(now, t.cfg.Members())
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// step sends what the leader does not have.
func (t *teller) step(ctx context.Context) {
	leader := t.cfg.Leader()
	if leader == "" {
		t.to = ""
		t.announcer.forgetChanges() // the next leader gets the complete list
		return
	}
	if leader == t.to && !t.announcer.isChanged() && time.Since(t.at) < renewEvery {
		return
	}
	known, err := t.tell(ctx, leader, leader != t.to)
	if err == nil && !known { // the leader has restarted
		known, err = t.tell(ctx, leader, true)
	}
	if err == nil && known {
		t.to, t.at, t.failed = leader, time.Now(), false
		return
	}
	t.to = "" // the next message is complete
	if !t.failed && ctx.Err() == nil {
		t.failed = true
		t.cfg.Log.Warn("cannot tell the leader which proxies announced themselves as endpoints; retrying", "error", err)
	}
}

// tell sends the complete list, or what changed since the last message. known is
// false if the leader lacks what the changes refer to.
func (t *teller) tell(ctx context.Context, leader string, complete bool) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	parts := t.announcer.take(complete)
	for i, m := range parts {
		m.Instance, m.Base, m.Version = t.instance, t.version, t.version+1
		m.Reset, m.More = complete && i == 0, complete && i < len(parts)-1
		t.version++
		var res *AnnouncementsResult
		if leader == t.cfg.Self {
			res, err = t.collector.receive(leader, m, time.Now())
		} else {
			res, err = t.cfg.Tell(ctx, leader, m)
		}
		if err != nil || res.Unknown {
			return false, err
		}
	}
	return true, nil
}
