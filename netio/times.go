package netio

import (
	"math/bits"
	"time"

	"penstock/netio/reactor"
	"penstock/netio/relay"
)

// Times say when a connection came how far: the time since it was accepted, at least
// a microsecond; 0: not yet. They are those of the loop's clock, which is read once a
// turn, and kept to one part in 2048: a microsecond up to 4 ms, a millisecond up to 2 s.
type Times struct {
	// Identified: the client's first bytes were understood, TLS included; for a
	// Greeter, which speaks with the client itself, it first asked for an endpoint.
	Identified time.Duration
	// Decided: Handler.Route had returned a plan, and a Greeter asked for an endpoint.
	Decided time.Duration
	// Connecting: the first attempt to connect began.
	Connecting time.Duration
	// Connected: an endpoint had taken the connection; of a Greeter that connects
	// again, the last one.
	Connected time.Duration
	// FirstIn and FirstOut: the first byte of what one side sends to the other arrived,
	// from the client and from the endpoint. A hello that is passed through is one; a
	// PROXY header and TLS that ends here are not.
	FirstIn, FirstOut time.Duration
}

// Times returns the times of the connection.
func (c *Conn) Times() Times {
	t := &c.times
	return Times{
		Identified: t.identified.duration(), Decided: t.decided.duration(), Connecting: t.connecting.duration(),
		Connected: t.connected.duration(), FirstIn: t.first[relay.Client].duration(), FirstOut: t.first[relay.Upstream].duration(),
	}
}

// Accepted returns when the connection was accepted, by the clock on the wall: what that
// clock says now, less the connection's age.
func (c *Conn) Accepted() time.Time {
	now := time.Now()
	return now.Add(c.born - reactor.Since(now))
}

// times are the Times of a connection, small: there is one for each idle connection.
type times struct {
	identified, decided, connecting, connected stamp
	first                                      [2]stamp // by the side that sent
}

// stamp is a time since a connection was accepted, in microseconds, as a number with
// an exponent of 5 bits and a fraction of 11: two bytes reach from 1 us to 50 days. 0:
// never. Later times have no smaller stamps.
type stamp uint16

const (
	stampBits  = 11
	stampUnit  = 1 << stampBits        // times below twice this are exact
	stampScale = 1<<(16-stampBits) - 2 // the largest exponent
)

// stampOf returns the stamp of a time since a connection was accepted.
func stampOf(d time.Duration) stamp {
	us := uint64(max(d/time.Microsecond, 1))
	scale := max(bits.Len64(us)-stampBits-1, 0)
	if scale > stampScale {
		return 1<<16 - 1
	}
	return stamp(scale*stampUnit + int(us>>scale))
}

// duration returns the time; 0: never.
func (s stamp) duration() time.Duration {
	if s < 2*stampUnit {
		return time.Duration(s) * time.Microsecond
	}
	scale := s/stampUnit - 1
	return time.Duration(s%stampUnit+stampUnit) << scale * time.Microsecond
}

// mark sets a time to now.
func (c *Conn) mark(s *stamp) { *s = stampOf(c.Age()) }

// markFirst records the first byte from a side, unless it says who the client is for
// this node alone.
func (c *Conn) markFirst(from relay.Side) {
	if c.phase != phaseProxy && c.phase != phaseMeshHeader {
		c.mark(&c.times.first[from])
	}
}

// markDecided records that the client is identified and has a destination.
func (c *Conn) markDecided() {
	if c.times.identified == 0 {
		c.mark(&c.times.identified)
	}
	if c.times.decided == 0 {
		c.mark(&c.times.decided)
	}
}
