package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dns returns the configured answers: addresses separated by spaces, "?" for a
// name that does not exist, "!" for a failure, "..." for a timeout.
type dns struct {
	mu      sync.Mutex
	start   time.Time
	zone    map[string]string
	asked   []string // "host at time"
	open    int
	mostNow int
}

func (d *dns) set(host, answer string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.zone[host] = answer
}

func (d *dns) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	d.mu.Lock()
	d.asked = append(d.asked, fmt.Sprint(host, " at ", time.Since(d.start).Round(time.Second)))
	answer := d.zone[host]
	d.open++
	d.mostNow = max(d.mostNow, d.open)
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.open--
		d.mu.Unlock()
	}()
	switch answer {
	case "?":
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	case "!":
		return nil, errors.New("server misbehaving")
	case "...":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	<-time.After(time.Millisecond)
	return addrs(answer), nil
}

// take returns the lookups since the last call.
func (d *dns) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.asked
	d.asked = nil
	return all
}

func addrs(text string) []netip.Addr {
	var all []netip.Addr
	for _, a := range strings.Fields(text) {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

// world is a Resolver in a bubble.
type world struct {
	*testing.T
	*dns
	r    *Resolver
	mu   sync.Mutex
	told [][]string
}

func inBubble(t *testing.T, cfg Config, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, dns: &dns{start: time.Now(), zone: map[string]string{}}}
		cfg.Lookup = w.lookup
		cfg.Changed = func(hosts []string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, hosts)
		}
		w.r = New(cfg)
		t.Cleanup(w.r.Close)
		test(w)
	})
}

func (w *world) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) wantChanged(want ...[]string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.EqualFunc(w.told, want, slices.Equal) {
		w.Errorf("reported %v, want %v", w.told, want)
	}
	w.told = nil
}

func (w *world) wantLookup(host, want string) {
	w.Helper()
	got, ok := w.r.Lookup(host)
	if !slices.Equal(got, addrs(want)) || ok != (want != "") {
		w.Errorf("%s: %v %v, want %s", host, got, ok, want)
	}
}

func (w *world) status(host string) Status {
	s, ok := w.r.StatusOf(host)
	if !ok {
		w.Errorf("%s has no status", host)
	}
	return s
}

const moment = 100 * time.Millisecond

func TestAnswersAreSortedAndStable(t *testing.T) {
	inBubble(t, Config{}, func(w *world) {
		w.set("db", "10.0.0.2 fd00::1 10.0.0.1 ::ffff:10.0.0.2")
		w.r.Set([]Name{{Host: "DB"}})
		w.wantLookup("db", "") // no answer yet
		w.after(moment)
		w.wantLookup("dB", "10.0.0.1 10.0.0.2 fd00::1")
		w.wantChanged([]string{"db"})
		w.set("db", "10.0.0.1 fd00::1 10.0.0.2")
		w.after(12 * time.Second)
		w.wantChanged() // the same addresses in another order are no change
		w.set("db", "10.0.0.1 10.0.0.3")
		w.after(12 * time.Second)
		w.wantLookup("db", "10.0.0.1 10.0.0.3")
		w.wantChanged([]string{"db"})
		w.wantLookup("unknown", "")
	})
}

func TestNamesAreLookedUpAtTheirInterval(t *testing.T) {
	inBubble(t, Config{}, func(w *world) {
		w.set("a", "10.0.0.1")
		w.set("b", "10.0.0.2")
		w.r.Set([]Name{{Host: "a", Interval: 20 * time.Second}, {Host: "a", Interval: 5 * time.Second}, {Host: "b"}})
		w.after(100*time.Second + moment)
		count := map[string]int{}
		for _, line := range w.take() {
			count[line[:1]]++
		}
		// At 5 s and 10 s, +-10 %, and one at the start.
		if a, b := count["a"], count["b"]; a < 19 || a > 23 || b < 10 || b > 12 {
			w.Errorf("a was asked %d times, b %d times", a, b)
		}
		w.r.Set([]Name{{Host: "a", Interval: time.Nanosecond}})
		w.after(10 * time.Second)
		if n := len(w.take()); n < 9 || n > 13 {
			w.Errorf("below the shortest interval: asked %d times in 10 s", n)
		}
	})
}

func TestFailedLookupKeepsAddresses(t *testing.T) {
	for answer, notFound := range map[string]bool{"!": false, "...": false, "?": true, "": false} {
		t.Run("answer "+answer, func(t *testing.T) {
			inBubble(t, Config{Timeout: 2 * time.Second}, func(w *world) {
				w.set("db", "10.0.0.1")
				w.r.Set([]Name{{Host: "db"}})
				w.after(moment)
				w.set("db", answer)
				w.after(24 * time.Hour)
				w.wantLookup("db", "10.0.0.1")
				w.wantChanged([]string{"db"})
				s := w.status("db")
				if !s.Stale || s.NotFound != notFound || s.Err == "" || s.Failures < 1000 || time.Since(s.Answered) < 23*time.Hour {
					w.Errorf("%+v", s)
				}
				w.set("db", "10.0.0.2")
				w.after(time.Minute)
				w.wantLookup("db", "10.0.0.2")
				w.wantChanged([]string{"db"})
				if s := w.status("db"); s.Stale || s.Err != "" || s.Failures != 0 || s.NotFound || time.Since(s.Changed) > time.Minute {
					w.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestRetriesBackOff(t *testing.T) {
	want := []int{1, 2, 4, 8, 16, 30, 30}
	for i, seconds := range want {
		if got := retryAfter(i+1, 10*time.Second); got != time.Duration(seconds)*time.Second {
			t.Errorf("failure %d: %v, want %d s", i+1, got, seconds)
		}
	}
	for _, failures := range []int{10, 11, 64, 1 << 30} {
		if got := retryAfter(failures, time.Second); got != maxRetry {
			t.Errorf("failure %d: %v", failures, got)
		}
	}
	if got := retryAfter(1000, time.Hour); got != time.Hour {
		t.Errorf("with an interval of 1 h: %v", got)
	}
	inBubble(t, Config{}, func(w *world) {
		w.set("db", "!")
		w.r.Set([]Name{{Host: "db"}})
		w.after(10 * time.Second)
		if got := w.take(); len(got) != 4 { // at 0, 1, 3 and 7 s
			w.Errorf("asked at %v", got)
		}
	})
}

func TestSetKeepsUnchanged(t *testing.T) {
	inBubble(t, Config{}, func(w *world) {
		w.set("a", "10.0.0.1")
		w.set("b", "10.0.0.2")
		w.r.Set([]Name{{Host: "a"}, {Host: "b"}, {Host: "10.9.9.9"}, {Host: "::1"}, {}})
		w.after(moment)
		if n := len(w.take()); n != 2 {
			w.Errorf("%d names were asked for, want 2", n)
		}
		w.r.Set([]Name{{Host: "b"}, {Host: "a", Interval: DefaultInterval}})
		w.after(moment)
		if got := w.take(); got != nil {
			w.Errorf("asked out of turn: %v", got)
		}
		w.set("a", "10.0.0.3")
		w.r.Set([]Name{{Host: "b"}, {Host: "a", Interval: time.Minute}}) // looked up at once, with the old answer until then
		w.wantLookup("a", "10.0.0.1")
		w.after(moment)
		w.wantLookup("a", "10.0.0.3")
		w.r.Set([]Name{{Host: "b"}})
		w.wantLookup("a", "")
		if all := w.r.Status(); len(all) != 1 || all[0].Host != "b" {
			w.Errorf("status %+v", all)
		}
		w.r.Set(nil)
		w.take()
		w.after(time.Hour)
		if got := w.take(); got != nil {
			w.Errorf("asked for nothing's sake: %v", got)
		}
	})
}

func TestLookupEndingAfterRemovalChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{Lookup: func(ctx context.Context, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return addrs("10.0.0.1"), nil
		}, Changed: func(hosts []string) { t.Errorf("reported %v", hosts) }})
		defer r.Close()
		r.Set([]Name{{Host: "db"}})
		synctest.Wait()
		r.Set(nil)
		<-time.After(time.Minute)
	})
}

func TestChangesAreReportedTogether(t *testing.T) {
	inBubble(t, Config{Settle: time.Second}, func(w *world) {
		var names []Name
		var hosts []string
		for i := range 500 {
			hosts = append(hosts, fmt.Sprintf("h%03d", i))
			w.set(hosts[i], "10.0.0.1")
			names = append(names, Name{Host: hosts[i], Interval: time.Hour})
		}
		w.r.Set(names)
		w.after(2 * time.Second)
		w.wantChanged(hosts)
		if w.mostNow > DefaultConcurrency {
			w.Errorf("%d lookups at once", w.mostNow)
		}
	})
}

func TestChangedCallsDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := make(chan []string, 10)
		d := &dns{start: time.Now(), zone: map[string]string{"a": "10.0.0.1", "b": "10.0.0.1"}}
		r := New(Config{Lookup: d.lookup, Changed: func(hosts []string) {
			calls <- append([]string{"began"}, hosts...)
			<-time.After(time.Second)
			calls <- append([]string{"ended"}, hosts...)
		}})
		defer r.Close()
		r.Set([]Name{{Host: "a"}})
		<-time.After(moment)
		r.Set([]Name{{Host: "a"}, {Host: "b"}})
		<-time.After(3 * time.Second)
		for _, want := range []string{"[began a]", "[ended a]", "[began b]", "[ended b]"} {
			if got := fmt.Sprint(<-calls); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}

func TestAnswersAreBounded(t *testing.T) {
	var log bytes.Buffer
	cfg := Config{MaxAddrs: 3, Log: slog.New(slog.NewTextHandler(&log, nil))}
	inBubble(t, cfg, func(w *world) {
		w.set("db", "10.0.0.5 10.0.0.4 10.0.0.3 10.0.0.2 10.0.0.1")
		w.r.Set([]Name{{Host: "db"}})
		w.after(time.Minute)
		w.wantLookup("db", "10.0.0.1 10.0.0.2 10.0.0.3")
		if s := w.status("db"); s.Unused != 2 {
			w.Errorf("%+v", s)
		}
		w.set("db", "!")
		w.after(time.Minute)
		w.set("db", "10.0.0.1")
		w.after(time.Minute)
		if s := w.status("db"); s.Unused != 0 {
			w.Errorf("%+v", s)
		}
	})
	for _, want := range []string{
		`msg="host has more addresses than the limit" host=db limit=3 unused=2`,
		`msg="host lookup failed" host=db error="server misbehaving" addresses_kept=3`,
		`msg="host lookup recovered" host=db`,
		`msg="host is within the address limit again" host=db`,
	} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%d lines with %s in\n%s", n, want, log.String())
		}
	}
}

func TestLookupOfAnAddressReturnsIt(t *testing.T) {
	inBubble(t, Config{}, func(w *world) {
		w.wantLookup("10.0.0.1", "10.0.0.1")
		w.wantLookup("::ffff:10.0.0.1", "10.0.0.1")
		w.wantLookup("fe80::1%eth0", "fe80::1%eth0")
		w.wantLookup("10.0.0.256", "")
	})
}

func TestCloseEndsLookups(t *testing.T) {
	inBubble(t, Config{Timeout: time.Hour}, func(w *world) {
		w.set("a", "10.0.0.1")
		w.set("b", "...")
		w.r.Set([]Name{{Host: "a"}, {Host: "b"}})
		w.after(moment)
		w.r.Close()
		w.wantLookup("a", "10.0.0.1") // the data path keeps using it
		w.take()
		w.after(time.Hour)
		if got := w.take(); got != nil {
			w.Errorf("asked after the end: %v", got)
		}
	})
}

// TestSystemResolverKnowsLocalhost uses the system's resolver, which resolves
// localhost from its hosts file or by itself.
func TestSystemResolverKnowsLocalhost(t *testing.T) {
	told := make(chan []string, 1)
	r := New(Config{Changed: func(hosts []string) { told <- hosts }})
	defer r.Close()
	r.Set([]Name{{Host: "localhost"}})
	testkit.Receive(t, "an answer", told)
	all, ok := r.Lookup("localhost")
	if !ok || !all[0].IsLoopback() {
		t.Errorf("localhost is %v", all)
	}
}

// TestConcurrentUse runs changes, lookups and readers together, for the race
// detector.
func TestConcurrentUse(t *testing.T) {
	var told sync.WaitGroup
	told.Add(1)
	var once sync.Once
	r := New(Config{Settle: time.Microsecond, Changed: func([]string) { once.Do(told.Done) },
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host == "bad" {
				return nil, errors.New("no")
			}
			return addrs("10.0.0.1"), nil
		}})
	defer r.Close()
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := range 300 {
				r.Set([]Name{{Host: "a"}, {Host: []string{"b", "bad"}[(i+w)%2], Interval: time.Duration(1+i%2) * time.Minute}})
				r.Lookup("a")
				r.Status()
			}
		})
	}
	wg.Wait()
	told.Wait()
}

func BenchmarkLookup(b *testing.B) {
	known := make(chan struct{}, 1)
	r := New(Config{Changed: func([]string) { known <- struct{}{} },
		Lookup: func(context.Context, string) ([]netip.Addr, error) { return addrs("10.0.0.1 10.0.0.2"), nil }})
	defer r.Close()
	r.Set([]Name{{Host: "db.example.com"}})
	<-known
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := r.Lookup("db.example.com"); !ok {
			b.Fatal("not known")
		}
	}
}
