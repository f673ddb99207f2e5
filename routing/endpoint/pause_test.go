package endpoint

import (
	"testing"
	"time"
)

// pausedFor makes an endpoint fail and returns the length of its pause.
func pausedFor(t *testing.T, g *Group, e *Endpoint, f Fault, now time.Time) time.Duration {
	t.Helper()
	g.RecordFault(e, f, now)
	if !e.Paused(now) || e.Ready(now) || !e.Usable(now) {
		t.Fatalf("after a failed connect: paused %v, ready %v, usable %v", e.Paused(now), e.Ready(now), e.Usable(now))
	}
	return e.PausedUntil().Sub(now)
}

func TestPausesGrowUntilASuccess(t *testing.T) {
	g := NewGroup("s", nil)
	e, now := g.Update(specs(1), t0)[0], t0
	for _, f := range []Failure{ConnectFailed, ConnectTimedOut} {
		probe := false
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			want *= time.Second
			if d := pausedFor(t, g, e, Fault{Failure: f, Probe: probe}, now); d > want || d < want*4/5 {
				t.Errorf("a pause of %v, want %v, or up to a fifth less", d, want)
			}
			now = e.PausedUntil()
			if !e.Ready(now) {
				t.Fatal("not ready for a probe after the pause")
			}
			if probe, _ = e.Claim(now, time.Second); !probe {
				t.Fatal("the first connection after the pause is no probe")
			}
		}
		g.Reached(e, now)
		if e.Paused(now) || g.History(e, now).Pauses != 0 {
			t.Error("paused after a success")
		}
		if probe, ok := e.Claim(now, time.Second); probe || !ok {
			t.Error("a connection after a success is a probe")
		}
	}
}

// Failures of connections that were in progress when the pause began do not
// extend it.
func TestFailuresInProgressDoNotExtendPause(t *testing.T) {
	g := NewGroup("s", nil)
	e := g.Update(specs(1), t0)[0]
	first := pausedFor(t, g, e, Fault{Failure: ConnectTimedOut}, t0)
	for _, after := range []time.Duration{0, time.Millisecond, time.Second, time.Minute} {
		g.RecordFault(e, Fault{Failure: ConnectTimedOut}, t0.Add(after))
	}
	if d := e.PausedUntil().Sub(t0); d != first {
		t.Errorf("the pause grew from %v to %v", first, d)
	}
}

func TestOneProbeAtATime(t *testing.T) {
	g := NewGroup("s", nil)
	e := g.Update(specs(1), t0)[0]
	now := t0.Add(pausedFor(t, g, e, Fault{Failure: ConnectFailed}, t0))
	claim := func(at time.Time) bool {
		probe, ok := e.Claim(at, 2*time.Second)
		return probe && ok
	}
	if !claim(now) || claim(now) || e.Ready(now) || !e.Paused(now) {
		t.Error("two connections probe together")
	}
	e.AbandonProbe() // the client went away
	if !e.Ready(now) || !claim(now) {
		t.Error("nobody may probe after a probe without a result")
	}
	if e.Ready(now.Add(2*time.Second-1)) || !claim(now.Add(2*time.Second)) {
		t.Error("a probe of which nothing is heard holds others away for longer than its lease, or not as long")
	}
}

// Failures other than failed connects only count towards an ejection.
func TestOnlyFailedConnectsPause(t *testing.T) {
	g := NewGroup("s", nil)
	e := g.Update(specs(1), t0)[0]
	for _, f := range []Failure{EarlyReset, NoAnswer} {
		g.RecordFault(e, Fault{Failure: f, Error: "why"}, t0)
		if e.Paused(t0) {
			t.Errorf("paused after %v", f)
		}
	}
	if st := g.History(e, t0); st.Error != "why" || !st.ErrorAt.Equal(t0) {
		t.Errorf("the last failure is %q at %v", st.Error, st.ErrorAt)
	}
}

func TestPassingHealthCheckEndsPause(t *testing.T) {
	g := NewGroup("s", nil)
	e := g.Update(specs(1), t0)[0]
	pausedFor(t, g, e, Fault{Failure: ConnectFailed}, t0)
	now := t0.Add(time.Millisecond)
	e.EndPause(t0.Add(-time.Millisecond), now)
	if e.Ready(now) {
		t.Error("a check that began before the failure ended the pause")
	}
	e.EndPause(t0, now)
	if probe, ok := e.Claim(now, time.Second); !e.Ready(now) && !probe || !ok {
		t.Error("a check that began after the failure left the pause")
	}
}

// An endpoint that active checks find healthy again serves at once.
func TestRecoveryEndsEjectionAndPause(t *testing.T) {
	var returned []Change
	g := NewGroup("s", nil)
	g.Configure(&Ejection{Failures: 1, Window: time.Second, Duration: time.Hour, MaxShare: 50}, t0)
	e := g.Update(specs(2), t0)[0]
	g.RecordFault(e, Fault{Failure: ConnectFailed}, t0)
	if !e.Ejected(t0) || !e.Paused(t0) {
		t.Fatal("neither ejected nor paused")
	}
	now := t0.Add(time.Millisecond)
	for _, ev := range g.Recovered(e, now) {
		returned = append(returned, ev.Change)
	}
	if !e.Ready(now) || len(returned) != 2 || returned[0] != EventReturned || returned[1] != EventResumed {
		t.Errorf("ready %v, events %v", e.Ready(now), returned)
	}
	if !e.UsableSince().Equal(now) {
		t.Errorf("its slow start begins at %v, want %v", e.UsableSince(), now)
	}
	if events := g.Recovered(e, now); len(events) != 0 {
		t.Errorf("again: %v", events)
	}
}

// An endpoint that fails intermittently does not flood the log.
func TestPauseReportsAreRateLimited(t *testing.T) {
	told := map[Change]int{}
	g := NewGroup("s", func(ev Event) { told[ev.Change]++ })
	e := g.Update(specs(1), t0)[0]
	for i := range 1000 {
		now := t0.Add(time.Duration(i) * 20 * time.Millisecond)
		g.RecordFault(e, Fault{Failure: ConnectFailed}, now)
		g.Reached(e, now)
	}
	if told[EventPaused] != 2 || told[EventResumed] != 2 {
		t.Errorf("in 20 s of failures and successes: %v", told)
	}
}
