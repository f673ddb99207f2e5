package mux

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// UnauthenticatedPool bounds the connections that have not authenticated yet. A
// new one is always admitted: at a bound the oldest is evicted, of the new one's
// own source (perSource) or of the source with the most (max). So idle connections
// cannot keep out a client that needs a moment to authenticate.
type UnauthenticatedPool struct {
	max, perSource int

	mu      sync.Mutex
	total   int
	evicted uint64
	sources map[netip.Addr]*list.List // of *unauthenticatedConn, the oldest first
}

type unauthenticatedConn struct {
	source netip.Addr
	evict  func()
}

// NewUnauthenticatedPool makes an empty pool of at most max connections, perSource
// of them from one source.
func NewUnauthenticatedPool(max, perSource int) *UnauthenticatedPool {
	return &UnauthenticatedPool{max: max, perSource: min(perSource, max), sources: map[netip.Addr]*list.List{}}
}

// Add adds a connection. To evict it, the pool calls evict, at most once and on the
// goroutine of a later Add; evict must close the connection and must not block.
// The caller must call leave when the connection has ended or authenticated.
func (s *UnauthenticatedPool) Add(remote net.Addr, evict func()) (leave func()) {
	source := Source(remote)
	s.mu.Lock()
	of := s.sources[source]
	var victim *unauthenticatedConn
	switch {
	case of != nil && of.Len() >= s.perSource:
		victim = s.drop(of.Front())
	case s.total >= s.max:
		victim = s.drop(s.largestSource().Front())
	}
	if of = s.sources[source]; of == nil { // looked up again: drop may have removed it
		of = list.New()
		s.sources[source] = of
	}
	e := of.PushBack(&unauthenticatedConn{source: source, evict: evict})
	s.total++
	if victim != nil {
		s.evicted++
	}
	s.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(e)
	}
}

// drop removes an element. Removing it again has no effect.
func (s *UnauthenticatedPool) drop(e *list.Element) *unauthenticatedConn {
	v := e.Value.(*unauthenticatedConn)
	of := s.sources[v.source]
	if of == nil {
		return v
	}
	before := of.Len()
	of.Remove(e)
	s.total -= before - of.Len()
	if of.Len() == 0 {
		delete(s.sources, v.source)
	}
	return v
}

// largestSource returns the connections of the source with the most.
func (s *UnauthenticatedPool) largestSource() *list.List {
	var most *list.List
	for _, of := range s.sources {
		if most == nil || of.Len() > most.Len() {
			most = of
		}
	}
	return most
}

// Len returns the current number of connections.
func (s *UnauthenticatedPool) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Evicted returns the number of evictions so far.
func (s *UnauthenticatedPool) Evicted() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evicted
}

// Source returns the source under which an address is counted: an IPv4 address or
// an IPv6 /64 network, since one host has all of that. It is the zero Addr for
// addresses other than TCP's.
func Source(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip, ok := netip.AddrFromSlice(t.IP)
	if !ok {
		return netip.Addr{}
	}
	ip = ip.Unmap()
	if ip.Is6() {
		p, _ := ip.Prefix(64) // never fails on 64 of 128 bits
		return p.Addr()
	}
	return ip
}
