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
	m.rate += (now - m.rate) * (1 - math.Exp(-dt.Seconds()/over))
	if held {
		m.rate = max(m.rate, min(2*share, 4*now+share))
	}
	if m.rate < chunk/60 { // less than one in a minute
		m.rate = 0
	}
}

// Rate returns the estimate, in units per second.
func (m *Meter) Rate() float64 { return m.rate }
