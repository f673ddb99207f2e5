package mux

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// UnauthenticatedPool bounds connections of those who have not shown who they are. A
// newcomer is always let in: where there are too many, the oldest goes, of
// the newcomer's own source or of the source that has most. Someone who
// needs a moment to show who he is gets it even where others sit in silence.
type UnauthenticatedPool struct {
	max, perSource int

	mu      sync.Mutex
	total   int
	evicted uint64
	sources map[netip.Addr]*list.List // of *stranger, the oldest first
}

type unauthenticatedConn struct {
	source netip.Addr
	evict  func()
}

// NewUnauthenticatedPool makes an empty table of at most max strangers, perSource of
// them from one source.
func NewUnauthenticatedPool(max, perSource int) *UnauthenticatedPool {
	return &UnauthenticatedPool{max: max, perSource: min(perSource, max), sources: map[netip.Addr]*list.List{}}
}

// Add lets a stranger in. evict is called, at most once and from another
// goroutine, when it must go: it closes the connection and must not block.
// leave is to be called when it has gone or has shown who it is.
func (s *UnauthenticatedPool) Add(remote net.Addr, evict func()) (leave func()) {
	source := Source(remote)
	s.mu.Lock()
	of := s.sources[source]
	var victim *unauthenticatedConn
	switch {
	case of != nil && of.Len() >= s.perSource:
		victim = s.drop(of.Front())
	case s.total >= s.max:
		victim = s.drop(s.heaviest().Front())
	}
	if of = s.sources[source]; of == nil { // anew: it may have been its last that went
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

// drop takes an element out, once.
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

// heaviest is the source that has most.
func (s *UnauthenticatedPool) heaviest() *list.List {
	var most *list.List
	for _, of := range s.sources {
		if most == nil || of.Len() > most.Len() {
			most = of
		}
	}
	return most
}

// Len is how many there are now.
func (s *UnauthenticatedPool) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Evicted is how many had to go.
func (s *UnauthenticatedPool) Evicted() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evicted
}

// Source is what counts as one source: an IPv4 address or an IPv6 network
// of 64 bits, since one host has all of that. What has no IP address is the
// zero Addr.
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
