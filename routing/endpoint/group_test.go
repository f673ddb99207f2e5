package endpoint

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

var t0 = time.Unix(1_700_000_000, 0)

// specs returns n endpoints.
func specs(n int) []Spec {
	set := make([]Spec, n)
	for i := range set {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
		set[i] = Spec{Address: addr.String(), Addr: addr}
	}
	return set
}

func TestStateIsKeptWhileIdentityStays(t *testing.T) {
	g := NewGroup("apps", nil)
	set := specs(3)
	first := g.Update(set, t0)
	g.Acquire(first[1], Connection)
	first[1].SetHealth(Unhealthy, t0)

	set[1].Tags = map[string]string{"version": "v2"}
	second := g.Update([]Spec{set[1], set[0]}, t0.Add(time.Second))
	if second[1] != first[0] {
		t.Error("an endpoint that nothing happened to was replaced")
	}
	if e := second[0]; e == first[1] || e.Tags["version"] != "v2" || first[1].Tags != nil {
		t.Errorf("new tags: got %v, and %v in the old one", e.Tags, first[1].Tags)
	}
	if e := second[0]; e.Active() != 1 || e.Health() != Unhealthy {
		t.Errorf("new tags lost the state: %d active, %v", e.Active(), e.Health())
	}
	g.Release(first[1], Connection, true)
	if n := second[0].Active(); n != 0 {
		t.Errorf("a connection that began before the new tags still counts: %d active", n)
	}

	g.Update(set[:1], t0.Add(2*time.Second))
	third := g.Update(set, t0.Add(3*time.Second))
	if e := third[1]; e.Health() != Unchecked || !e.UsableSince().Equal(t0.Add(3*time.Second)) {
		t.Errorf("one that came again has a past: %v, usable since %v", e.Health(), e.UsableSince())
	}
	if since := third[0].UsableSince(); !since.IsZero() {
		t.Errorf("one that was there from the start is usable since %v", since)
	}
}

func TestDuplicateAddressIsOneEndpoint(t *testing.T) {
	g := NewGroup("apps", nil)
	set := specs(1)
	again := set[0]
	again.Tags = map[string]string{"version": "v2"}
	got := g.Update([]Spec{set[0], set[0], again}, t0)
	if got[0] != got[1] {
		t.Error("the same address became two endpoints")
	}
	g.Acquire(got[2], Connection)
	if got[0].Active() != 1 {
		t.Error("the same address under other tags counts apart")
	}
}

func TestRecoveryStartsSlowStart(t *testing.T) {
	var e Endpoint // an Endpoint works without a group
	if !e.Usable(t0) || e.Health() != Unchecked {
		t.Fatalf("a new endpoint is not usable: %v", e.Health())
	}
	if !e.SetHealth(Unhealthy, t0) || e.SetHealth(Unhealthy, t0) || e.Usable(t0) {
		t.Error("unhealthy did not take it out once")
	}
	if !e.SetHealth(Healthy, t0.Add(time.Minute)) || !e.Usable(t0) {
		t.Error("healthy did not bring it back")
	}
	if got := e.UsableSince(); !got.Equal(t0.Add(time.Minute)) {
		t.Errorf("usable since %v", got)
	}
}

func TestEventsReachTheObserverWithoutTheLock(t *testing.T) {
	var g *Group
	var seen []string
	g = NewGroup("apps", func(ev Event) {
		g.Endpoints() // would deadlock with the lock held
		seen = append(seen, fmt.Sprint(ev.Service, " ", ev.Change, " ", ev.Cause))
	})
	all := g.Update(specs(2), t0)
	g.Configure(&Ejection{Failures: 1, Window: time.Second, Duration: time.Second, MaxShare: 50}, t0)
	g.Failed(all[0], EarlyReset, t0)
	g.Sweep(t0.Add(time.Second))
	want := "[apps ejected early reset apps returned ]"
	if fmt.Sprint(seen) != want {
		t.Errorf("got %v, want %v", seen, want)
	}
}

// Only an endpoint that was unusable has a slow start: at its first passing
// check an endpoint already has its full share.
func TestFirstCheckStartsNoSlowStart(t *testing.T) {
	e := NewGroup("apps", nil).Update(specs(1), t0)[0]
	e.SetHealth(Healthy, t0.Add(time.Second))
	if since := e.UsableSince(); !since.IsZero() {
		t.Errorf("slow start from %v", since)
	}
}

// The slow start begins at the end of the ejection or at the passing check,
// whichever is later.
func TestSlowStartBeginsAtEndOfEjection(t *testing.T) {
	g := NewGroup("apps", nil)
	g.Configure(&Ejection{Failures: 1, Window: time.Minute, Duration: time.Minute, MaxShare: 100}, t0)
	e := g.Update(specs(1), t0)[0]
	e.SetHealth(Unhealthy, t0)
	g.Failed(e, EarlyReset, t0)
	e.SetHealth(Healthy, t0.Add(time.Second))
	if want := t0.Add(time.Minute); !e.UsableSince().Equal(want) {
		t.Errorf("usable since %v, ejected until %v", e.UsableSince(), want)
	}
}

// A change of the configuration discards counted failures, and no configuration
// makes the record of failures large.
func TestChangedEjectionConfigResetsFailures(t *testing.T) {
	terms := Ejection{Failures: 2, Window: time.Hour, Duration: time.Minute, MaxShare: 100}
	g := NewGroup("apps", nil)
	g.Configure(&terms, t0)
	e := g.Update(specs(1), t0)[0]
	g.Failed(e, EarlyReset, t0)
	terms.Window = 2 * time.Hour
	g.Configure(&terms, t0)
	g.Failed(e, EarlyReset, t0)
	if e.Ejected(t0) {
		t.Error("a failure under other terms counts")
	}
	terms.Failures = 1 << 30
	g.Configure(&terms, t0)
	g.Failed(e, EarlyReset, t0)
	if n := len(e.state().record.marks); n > maxFailures {
		t.Errorf("room for %d failures", n)
	}
}

// The next connection reports the end of an ejection even without Sweep.
func TestReturnIsReportedWithTheNextConnection(t *testing.T) {
	var told []Change
	g := NewGroup("apps", func(ev Event) { told = append(told, ev.Change) })
	g.Configure(&Ejection{Failures: 1, Window: time.Minute, Duration: time.Minute, MaxShare: 100}, t0)
	e := g.Update(specs(1), t0)[0]
	g.Failed(e, EarlyReset, t0)
	g.Connected(e, t0.Add(time.Hour))
	if len(told) != 2 || told[1] != EventReturned {
		t.Errorf("told %v", told)
	}
}
