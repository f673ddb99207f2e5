package endpoint

import (
	"fmt"
	"sync/atomic"
)

// Kind is what a slot is for.
type Kind uint8

// The kinds.
const (
	// Connection is a connection that leads only to its endpoint.
	Connection Kind = iota
	// Request is an HTTP request, which shares its connection with others.
	Request
)

// Bounds limit what is under way at once; 0: no limit.
type Bounds struct {
	Connections, Requests int
	// Pending bounds those of both kinds that have no connection to their endpoint
	// yet.
	Pending int
}

// Breaker is a service's circuit breaker.
type Breaker struct {
	Service  Bounds // all endpoints together
	Endpoint Bounds // each of them
}

// Usage says what is under way.
type Usage struct{ Connections, Requests, Pending int64 }

// usage counts in one word, so that all counts change, and are compared with
// their bounds, in one atomic step: 22 bits for connections, 22 for requests, 20
// for pending ones. A process has fewer descriptors and goroutines than that.
type usage struct{ word atomic.Uint64 }

const (
	requestShift, pendingShift = 22, 44

	oneConnection = 1
	oneRequest    = 1 << requestShift
	onePending    = 1 << pendingShift

	countMask = 1<<22 - 1
)

func unpack(word uint64) Usage {
	return Usage{
		Connections: int64(word & countMask),
		Requests:    int64(word >> requestShift & countMask),
		Pending:     int64(word >> pendingShift),
	}
}

func (u *usage) load() Usage { return unpack(u.word.Load()) }

// one returns one of a kind, which has a connection already or not.
func (k Kind) one(pending bool) uint64 {
	n := uint64(oneConnection)
	if k == Request {
		n = oneRequest
	}
	if pending {
		n += onePending
	}
	return n
}

// add counts one that is pending, unless that would exceed the bounds.
func (u *usage) add(k Kind, b *Bounds) bool {
	if b == nil {
		u.word.Add(k.one(true))
		return true
	}
	for {
		word := u.word.Load()
		if !unpack(word).fits(k, b) {
			return false
		}
		if u.word.CompareAndSwap(word, word+k.one(true)) {
			return true
		}
	}
}

func (u *usage) sub(n uint64) { u.word.Add(-n) }

// fits reports whether the bounds allow one more of a kind.
func (n Usage) fits(k Kind, b *Bounds) bool {
	have, limit := n.Connections, b.Connections
	if k == Request {
		have, limit = n.Requests, b.Requests
	}
	return (limit == 0 || have < int64(limit)) && (b.Pending == 0 || n.Pending < int64(b.Pending))
}

// full says which bound is reached; "" if none is.
func (n Usage) full(b *Bounds) string {
	for _, x := range []struct {
		have  int64
		limit int
		what  string
	}{{n.Connections, b.Connections, "connections"}, {n.Requests, b.Requests, "requests"}, {n.Pending, b.Pending, "pending"}} {
		if x.limit > 0 && x.have >= int64(x.limit) {
			return fmt.Sprintf("it is at its circuit breaker's bound: %d %s", x.limit, x.what)
		}
	}
	return ""
}

// SetBreaker sets the bounds; nil: none. What is under way already stays, and
// counts.
func (g *Group) SetBreaker(b *Breaker) {
	if b != nil {
		own := *b
		b = &own
	}
	g.breaker.Store(b)
}

// Breaker returns the bounds; nil: none. They must not be changed.
func (g *Group) Breaker() *Breaker { return g.breaker.Load() }

// Acquire counts one that goes to e, before it has a connection. It returns false
// and counts nothing if the breaker does not allow it. No bound is ever exceeded,
// however many call at once; a caller that fails because of the service's bound
// may have kept others from e for a moment, so it must let them try again.
func (g *Group) Acquire(e *Endpoint, k Kind) bool {
	b := g.breaker.Load()
	if b == nil {
		e.state().usage.add(k, nil)
		g.usage.add(k, nil)
		return true
	}
	u := &e.state().usage
	if !u.add(k, &b.Endpoint) {
		return false
	}
	if !g.usage.add(k, &b.Service) {
		u.sub(k.one(true))
		return false
	}
	return true
}

// Established records that one that was acquired has its connection.
func (g *Group) Established(e *Endpoint) {
	e.state().usage.sub(onePending)
	g.usage.sub(onePending)
}

// Release undoes Acquire; pending: there was no Established.
func (g *Group) Release(e *Endpoint, k Kind, pending bool) {
	e.state().usage.sub(k.one(pending))
	g.usage.sub(k.one(pending))
}

// Usage returns what is under way at all endpoints, including removed ones.
func (g *Group) Usage() Usage { return g.usage.load() }

// Full reports whether the service's own bounds allow no more of a kind.
func (g *Group) Full(k Kind) bool {
	b := g.breaker.Load()
	return b != nil && !g.usage.load().fits(k, &b.Service)
}

// Usage returns what is under way at the endpoint.
func (e *Endpoint) Usage() Usage { return e.state().usage.load() }

// Full reports whether bounds, those of the breaker for one endpoint, allow no
// more of a kind here. nil: no bounds.
func (e *Endpoint) Full(k Kind, b *Bounds) bool {
	return b != nil && !e.state().usage.load().fits(k, b)
}

// Active returns the number of connections and requests, including those being
// established.
func (e *Endpoint) Active() int64 {
	u := e.Usage()
	return u.Connections + u.Requests
}

// Relayed is Active without requests: connections that lead only here, each
// with a local port of its own.
func (e *Endpoint) Relayed() int64 { return e.Usage().Connections }
