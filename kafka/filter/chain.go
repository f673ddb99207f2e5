package filter

import (
	"errors"
	"fmt"
	"math/bits"

	"penstock/kafka/wire"
)

// MaxFilters bounds the filters of a chain.
const MaxFilters = 64

// ErrChain means that filters cannot form a chain.
var ErrChain = errors.New("filter chain")

// A Chain is the compiled filters of a virtual cluster: which filters see a
// message, by API and version, and what clients are offered. It is immutable
// and shared by connections.
type Chain struct {
	filters []Filter
	offered [wire.MaxKey + 1]Range
	// rows has where the interests for each key begin in index, by version; they
	// are few, and the same for most.
	rows         [wire.MaxKey + 1]uint16
	index        []uint8
	interestSets []interests
}

// interests are the filters that want to see a message, by direction, one bit
// each.
type interests struct {
	whole, walk [2]uint64
}

func (w *interests) any() uint64 { return w.whole[0] | w.whole[1] | w.walk[0] | w.walk[1] }

func (w *interests) interest(d Direction) Interest {
	switch {
	case w.whole[d] != 0:
		return Whole
	case w.walk[d] != 0:
		return Walk
	}
	return Nothing
}

// NewChain compiles filters, in the order in which requests see them.
func NewChain(filters []Filter) (*Chain, error) {
	if len(filters) > MaxFilters {
		return nil, fmt.Errorf("%w: %d filters, at most %d", ErrChain, len(filters), MaxFilters)
	}
	c := &Chain{filters: filters}
	known := map[interests]uint8{}
	for key := range c.offered {
		lowest, highest, ok := wire.Known(int16(key))
		c.rows[key] = uint16(len(c.index))
		if !ok {
			c.offered[key] = Hidden
			continue
		}
		c.offered[key] = c.offer(int16(key), Range{lowest, highest})
		for version := int16(0); version <= highest; version++ {
			w := c.interests(int16(key), version)
			at, ok := known[w]
			if !ok {
				if len(c.interestSets) > 255 {
					return nil, fmt.Errorf("%w: filters have more than 256 different sets of interests", ErrChain)
				}
				at = uint8(len(c.interestSets))
				known[w] = at
				c.interestSets = append(c.interestSets, w)
			}
			c.index = append(c.index, at)
		}
	}
	return c, nil
}

// offer has all filters narrow a range.
func (c *Chain) offer(key int16, have Range) Range {
	for _, f := range c.filters {
		r := f.Versions(key, have)
		have = Range{max(have.Min, r.Min), min(have.Max, r.Max)}
		if have.Min > have.Max {
			return Hidden
		}
	}
	return have
}

func (c *Chain) interests(key, version int16) (w interests) {
	for i, f := range c.filters {
		for _, d := range [...]Direction{Request, Response} {
			switch want := f.Wants(d, key, version); {
			case want == Whole, want == Walk && !wire.Walkable(wire.Direction(d), key, version):
				w.whole[d] |= 1 << i
			case want == Walk:
				w.walk[d] |= 1 << i
			}
		}
	}
	return w
}

var noInterests interests

func (c *Chain) find(key, version int16) *interests {
	if key < 0 || int(key) >= len(c.rows) || version < 0 {
		return &noInterests
	}
	at, end := int(c.rows[key])+int(version), len(c.index)
	if int(key)+1 < len(c.rows) {
		end = int(c.rows[key+1])
	}
	if at >= end {
		return &noInterests
	}
	return &c.interestSets[c.index[at]]
}

// Len returns the number of filters.
func (c *Chain) Len() int { return len(c.filters) }

// Offered returns the versions of an API that clients may use, or Hidden.
func (c *Chain) Offered(key int16) Range {
	if key < 0 || int(key) >= len(c.offered) {
		return Hidden
	}
	return c.offered[key]
}

// Offers reports whether clients may send such a request.
func (c *Chain) Offers(key, version int16) bool {
	r := c.Offered(key)
	return version >= r.Min && version <= r.Max
}

// Interest returns the highest interest of all filters. If some filters want to
// Walk a message and others to see the Whole of it, it is Whole.
func (c *Chain) Interest(d Direction, key, version int16) Interest {
	return c.find(key, version).interest(d)
}

// Concerns reports whether any filter wants to see the request or its response.
func (c *Chain) Concerns(key, version int16) bool { return c.find(key, version).any() != 0 }

// Open opens the filters for one connection.
func (c *Chain) Open(info Info, ends Sink) *Conns {
	s := &Conns{chain: c, sink: ends}
	if len(c.filters) > 0 {
		if s.conns = s.inline[:0]; len(c.filters) > len(s.inline) {
			s.conns = make([]Conn, 0, len(c.filters))
		}
		for _, f := range c.filters {
			s.conns = append(s.conns, f.Open(info))
		}
	}
	return s
}

// A Sink takes the messages that leave a chain: the session.
type Sink interface {
	// ToBroker sends a request that has passed the filters: the client's, or a
	// filter's own (c.Own). Its response goes to c.Respond.
	ToBroker(c *Call) error
	// ToClient sends the response to a request of the client's, from the broker
	// or a filter, and calls c.Done.
	ToClient(c *Call) error
	// Dropped is called for a request that a filter dropped, and calls c.Done.
	Dropped(c *Call) error
}

// Conns is an open chain: the part of one connection in each filter. Only the
// loop of that connection may use it.
type Conns struct {
	chain     *Chain
	conns     []Conn
	sink      Sink
	inline    [3]Conn // conns, where they are not more
	calls     int     // that are not done
	onRetired func()  // what Retire was given; nil: in use
}

// Chain returns the chain that was opened.
func (s *Conns) Chain() *Chain { return s.chain }

// Retire closes the filters once no call is left, then calls done. No call may
// begin after it.
func (s *Conns) Retire(done func()) {
	s.onRetired = done
	s.closeIdle()
}

func (s *Conns) closeIdle() {
	if s.onRetired == nil || s.calls > 0 {
		return
	}
	for _, c := range s.conns {
		c.Close()
	}
	done := s.onRetired
	s.conns, s.onRetired, s.calls = nil, nil, 1<<30 // never again
	done()
}

// Begin begins a request that the chain Concerns.
func (s *Conns) Begin(key, version int16, clientID string, noResponse bool) *Call {
	return s.begin(key, version, clientID, noResponse, 0)
}

// begin leaves out the filters before from.
func (s *Conns) begin(key, version int16, clientID string, noResponse bool, from int) *Call {
	s.calls++
	c := &Call{conns: s, key: key, version: version, clientID: clientID, noResponse: noResponse, interests: s.chain.find(key, version)}
	who := c.interests.any() >> from << from
	c.parts = c.inline[:0]
	if n := bits.OnesCount64(who); n > len(c.inline) {
		c.parts = make([]part, 0, n)
	}
	for ; who != 0; who &= who - 1 {
		x := NewExchange(key, version, clientID, c)
		x.NoResponse = noResponse
		c.parts = append(c.parts, part{filter: bits.TrailingZeros64(who), x: x})
	}
	return c
}
