package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/internal/testkit"
	"penstock/routing/endpoint"
)

// network simulates the endpoints: it defines which are up, and records dials.
type network struct {
	mu      sync.Mutex
	start   time.Time
	state   map[string]string // address -> "down", "hung", "late"; up if missing
	dials   []string          // "address at time"
	at      map[string][]time.Time
	open    int // dials in progress
	mostNow int
}

func newNetwork() *network {
	return &network{start: time.Now(), state: map[string]string{}, at: map[string][]time.Time{}}
}

func (n *network) set(address, state string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state[address] = state
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dials = append(n.dials, fmt.Sprint(address, " at ", time.Since(n.start)))
	n.at[address] = append(n.at[address], time.Now())
	n.open++
	n.mostNow = max(n.mostNow, n.open)
	state := n.state[address]
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.open--
		n.mu.Unlock()
	}()
	switch state {
	case "down":
		return nil, errors.New("refused")
	case "hung":
		<-ctx.Done()
		return nil, ctx.Err()
	case "late": // connects although the probe was canceled
		<-ctx.Done()
	default:
		<-time.After(time.Millisecond)
	}
	near, far := net.Pipe()
	far.Close()
	return near, nil
}

// count returns the number of dials to an address since the last call.
func (n *network) count(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := len(n.at[address])
	n.at[address] = nil
	return k
}

// world is a Checker in a bubble, with a network and services.
type world struct {
	*testing.T
	net    *network
	c      *Checker
	events []string
	mu     sync.Mutex
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, net: newNetwork()}
	w.c = New(Config{Dial: w.net.dial})
	t.Cleanup(w.c.Close)
	return w
}

// group returns a service with endpoints at 10.0.0.i:80.
func (w *world) group(service string, n int) *endpoint.Group {
	g := endpoint.NewGroup(service, func(ev endpoint.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.c.Status() // would deadlock with the Checker's lock held
		w.events = append(w.events, strings.TrimSpace(fmt.Sprint(ev.Service, " ", ev.Endpoint.Address, " ", ev.Change, " ", ev.Cause)))
	})
	g.Update(specs(n), time.Now())
	return g
}

func specs(n int) []endpoint.Spec {
	set := make([]endpoint.Spec, n)
	for i := range set {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
		set[i] = endpoint.Spec{Address: addr.String(), Addr: addr}
	}
	return set
}

func targets(check *Check, groups ...*endpoint.Group) (all []Target) {
	for _, g := range groups {
		for _, e := range g.Endpoints() {
			all = append(all, Target{g, e, check})
		}
	}
	return all
}

// after advances the time and waits until all goroutines are idle.
func (w *world) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) wantEvents(want ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.events)
	if !slices.Equal(w.events, want) {
		w.Errorf("events %q, want %q", w.events, want)
	}
	w.events = nil
}

func (w *world) wantHealth(g *endpoint.Group, want ...endpoint.Health) {
	w.Helper()
	var got []endpoint.Health
	for _, e := range g.Endpoints() {
		got = append(got, e.Health())
	}
	if !slices.Equal(got, want) {
		w.Errorf("%s: health %v, want %v", g.Service(), got, want)
	}
}

const (
	unchecked = endpoint.Unchecked
	healthy   = endpoint.Healthy
	unhealthy = endpoint.Unhealthy
)

func plain() *Check {
	return &Check{Interval: time.Second, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 2}
}

// inBubble runs a test with a fake clock.
func inBubble(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) { test(newWorld(t)) })
}

// Health changes after rise and fall: rule 16 of integration/rules_test.go.
func TestHealthOverTime(t *testing.T) {
	inBubble(t, func(w *world) {
		w.net.set("10.0.0.1:80", "down")
		w.net.set("10.0.0.2:80", "hung")
		g := w.group("apps", 3)
		w.wantHealth(g, unchecked, unchecked, unchecked)
		w.c.Set(targets(plain(), g))
		w.after(2 * time.Millisecond)
		w.wantHealth(g, healthy, unhealthy, unchecked) // the timeout is not over yet
		w.after(500 * time.Millisecond)
		w.wantHealth(g, healthy, unhealthy, unhealthy)
		w.wantEvents("apps 10.0.0.0:80 healthy",
			"apps 10.0.0.1:80 unhealthy connect: refused",
			"apps 10.0.0.2:80 unhealthy connect: timeout after 500ms")

		w.net.set("10.0.0.0:80", "down")
		w.net.set("10.0.0.1:80", "up")
		w.after(700 * time.Millisecond) // one more probe each
		w.wantHealth(g, healthy, unhealthy, unhealthy)
		w.after(1200 * time.Millisecond) // and another one
		w.wantHealth(g, unhealthy, healthy, unhealthy)
		w.wantEvents("apps 10.0.0.0:80 unhealthy connect: refused", "apps 10.0.0.1:80 healthy")
	})
}

func TestProbesKeepTheirIntervalWithJitter(t *testing.T) {
	inBubble(t, func(w *world) {
		g := w.group("apps", 1)
		w.c.Set(targets(plain(), g))
		w.after(time.Minute)
		at := w.net.at["10.0.0.0:80"]
		seen := map[time.Duration]bool{}
		for i := range at[1:] {
			d := at[i+1].Sub(at[i])
			if d < 900*time.Millisecond || d > 1100*time.Millisecond {
				w.Errorf("%v between two probes", d)
			}
			seen[d] = true
		}
		if len(at) < 54 || len(at) > 68 || len(seen) < 20 {
			w.Errorf("%d probes in a minute, %d different pauses", len(at), len(seen))
		}
	})
}

func TestOneProbeServesAllServicesWithTheSameCheck(t *testing.T) {
	inBubble(t, func(w *world) {
		a, b, other := w.group("a", 1), w.group("b", 1), w.group("other", 1)
		slow := plain()
		slow.Timeout = time.Minute
		w.c.Set(slices.Concat(targets(plain(), a), targets(plain(), b)))
		w.after(100 * time.Millisecond)
		if n := w.net.count("10.0.0.0:80"); n != 1 {
			w.Errorf("%d probes for two services", n)
		}
		w.wantEvents("a 10.0.0.0:80 healthy", "b 10.0.0.0:80 healthy")

		late := w.group("late", 1)
		w.c.Set(slices.Concat(targets(plain(), a), targets(plain(), b), targets(plain(), late), targets(slow, other)))
		w.wantHealth(late, healthy) // at once: the shared probe has a result
		w.after(100 * time.Millisecond)
		if n := w.net.count("10.0.0.0:80"); n != 1 {
			w.Errorf("%d probes for another check of the same endpoint", n)
		}
		w.wantHealth(other, healthy)
	})
}

func TestEqualTLSKeysShareChecks(t *testing.T) {
	key := func(tlsKey string) string { return (&Check{Type: TLS, TLS: &tls.Config{}, TLSKey: tlsKey}).key() }
	x, again, y := key("x"), key("x"), key("y")
	if x != again || x == y {
		t.Error("the key does not depend on TLSKey alone")
	}
	if one, other := key(""), key(""); one == other {
		t.Error("two configurations without a key are one")
	}
}

// TestEveryFieldDistinguishesChecks checks that key includes every field:
// otherwise a service could get the results of another one's check.
func TestEveryFieldDistinguishesChecks(t *testing.T) {
	all := []Check{{}, {Type: HTTP}, {Interval: 1}, {Timeout: 1}, {Rise: 1}, {Fall: 1}, {Path: "a"}, {Host: "a"},
		{Status: []int{200}}, {Send: "a"}, {Expect: "a"}, {Preface: "a"}, {TLS: &tls.Config{}}, {Path: `" "`}}
	seen := map[string]int{}
	for i, c := range all {
		if j, twice := seen[c.key()]; twice {
			t.Errorf("%+v and %+v are one", all[j], c)
		}
		seen[c.key()] = i
	}
}

func TestSetKeepsUnchanged(t *testing.T) {
	inBubble(t, func(w *world) {
		g := w.group("apps", 2)
		check := plain()
		w.net.set("10.0.0.1:80", "down")
		w.c.Set(targets(check, g))
		w.after(100 * time.Millisecond)
		w.wantHealth(g, healthy, unhealthy)
		w.wantEvents("apps 10.0.0.0:80 healthy", "apps 10.0.0.1:80 unhealthy connect: refused")
		w.net.count("10.0.0.0:80")
		w.net.count("10.0.0.1:80")

		w.c.Set(targets(check, g))   // nothing changed
		w.c.Set(targets(plain(), g)) // an equal Check
		set := specs(2)
		set[1].Tags = map[string]string{"version": "v2"}
		g.Update(set, time.Now())
		w.c.Set(targets(check, g)) // other tags
		w.after(100 * time.Millisecond)
		if n := w.net.count("10.0.0.0:80") + w.net.count("10.0.0.1:80"); n != 0 {
			w.Errorf("%d probes out of turn", n)
		}
		w.wantHealth(g, healthy, unhealthy)
		w.net.set("10.0.0.1:80", "up")
		w.after(2200 * time.Millisecond) // the new targets get events nevertheless
		w.wantHealth(g, healthy, healthy)
		w.wantEvents("apps 10.0.0.1:80 healthy")
	})
}

func TestEventsShowTheEndpointAsItIsNow(t *testing.T) {
	inBubble(t, func(w *world) {
		var last endpoint.Event
		g := endpoint.NewGroup("apps", func(ev endpoint.Event) { last = ev })
		set := specs(1)
		check := plain()
		check.Fall = 1
		w.c.Set(targets(check, g))
		for _, version := range []string{"v1", "v2"} {
			set[0].Tags = map[string]string{"version": version}
			g.Update(set, time.Now())
			w.c.Set(targets(check, g))
			w.after(1200 * time.Millisecond)
			if last.Endpoint != g.Endpoints()[0] {
				w.Errorf("reported %+v, want the change of %s", last.Endpoint, version)
			}
			w.net.set("10.0.0.0:80", "down")
		}
	})
}

func TestReaddedEndpointGetsKnownHealth(t *testing.T) {
	inBubble(t, func(w *world) {
		g := w.group("apps", 1)
		w.net.set("10.0.0.0:80", "down")
		w.c.Set(targets(plain(), g))
		w.after(100 * time.Millisecond)
		g.Update(nil, time.Now())
		g.Update(specs(1), time.Now())
		w.wantHealth(g, unchecked)
		w.c.Set(targets(plain(), g))
		w.wantHealth(g, unhealthy)
	})
}

func TestHealthStaysUntilNewCheckDecides(t *testing.T) {
	inBubble(t, func(w *world) {
		g := w.group("apps", 1)
		w.net.set("10.0.0.0:80", "down")
		w.c.Set(targets(plain(), g))
		w.after(100 * time.Millisecond)
		w.wantHealth(g, unhealthy)
		w.net.set("10.0.0.0:80", "hung")
		other := plain()
		other.Fall = 5
		w.c.Set(targets(other, g))
		w.after(100 * time.Millisecond)
		w.wantHealth(g, unhealthy) // although the new check has no result yet
		w.net.set("10.0.0.0:80", "up")
		w.after(3 * time.Second)
		w.wantHealth(g, healthy)
	})
}

func TestUnprobedEndpointsAreUnchecked(t *testing.T) {
	inBubble(t, func(w *world) {
		g, other := w.group("apps", 1), w.group("other", 1)
		w.net.set("10.0.0.0:80", "down")
		w.c.Set(targets(plain(), g, other))
		w.after(100 * time.Millisecond)
		w.wantHealth(g, unhealthy)
		w.c.Set(targets(plain(), other))
		w.wantHealth(g, unchecked)
		w.after(time.Minute)
		w.wantHealth(g, unchecked)
		w.wantHealth(other, unhealthy)
		w.c.Set(nil)
		w.net.count("10.0.0.0:80")
		w.after(time.Minute)
		if n := w.net.count("10.0.0.0:80"); n != 0 || len(w.c.Status()) != 0 {
			w.Errorf("%d probes, status %v of nothing", n, w.c.Status())
		}
	})
}

func TestProbeEndingAfterRemovalChangesNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		g := w.group("apps", 1)
		w.net.set("10.0.0.0:80", "late")
		w.c.Set(targets(plain(), g))
		synctest.Wait() // the probe is in progress
		w.c.Set(nil)
		w.after(time.Second)
		w.wantHealth(g, unchecked)
		w.wantEvents()
	})
}

func TestProbesOfTenThousandEndpointsAreBounded(t *testing.T) {
	inBubble(t, func(w *world) {
		g := endpoint.NewGroup("apps", nil)
		g.Update(specs(10_000), time.Now())
		w.c.Set(targets(&Check{Interval: 2 * time.Second, Timeout: time.Second}, g))
		w.after(2100 * time.Millisecond)
		if w.net.mostNow > DefaultConcurrency {
			w.Errorf("%d probes at once", w.net.mostNow)
		}
		for _, e := range g.Endpoints() {
			if e.Health() != healthy {
				w.Fatalf("%s is %v", e.Address, e.Health())
			}
		}
	})
}

func TestStatusKeepsTheLastError(t *testing.T) {
	inBubble(t, func(w *world) {
		b, a := w.group("b", 1), w.group("a", 2)
		w.net.set("10.0.0.1:80", "down")
		w.c.Set(targets(plain(), b, a))
		w.after(100 * time.Millisecond)
		failed := time.Now()
		w.net.set("10.0.0.1:80", "up")
		w.after(5 * time.Second)
		all := w.c.Status()
		var order []string
		for _, s := range all {
			order = append(order, s.Service+" "+s.Address)
		}
		if want := []string{"a 10.0.0.0:80", "a 10.0.0.1:80", "b 10.0.0.0:80"}; !slices.Equal(order, want) {
			w.Fatalf("status of %v, want %v", order, want)
		}
		if s := all[1]; s.Health != healthy || s.Err != "connect: refused" || s.ErrAt.After(failed) || !s.Checked.After(failed) ||
			!s.Since.After(failed) || s.Took != time.Millisecond || s.Addr != "10.0.0.1:80" || s.Type != TCP {
			w.Errorf("%+v", s)
		}
		if s, ok := w.c.StatusOf(a, a.Endpoints()[1]); !ok || s != all[1] {
			w.Errorf("%+v is not %+v", s, all[1])
		}
		if _, ok := w.c.StatusOf(b, a.Endpoints()[1]); ok {
			w.Error("an endpoint of another service has a status")
		}
	})
}

func TestCloseEndsProbes(t *testing.T) {
	inBubble(t, func(w *world) {
		g := w.group("apps", 3)
		for i := range 3 {
			w.net.set(fmt.Sprintf("10.0.0.%d:80", i), "hung")
		}
		w.c.Set(targets(&Check{Timeout: time.Hour}, g))
		synctest.Wait()
		w.c.Close()
		w.wantHealth(g, unchecked, unchecked, unchecked)
	})
}

// TestConcurrentUse runs sockets, changes and readers together, for the race
// detector.
func TestConcurrentUse(t *testing.T) {
	good, bad := testkit.Serve(t, silent), testkit.Serve(t, resets)
	c := New(Config{Concurrency: 4})
	t.Cleanup(c.Close)
	told := make(chan endpoint.Change, 100_000)
	g := endpoint.NewGroup("apps", func(ev endpoint.Event) { told <- ev.Change })
	set := []endpoint.Spec{{Address: good, Addr: netip.MustParseAddrPort(good)}, {Address: bad, Addr: netip.MustParseAddrPort(bad)}}
	checks := []*Check{{Interval: MinInterval, Rise: 1}, {Interval: MinInterval, Send: "x", Expect: "y", Timeout: MinInterval}}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				all := g.Update(set[:1+i%2], time.Now())
				var targets []Target
				for j, e := range all {
					targets = append(targets, Target{g, e, checks[(i/50+j+w)%2]})
				}
				c.Set(targets)
				c.Status()
				c.StatusOf(g, all[0])
				if i%50 == 49 { // a change ends probes that are under way, so that some need a time without
					<-time.After(2 * MinInterval)
				}
			}
		})
	}
	for seen := map[endpoint.Change]bool{}; len(seen) < 2; {
		select {
		case ch := <-told:
			seen[ch] = true
		case <-time.After(testkit.Patience):
			t.Error("nothing happens")
			seen[0], seen[1] = true, true
		}
	}
	close(stop)
	wg.Wait()
}

func BenchmarkSetNothingChanged(b *testing.B) {
	c, all := manyTargets(b)
	b.ReportAllocs()
	for b.Loop() {
		c.Set(all)
	}
}

func BenchmarkSetOneOfTenThousandChanged(b *testing.B) {
	c, all := manyTargets(b)
	other := &Check{Interval: 2 * time.Hour}
	original := all[5000].Check
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		all[5000].Check = []*Check{other, original}[i%2]
		c.Set(all)
	}
}

func manyTargets(b *testing.B) (*Checker, []Target) {
	c := New(Config{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no") }})
	b.Cleanup(c.Close)
	g := endpoint.NewGroup("apps", nil)
	g.Update(specs(10_000), time.Now())
	all := targets(&Check{Interval: time.Hour}, g)
	c.Set(all)
	return c, all
}
