package quota

import (
	"math"
	"time"
)

const (
	// fastest and slowest bound the time over which a meter averages. In between it
	// averages over about meterEvents units.
	fastest     = 100 * time.Millisecond
	slowest     = time.Second
	meterEvents = 20
)

// Meter estimates the rate that clients want of a budget from what they took, or
// tried to.
type Meter struct {
	rate float64 // units per second
	// owes: clients still wait for what they have taken. The estimate then falls slowly.
	owes bool
	// Since less came than the estimate said at first: how much less, how much did, and
	// for how long.
	first, missing, came, span float64
	fell                       bool    // the estimate fell at once,
	since                      float64 // so many seconds ago: what was before says nothing
}

// Add takes what came in the last dt: units in parts of about chunk. held: clients
// were held back after they had used units, as bytes are, and would have used more
// than share, which is what the node may use at present. The estimate then doubles
// until they are not.
func (m *Meter) Add(units, chunk float64, dt time.Duration, held bool, share float64) {
	if dt <= 0 {
		return
	}
	now := units / dt.Seconds()
	over := slowest.Seconds()
	if most := max(m.rate, now); most > 0 {
		over = min(max(meterEvents*chunk/most, fastest.Seconds()), over)
	}
	m.since += dt.Seconds()
	m.fall(units, chunk, dt.Seconds())
	if m.fell {
		over = max(min(over, m.since), fastest.Seconds())
	}
	m.rate += (now - m.rate) * (1 - math.Exp(-dt.Seconds()/over))
	if held {
		m.rate = max(m.rate, min(2*share, 4*now+share))
	}
	if m.rate < chunk/60 { // less than one in a minute
		m.rate = 0
	}
}

// fall lowers the estimate at once when chance does not explain how little came lately, to
// what did: others can have the rest. A trace remains, so that the node is not without a
// share if clients come back soon.
func (m *Meter) fall(units, chunk, seconds float64) {
	if m.span == 0 {
		m.first = m.rate
	}
	if m.missing += m.first*seconds - units; m.missing <= 0 || m.owes {
		m.missing, m.came, m.span = 0, 0, 0
		return
	}
	m.came, m.span = m.came+units, m.span+seconds
	all := (m.missing + m.came) / chunk
	if m.missing/chunk > 1+2.5*math.Sqrt(all) {
		m.rate = min(m.rate, max(min(m.came/m.span, units/seconds), chunk/2))
		m.missing, m.came, m.span, m.since, m.fell = 0, 0, 0, 0, true
	}
}

// Rate returns the estimate, in units per second.
func (m *Meter) Rate() float64 { return m.rate }
