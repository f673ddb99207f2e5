package endpoint

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestEjectionInvariants drives a group with random events and checks the
// documented invariants (rule 16 of integration/rules_test.go) after each: no
// more endpoints are ejected than the limit allows; an ejection leaves a usable
// endpoint; it ends without further events after at most ten times its duration;
// and the observer receives each ejection and its end in order.
func TestEjectionInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, now: t0, out: map[string]bool{}}
		m.g = NewGroup("s", m.observe)
		m.resize()
		m.configure()
		t.Repeat(map[string]func(*rapid.T){
			"fail":      func(t *rapid.T) { m.T = t; m.fail() },
			"succeed":   func(t *rapid.T) { m.T = t; m.g.Connected(m.any(), m.now) },
			"check":     func(t *rapid.T) { m.T = t; m.check() },
			"wait":      func(t *rapid.T) { m.T = t; m.wait() },
			"sweep":     func(*rapid.T) { m.g.Sweep(m.now) },
			"resize":    func(t *rapid.T) { m.T = t; m.resize() },
			"configure": func(t *rapid.T) { m.T = t; m.configure() },
			"":          func(t *rapid.T) { m.T = t; m.hold() },
		})
		m.T = t
		m.end()
	})
}

type model struct {
	*rapid.T
	g   *Group
	ej  Ejection
	now time.Time
	out map[string]bool // by address, as reported to the observer
}

func (m *model) any() *Endpoint {
	return rapid.SampledFrom(m.g.Endpoints()).Draw(m.T, "endpoint")
}

func (m *model) observe(ev Event) {
	name := ev.Endpoint.Address
	switch ev.Change {
	case EventEjected:
		if m.out[name] {
			m.Fatalf("%s is ejected twice", name)
		}
		if d := ev.Until.Sub(m.now); d <= 0 || d > MaxEjectionTimes*m.ej.Duration || d != time.Duration(ev.Times)*m.ej.Duration {
			m.Fatalf("%s is ejected for %v, %d times %v", name, d, ev.Times, m.ej.Duration)
		}
		m.out[name] = true
	case EventReturned:
		if !m.out[name] {
			m.Fatalf("%s returns, and was not out", name)
		}
		delete(m.out, name)
	}
}

func (m *model) fail() {
	e := m.any()
	was := e.Ejected(m.now)
	m.g.Failed(e, rapid.SampledFrom([]Failure{ConnectFailed, EarlyReset}).Draw(m.T, "failure"), m.now)
	if was || !e.Ejected(m.now) || m.ej.MaxShare == 100 {
		return
	}
	if !slices.ContainsFunc(m.g.Endpoints(), func(e *Endpoint) bool { return e.Usable(m.now) }) {
		m.Fatal("an ejection took the last usable endpoint")
	}
}

func (m *model) check() {
	m.any().SetHealth(rapid.SampledFrom([]Health{Healthy, Unhealthy}).Draw(m.T, "health"), m.now)
}

func (m *model) wait() {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(m.T, "ms")) * time.Millisecond)
}

func (m *model) resize() {
	set := specs(rapid.IntRange(1, 9).Draw(m.T, "endpoints"))
	m.g.Update(set, m.now)
	for name := range m.out {
		if !slices.ContainsFunc(set, func(s Spec) bool { return s.Address == name }) {
			delete(m.out, name)
		}
	}
}

func (m *model) configure() {
	m.ej = Ejection{
		Failures: rapid.IntRange(1, 4).Draw(m.T, "failures"),
		Window:   time.Duration(rapid.IntRange(1, 20).Draw(m.T, "window")) * time.Second,
		Duration: time.Duration(rapid.IntRange(1, 20).Draw(m.T, "duration")) * time.Second,
		MaxShare: rapid.SampledFrom([]int{0, 10, 30, 50, 80, 100}).Draw(m.T, "share"),
	}
	m.g.Configure(&m.ej, m.now)
}

// hold checks the invariants.
func (m *model) hold() {
	all, out := m.g.Endpoints(), 0
	for _, e := range all {
		if e.Ejected(m.now) {
			out++
			if !m.out[e.Address] {
				m.Fatalf("%s is out, and nobody was told", e.Address)
			}
			if e.Usable(m.now) || e.UsableSince().Before(m.now) {
				m.Fatalf("%s is out, and usable since %v", e.Address, e.UsableSince())
			}
		}
	}
	limit := len(all) * m.ej.MaxShare / 100
	if limit == 0 && len(all) >= 2 && m.ej.MaxShare > 0 {
		limit = 1
	}
	if out > limit {
		m.Fatalf("%d of %d are out, over the cap of %d", out, len(all), limit)
	}
}

// end lets the longest ejection pass: all endpoints are back without further
// events.
func (m *model) end() {
	m.now = m.now.Add(MaxEjectionTimes * 20 * time.Second)
	for _, e := range m.g.Endpoints() {
		if e.Ejected(m.now) {
			m.Fatalf("%s is out for ever", e.Address)
		}
	}
	m.g.Sweep(m.now)
	if len(m.out) != 0 {
		m.Fatalf("nobody was told of the return of %v", m.out)
	}
}

func TestDisablingEjectionReturnsAll(t *testing.T) {
	returned := 0
	g := NewGroup("s", func(ev Event) {
		if ev.Change == EventReturned {
			returned++
		}
	})
	all := g.Update(specs(4), t0)
	g.Configure(&Ejection{Failures: 1, Window: time.Second, Duration: time.Minute, MaxShare: 50}, t0)
	g.Failed(all[0], ConnectFailed, t0)
	g.Failed(all[1], ConnectFailed, t0)
	g.Configure(nil, t0.Add(time.Second))
	if returned != 2 || all[0].Ejected(t0.Add(time.Second)) || all[1].Ejected(t0.Add(time.Second)) {
		t.Errorf("%d came back", returned)
	}
	g.Failed(all[0], ConnectFailed, t0)
	if st := g.History(all[0], t0); st.Failures != 0 || st.Times != 0 || !st.EjectedUntil.IsZero() {
		t.Errorf("failures count without ejection: %+v", st)
	}
}

func TestRemovedEndpointsAreNotEjected(t *testing.T) {
	g := NewGroup("s", func(ev Event) { t.Errorf("%s %v", ev.Endpoint.Address, ev.Change) })
	gone := g.Update(specs(4), t0)[3]
	g.Configure(&Ejection{Failures: 1, Window: time.Second, Duration: time.Minute, MaxShare: 50}, t0)
	g.Update(specs(3), t0)
	g.Failed(gone, ConnectFailed, t0) // on a connection that it still had
	if gone.Ejected(t0) {
		t.Error("it takes the place of another one under the cap")
	}
}

func TestSameEjectionConfigKeepsFailures(t *testing.T) {
	g := NewGroup("s", nil)
	all := g.Update(specs(4), t0)
	terms := Ejection{Failures: 2, Window: time.Second, Duration: time.Minute, MaxShare: 50}
	g.Configure(&terms, t0)
	g.Failed(all[0], ConnectFailed, t0)
	again := terms
	g.Configure(&again, t0)
	g.Failed(all[0], ConnectFailed, t0)
	if !all[0].Ejected(t0) {
		t.Error("the first failure was forgotten")
	}
}

// TestConcurrentUse runs loops, checks, readers and changes on one group, for the
// race detector.
func TestConcurrentUse(t *testing.T) {
	var mu sync.Mutex
	out := map[string]int{}
	g := NewGroup("s", func(ev Event) {
		mu.Lock()
		defer mu.Unlock()
		out[fmt.Sprint(ev.Change)]++
	})
	g.Update(specs(8), t0)
	g.Configure(&Ejection{Failures: 2, Window: time.Second, Duration: time.Millisecond, MaxShare: 50}, t0)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				now := t0.Add(time.Duration(i) * time.Millisecond)
				all := g.Endpoints()
				e := all[(i+w)%len(all)]
				g.Acquire(e, Connection)
				g.Connected(e, now)
				g.Failed(e, EarlyReset, now)
				e.SetHealth(Health(1+(i+w)%2), now)
				_, _ = e.Usable(now), e.UsableSince()
				g.Sweep(now)
				g.Release(e, Connection, true)
				if i%100 == 0 {
					g.Update(specs(4+i/100%8), now)
				}
			}
		})
	}
	wg.Wait()
	for _, e := range g.Endpoints() {
		if e.Active() != 0 {
			t.Errorf("%s counts %d connections that are over", e.Address, e.Active())
		}
	}
	if out["ejected"] == 0 || out["returned"] == 0 {
		t.Errorf("nothing happened: %v", out)
	}
}
