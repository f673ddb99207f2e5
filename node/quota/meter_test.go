package quota

import (
	"math"
	"testing"
)

func TestAMeterFollowsAChangeOfManyWithinATenthOfASecond(t *testing.T) {
	var m Meter
	for range 20 {
		m.Add(50, 1, tick, false, 0)
	}
	if got := m.Rate(); math.Abs(got-1000) > 10 {
		t.Errorf("50 in each %v are %v in a second", tick, got)
	}
	for range 8 { // 400 ms
		m.Add(0, 1, tick, false, 0)
	}
	if got := m.Rate(); got > 60 {
		t.Errorf("400 ms after the last of 1000 in a second it is still %v", got)
	}
}

// What clients wanted before they left is soon nobody's, whether all of them leave or most.
func TestAMeterFollowsClientsThatLeaveAtOnce(t *testing.T) {
	for _, left := range []float64{0, 1} { // in each tick
		var m Meter
		for range 40 {
			m.Add(10, 1, tick, false, 0)
		}
		for range 3 {
			m.Add(left, 1, tick, false, 0)
		}
		if got, want := m.Rate(), left/tick.Seconds(); got > want+10 || got < want/2 {
			t.Errorf("150 ms after 200 in a second became %v they are estimated as %v", want, got)
		}
	}
}

// Clients that wait for what they have taken do not take more meanwhile.
func TestAMeterOfClientsInDebtFallsSlowly(t *testing.T) {
	m := Meter{owes: true}
	for range 40 {
		m.Add(10, 1, tick, false, 0)
	}
	m.Add(0, 1, tick, false, 0)
	if got := m.Rate(); got < 100 {
		t.Errorf("50 ms after the last of 200 in a second, in debt, it is %v", got)
	}
}

func TestAMeterOfFewIsSteady(t *testing.T) {
	var m Meter
	least, most := math.Inf(1), 0.0
	for i := range 400 { // one in each 200 ms
		units := 0.0
		if i%4 == 0 {
			units = 1
		}
		m.Add(units, 1, tick, false, 0)
		if i > 100 {
			least, most = min(least, m.Rate()), max(most, m.Rate())
		}
	}
	if least < 4 || most > 6 {
		t.Errorf("5 in a second are estimated as %v to %v", least, most)
	}
}

func TestAMeterOfBytesThatAreHeldBackDoubles(t *testing.T) {
	var m Meter
	share := 1000.0
	for range 5 {
		m.Add(share*tick.Seconds(), 100, tick, true, share)
		share = m.Rate()
	}
	if share < 16_000 {
		t.Errorf("after 5 steps the estimate is %v, want it to double each time from 1000", share)
	}
	m.Add(0, 100, tick, false, share)
	if m.Rate() > share {
		t.Error("the estimate grew though nobody was held back")
	}
}

func TestAMeterForgetsWhatIsIdle(t *testing.T) {
	var m Meter
	m.Add(1, 1, tick, false, 0)
	for range 40 * 60 {
		m.Add(0, 1, tick, false, 0)
	}
	if m.Rate() != 0 {
		t.Errorf("after two minutes without demand the estimate is %v", m.Rate())
	}
}
