package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a source whose answers the test gives.
type script struct {
	runs atomic.Int64
	sink Sink
	end  chan error
}

func (s *script) Run(ctx context.Context, sink Sink) error {
	s.runs.Add(1)
	s.sink = sink
	select {
	case err := <-s.end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// world is a runner in virtual time, with what it has put in force.
type world struct {
	t      *testing.T
	source *script
	runner *Runner

	mu      sync.Mutex
	inForce map[string]string // "service address" -> endpoint
	applies int
	changed int // endpoints changed by all calls of Apply
	refuse  error
}

var web = Query{Service: "web"}

func inBubble(t *testing.T, cfg Config, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, source: &script{end: make(chan error)}, inForce: map[string]string{}}
		cfg.Name, cfg.Source, cfg.Apply = "p", w.source, w.apply
		for q, list := range cfg.Known {
			for _, e := range list {
				w.inForce[q.Service+" "+e.Address] = show(e)
			}
		}
		w.runner = NewRunner(cfg)
		w.runner.Want([]Query{web})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.runner.Run(ctx) }()
		synctest.Wait()
		test(w)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func (w *world) apply(_ context.Context, changes []Change) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applies++
	if w.refuse != nil {
		return w.refuse
	}
	for _, c := range changes {
		for _, e := range c.Put {
			w.inForce[c.Query.Service+" "+e.Address] = show(e)
		}
		for _, address := range c.Gone {
			if _, ok := w.inForce[c.Query.Service+" "+address]; !ok {
				w.t.Errorf("%s is removed, and was not in force", address)
			}
			delete(w.inForce, c.Query.Service+" "+address)
		}
		w.changed += len(c.Put) + len(c.Gone)
	}
	return nil
}

func show(e Endpoint) string {
	s := fmt.Sprintf("%s*%d", e.Address, e.Weight)
	if len(e.Tags) > 0 {
		s += fmt.Sprint(e.Tags)
	}
	if e.State != Ready {
		s += " " + e.State.String()
	}
	return s
}

// endpoints returns endpoints of weight 1.
func endpoints(addresses ...string) []Endpoint {
	var list []Endpoint
	for _, a := range addresses {
		list = append(list, Endpoint{Address: a, Weight: 1})
	}
	return list
}

func numbered(n int) []Endpoint {
	list := make([]Endpoint, n)
	for i := range list {
		list[i] = Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250+1), Weight: 1}
	}
	return list
}

func (w *world) report(list []Endpoint) {
	w.source.sink.Report(web, list)
	w.after(time.Second)
}

// after lets time pass.
func (w *world) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) setRefuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = err
}

func (w *world) counts() (applies, changed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.applies, w.changed
}

func (w *world) want(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []string
	for _, k := range slices.Sorted(maps.Keys(w.inForce)) {
		got = append(got, w.inForce[k])
	}
	if !slices.Equal(got, want) {
		t.Errorf("in force: %q, want %q", got, want)
	}
}

func (w *world) status() QueryStatus { return w.runner.Status().Queries[0] }

func TestOnlyChangesAreApplied(t *testing.T) {
	inBubble(t, Config{}, func(w *world) {
		w.report(endpoints("10.0.0.2:80", "10.0.0.1:80", "10.0.0.3:80"))
		w.want(t, "10.0.0.1:80*1", "10.0.0.2:80*1", "10.0.0.3:80*1")
		w.report(endpoints("10.0.0.3:80", "10.0.0.2:80", "10.0.0.1:80"))
		if applies, _ := w.counts(); applies != 1 {
			t.Errorf("an answer in another order was applied: %d calls", applies)
		}
		next := endpoints("10.0.0.1:80", "10.0.0.2:80")
		next[1].Tags = map[string]string{"version": "v2"}
		w.report(next)
		w.want(t, "10.0.0.1:80*1", "10.0.0.2:80*1map[version:v2]")
		if _, changed := w.counts(); changed != 5 {
			t.Errorf("%d endpoints were changed, want 5", changed)
		}
	})
}

func TestLastAnswerStaysWhileTheSourceFails(t *testing.T) {
	inBubble(t, Config{}, func(w *world) {
		w.report(endpoints("10.0.0.1:80"))
		w.source.end <- errors.New("connection refused")
		w.after(time.Hour)
		w.want(t, "10.0.0.1:80*1")
		s := w.status()
		if !s.Stale || s.Err != "connection refused" || w.runner.Status().Err != "connection refused" {
			t.Errorf("status %+v", s)
		}
		if w.source.runs.Load() != 2 {
			t.Fatalf("the source ran %d times", w.source.runs.Load())
		}
		w.report(endpoints("10.0.0.1:80"))
		if s := w.status(); s.Stale || s.Err != "" || w.runner.Status().Err != "" {
			t.Errorf("after the same answer: status %+v", s)
		}
		if applies, _ := w.counts(); applies != 1 {
			t.Errorf("the same answer was applied: %d calls", applies)
		}
	})
}

func TestFailingSourceIsRestartedMoreAndMoreSlowly(t *testing.T) {
	inBubble(t, Config{}, func(w *world) {
		w.source.end <- errors.New("down")
		close(w.source.end) // each further run ends at once
		w.after(10 * time.Minute)
		before := w.source.runs.Load()
		w.after(10 * time.Minute)
		if n := w.source.runs.Load() - before; n < 13 || n > 41 {
			t.Errorf("%d runs in 10 minutes, want one in 15 to 45 seconds", n)
		}
		if got := w.status().Failures; int64(got) != w.source.runs.Load() {
			t.Errorf("%d failures are counted in %d runs", got, w.source.runs.Load())
		}
	})
}

func TestStaleEndpointsExpire(t *testing.T) {
	inBubble(t, Config{MaxStale: time.Minute}, func(w *world) {
		w.report(endpoints("10.0.0.1:80"))
		w.after(10 * time.Minute)
		w.want(t, "10.0.0.1:80*1") // nothing failed: the answer still counts
		w.report(endpoints("10.0.0.1:80"))
		w.source.sink.Failed(web, errors.New("timeout"))
		w.after(57 * time.Second)
		w.want(t, "10.0.0.1:80*1")
		w.after(5 * time.Second)
		w.want(t)
		if !w.status().Expired {
			t.Error("status does not say that the endpoints expired")
		}
		w.report(endpoints("10.0.0.1:80"))
		w.want(t, "10.0.0.1:80*1")
	})
}

func TestConfirmedAnswersAreFresh(t *testing.T) {
	inBubble(t, Config{MaxStale: time.Minute}, func(w *world) {
		w.source.sink.Confirm(web) // there is nothing to confirm yet
		if q := w.status(); !q.Answered.IsZero() {
			t.Error("confirmed before the first answer")
		}
		w.report(endpoints("10.0.0.1:80"))
		w.after(50 * time.Second)
		w.source.sink.Confirm(web)
		if age := time.Since(w.status().Answered); age != 0 {
			t.Errorf("the answer is %v old, and was confirmed now", age)
		}
		w.source.sink.Failed(web, errors.New("timeout"))
		w.after(50 * time.Second)
		w.source.sink.Confirm(web) // does not end a failure
		w.after(9 * time.Second)
		w.want(t, "10.0.0.1:80*1")
		w.after(5 * time.Second)
		w.want(t) // a minute after the last confirmation
	})
}

func TestWarningsStayUntilTheNextAnswer(t *testing.T) {
	inBubble(t, Config{}, func(w *world) {
		w.source.sink.Warn(Query{Service: "unknown"}, errors.New("x"))
		w.report(endpoints("10.0.0.1:80"))
		w.source.sink.Warn(web, errors.New("one of two servers is down"))
		w.source.sink.Confirm(web)
		if q := w.status(); q.Warning != "one of two servers is down" || q.Stale || q.Err != "" {
			t.Errorf("%+v", q)
		}
		w.report(endpoints("10.0.0.1:80"))
		if q := w.status(); q.Warning != "" {
			t.Errorf("warning %q after another answer", q.Warning)
		}
	})
}

func TestKnownEndpointsAreNotRepeated(t *testing.T) {
	known := map[Query][]Endpoint{web: endpoints("10.0.0.1:80", "10.0.0.2:80"), {Service: "old"}: endpoints("10.0.0.9:80")}
	inBubble(t, Config{Known: known, MaxStale: time.Hour}, func(w *world) {
		w.after(time.Second)
		w.want(t, "10.0.0.1:80*1", "10.0.0.2:80*1") // "old" is no longer wanted
		if !w.status().Stale {
			t.Error("not stale before the first answer")
		}
		w.report(endpoints("10.0.0.1:80", "10.0.0.2:80"))
		if _, changed := w.counts(); changed != 1 {
			t.Errorf("%d endpoints were changed, want 1", changed)
		}
		if w.status().Stale {
			t.Error("stale after an answer")
		}
	})
	inBubble(t, Config{Known: known, MaxStale: time.Hour}, func(w *world) {
		w.after(61 * time.Minute)
		w.want(t) // the source never answered
	})
}

func TestLargeRemovalsAreHeld(t *testing.T) {
	four := endpoints("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")
	all := []string{"10.0.0.1:80*1", "10.0.0.2:80*1", "10.0.0.3:80*1", "10.0.0.4:80*1"}
	inBubble(t, Config{HoldFor: time.Minute}, func(w *world) {
		w.report(slices.Clone(four))
		w.report(endpoints("10.0.0.1:80"))
		w.want(t, all...)
		if w.status().HeldSince.IsZero() {
			t.Error("status does not say that removals are held")
		}
		w.report(slices.Clone(four))
		w.after(2 * time.Minute)
		w.want(t, all...) // it was a mistake
		if !w.status().HeldSince.IsZero() {
			t.Error("status says that removals are held")
		}
		w.report(nil)
		w.after(57 * time.Second)
		w.want(t, all...)
		w.after(5 * time.Second)
		w.want(t)
	})
	inBubble(t, Config{HoldFor: time.Minute}, func(w *world) {
		w.report(slices.Clone(four))
		w.report(endpoints("10.0.0.3:80", "10.0.0.4:80"))
		w.want(t, all[2:]...) // half is not more than half
	})
	inBubble(t, Config{HoldFor: time.Minute}, func(w *world) {
		w.report(slices.Clone(four[:2]))
		w.report(slices.Clone(four[2:]))
		w.after(time.Second)
		w.want(t, all[2:]...) // replacements are there: half of what was in force goes
	})
	inBubble(t, Config{HoldFor: -1}, func(w *world) {
		w.report(slices.Clone(four))
		w.report(nil)
		w.want(t)
	})
}

func TestUnwantedQueriesAreRemovedAtOnce(t *testing.T) {
	inBubble(t, Config{}, func(w *world) {
		w.report(endpoints("10.0.0.1:80", "10.0.0.2:80"))
		_, replaced := w.source.sink.Wanted()
		w.runner.Want([]Query{{Service: "other"}})
		w.after(time.Second)
		w.want(t)
		select {
		case <-replaced:
		default:
			t.Error("the source is not told of the new queries")
		}
		w.report(endpoints("10.0.0.1:80"))
		w.want(t) // a late answer
		w.runner.Want([]Query{web})
		w.report(endpoints("10.0.0.1:80"))
		w.want(t, "10.0.0.1:80*1")
	})
}

func TestFlappingSourcesAreBounded(t *testing.T) {
	inBubble(t, Config{MaxEndpoints: 100, ChangeRate: 10, HoldFor: -1}, func(w *world) {
		for i := range 6000 { // ten minutes
			list := numbered(50)
			for j := range list {
				list[j].Weight = i%2 + 1
			}
			w.source.sink.Report(web, list)
			w.after(100 * time.Millisecond)
		}
		if _, changed := w.counts(); changed > 100+600*10+50 || changed < 600*9 {
			t.Errorf("%d endpoints were changed in 600 s at 10 per second", changed)
		}
		w.after(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		for k, e := range w.inForce {
			if !strings.HasSuffix(e, "*2") {
				t.Errorf("%s: %s is not the last answer", k, e)
			}
		}
	})
}

func TestLargeAnswersAreCut(t *testing.T) {
	inBubble(t, Config{MaxEndpoints: 10}, func(w *world) {
		w.report(numbered(25))
		if s := w.status(); s.Endpoints != 10 || s.Unused != 15 || !strings.Contains(s.Fault, "25 endpoints") {
			t.Errorf("status %+v", s)
		}
	})
}

func TestFailedApplyIsRepeated(t *testing.T) {
	inBubble(t, Config{}, func(w *world) {
		w.setRefuse(errors.New("no leader"))
		w.report(endpoints("10.0.0.1:80"))
		w.after(10 * time.Second)
		w.want(t)
		if applies, _ := w.counts(); applies < 5 || applies > 12 {
			t.Errorf("%d calls of Apply in 11 seconds", applies)
		}
		w.setRefuse(nil)
		w.after(2 * time.Second)
		w.want(t, "10.0.0.1:80*1")
	})
}

func TestFold(t *testing.T) {
	for _, test := range []struct {
		in   []Endpoint
		want string
	}{
		{endpoints("[::ffff:10.0.0.1]:80"), "10.0.0.1:80*1"},
		{endpoints("Web.Example.com:80", "web.example.COM:80"), "web.example.com:80*1"},
		{endpoints("10.0.0.1"), `! address "10.0.0.1" is not host:port`},
		{endpoints("10.0.0.1:0"), `! address "10.0.0.1:0": port must be 1 to 65535`},
		{endpoints("10.0.0.1:65536"), `! address "10.0.0.1:65536": port must be 1 to 65535`},
		{endpoints("10.0.0.1:http"), `! address "10.0.0.1:http": port must be 1 to 65535`},
		{endpoints("0.0.0.0:80"), `! address "0.0.0.0:80" is not the address of one host`},
		{endpoints("10.0.0.256:80"), `! address "10.0.0.256:80": host must be an IP address or a host name`},
		{endpoints("a b:80"), `! address "a b:80": host must be an IP address or a host name`},
		{endpoints(":80"), `! address ":80": host must be an IP address or a host name`},
		{endpoints("unix:/run/x"), `! address "unix:/run/x": port must be 1 to 65535`},
		{endpoints(strings.Repeat("a", 300) + ":80"), "! address \"" + strings.Repeat("a", 40) + "\"... has 303 bytes; the maximum is 260"},
		{[]Endpoint{{Address: "a:1", Weight: -1}}, "! a:1: weight -1 must be 0 to 1000000"},
		{[]Endpoint{{Address: "a:1", Priority: -1}}, "! a:1: priority -1 must be 0 to 127"},
		{[]Endpoint{{Address: "a:1", Priority: 128}}, "! a:1: priority 128 must be 0 to 127"},
		{[]Endpoint{{Address: "a:1", Weight: 1_000_001}}, "! a:1: weight 1000001 must be 0 to 1000000"},
		{
			[]Endpoint{{Address: "a:1", Tags: map[string]string{"k": "a\nb"}}},
			`! a:1: tag "k": key and value must be printable text of at most 256 bytes, the key not empty`,
		},
		{[]Endpoint{{Address: "a:1", State: Terminating}, {Address: "a:1", State: Ready}}, "a:1*0"},
		{[]Endpoint{{Address: "a:1", State: Terminating}, {Address: "A:1", State: NotReady}}, "a:1*0 notReady"},
	} {
		a := fold(test.in, 10)
		var got []string
		for _, e := range a.endpoints {
			got = append(got, show(e))
		}
		if a.fault != "" {
			got = append(got, "! "+a.fault)
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("got  %s\nwant %s", s, test.want)
		}
	}
}

func BenchmarkOneOfTenThousandChanges(b *testing.B) {
	r := NewRunner(Config{Apply: func(context.Context, []Change) error { return nil }, ChangeRate: 1 << 30})
	r.Want([]Query{web})
	base := numbered(10_000)
	for i := 0; b.Loop(); i++ {
		list := slices.Clone(base)
		list[5000].Weight = i%2 + 1
		(*sink)(r).Report(web, list)
		r.step(b.Context())
	}
}
