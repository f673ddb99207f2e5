package reactor

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"penstock/internal/testkit"
)

type expireFunc func(t *Timer)

func (f expireFunc) Expired(t *Timer) { f(t) }

// stoppedLoop is a loop whose clock the test moves.
func stoppedLoop() *Loop { return &Loop{} }

// moveTo lets the time become now, as a turn of Run does.
func (l *Loop) moveTo(now time.Duration) {
	l.now = now
	l.wheel.advance(int64(now)>>tickShift, l.fire)
}

const tick = 1 << tickShift * time.Nanosecond

func TestTimersFireInOrderNeverEarlyAndAtMostOneTickLate(t *testing.T) {
	l := stoppedLoop()
	type probe struct {
		Timer
		due, fired time.Duration
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var probes []*probe
	var order []time.Duration
	for range 20_000 {
		p := &probe{}
		p.Init(expireFunc(func(*Timer) {
			p.fired = l.now
			order = append(order, p.due/tick)
		}))
		// From milliseconds to weeks, so that every level is used.
		d := time.Duration(rng.Int64N(1 << (20 + rng.IntN(31))))
		p.due = l.now + d
		l.Arm(&p.Timer, d)
		probes = append(probes, p)
	}
	for len(order) < len(probes) {
		next, ok := l.wheel.next()
		if !ok {
			t.Fatalf("wheel empty after %d of %d", len(order), len(probes))
		}
		if at := time.Duration(next) * tick; at > l.now {
			l.moveTo(at)
		} else {
			t.Fatalf("next tick %d is not after %v", next, l.now)
		}
	}
	if !slices.IsSorted(order) {
		t.Error("fired out of order")
	}
	for _, p := range probes {
		if p.fired < p.due || p.fired > p.due+tick {
			t.Fatalf("due at %v, fired at %v", p.due, p.fired)
		}
		if p.Armed() {
			t.Fatal("still armed after it fired")
		}
	}
	if l.wheel.used != [wheelLevels]uint64{} {
		t.Error("wheel not empty")
	}
}

func TestTimersFireWhenTheClockLeaps(t *testing.T) {
	l := stoppedLoop()
	var fired []time.Duration
	for _, d := range []time.Duration{time.Hour, time.Millisecond, 36 * time.Hour, time.Second, 0, -1} {
		tm := &Timer{}
		tm.Init(expireFunc(func(*Timer) { fired = append(fired, d) }))
		l.Arm(tm, d)
	}
	l.moveTo(48 * time.Hour)
	if len(fired) != 6 || !slices.IsSorted(fired[2:]) || fired[5] != 36*time.Hour {
		t.Errorf("fired %v", fired)
	}
}

func TestDisarmedAndRearmedTimers(t *testing.T) {
	l := stoppedLoop()
	fired := map[string]time.Duration{}
	timer := func(name string) *Timer {
		tm := &Timer{}
		tm.Init(expireFunc(func(*Timer) { fired[name] = l.now }))
		return tm
	}
	off, moved, twice := timer("off"), timer("moved"), timer("twice")
	l.Arm(off, time.Second)
	l.Arm(moved, time.Second)
	l.Arm(moved, time.Minute)
	l.Arm(twice, time.Second)
	l.Disarm(off)
	l.Disarm(off)
	l.moveTo(2 * time.Second)
	if len(fired) != 1 || fired["twice"] == 0 {
		t.Fatalf("after 2 s: %v", fired)
	}
	l.Arm(twice, time.Second)
	l.moveTo(2 * time.Minute)
	if fired["moved"] == 0 || fired["twice"] != 2*time.Minute || fired["off"] != 0 {
		t.Fatalf("after 2 min: %v", fired)
	}
}

func TestATimerMayDisarmAnotherOfItsTick(t *testing.T) {
	l := stoppedLoop()
	var a, b Timer
	n := 0
	a.Init(expireFunc(func(*Timer) { n++; l.Disarm(&b) }))
	b.Init(expireFunc(func(*Timer) { n++; l.Disarm(&a) }))
	for _, d := range []time.Duration{time.Second, time.Hour} {
		n = 0
		l.Arm(&a, d)
		l.Arm(&b, d)
		l.moveTo(l.now + 2*d)
		if n != 1 || a.Armed() || b.Armed() {
			t.Errorf("after %v: %d fired", d, n)
		}
	}
}

func TestExtremeDelays(t *testing.T) {
	l := stoppedLoop()
	l.moveTo(time.Hour)
	var tm Timer
	tm.Init(expireFunc(func(*Timer) {}))
	l.Arm(&tm, 1<<63-1)
	if next, ok := l.wheel.next(); !ok || next <= l.wheel.now {
		t.Fatalf("next is %d, %v", next, ok)
	}
	l.moveTo(11 * 365 * 24 * time.Hour)
	if tm.Armed() {
		t.Error("did not fire within 11 years")
	}
}

func TestTimersOnARunningLoop(t *testing.T) {
	l := runLoop(t, Config{})
	fired := make(chan time.Duration, 3)
	var armed time.Duration
	do(t, l, func() {
		armed = l.Now()
		for _, d := range []time.Duration{30, 10, 20} {
			tm := &Timer{}
			tm.Init(expireFunc(func(*Timer) { fired <- d }))
			l.Arm(tm, d*time.Millisecond)
		}
	})
	for _, want := range []time.Duration{10, 20, 30} {
		if got := testkit.Receive(t, "a timer to fire", fired); got != want {
			t.Errorf("the timer of %d ms fired, want %d", got, want)
		}
	}
	do(t, l, func() {
		if took := l.Now() - armed; took < 30*time.Millisecond {
			t.Errorf("all fired after %v", took)
		}
	})
}

func BenchmarkArmDisarmAmong100k(b *testing.B) {
	l := stoppedLoop()
	timers := make([]Timer, 100_000)
	for i := range timers {
		l.Arm(&timers[i], time.Hour+time.Duration(i)*time.Millisecond)
	}
	order := rand.Perm(len(timers))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		t := &timers[order[i%len(order)]]
		l.Disarm(t)
		l.Arm(t, time.Hour+time.Duration(i&0xffff)*time.Millisecond)
	}
}
