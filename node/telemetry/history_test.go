package telemetry

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	bytesTotal = &Metric{Name: "bytes_total", Labels: []string{"service", "direction"}, Fine: true}
	open       = &Metric{Name: "open", Labels: []string{"service"}, Fine: true}
	healthy    = &Metric{Name: "healthy", Labels: []string{"service"}}
	took       = &Metric{Name: "took", Labels: []string{"service"}, Buckets: []float64{.1, 1, 10}}
)

// clock records passes at slots of a History.
type clock struct {
	*History
	at time.Time
}

func newClock(budget int) *clock {
	return &clock{New(Config{Budget: budget}), time.Unix(1000, 0)}
}

// pass makes a pass, and lets a second go by.
func (c *clock) pass(collect func(*Pass)) {
	c.Record(c.at, collect)
	c.at = c.at.Add(time.Second)
}

func mustQuery(t *testing.T, h *History, q Query) *Frame {
	t.Helper()
	f, err := h.Query(q)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func sum(list []float64) float64 {
	total := 0.0
	for _, v := range list {
		total += v
	}
	return total
}

func TestCountersAreIncreases(t *testing.T) {
	c := newClock(1 << 20)
	for i := range 31 {
		c.pass(func(p *Pass) {
			p.Counter(bytesTotal, float64(1000+i*i), "web", "in")
			p.Counter(bytesTotal, float64(5*i), "web", "out")
			if i >= 10 {
				p.Counter(bytesTotal, float64(i-9), "late", "in") // it counts from nothing
			}
		})
	}
	f := mustQuery(t, c.History, Query{Metric: "bytes_total", By: []string{"direction", "service"}, Since: 20 * time.Second})
	if f.Step != time.Second || f.Points != 20 || len(f.Groups) != 3 {
		t.Fatalf("%+v", f)
	}
	for i := range f.Points {
		if got, at := f.Groups[1].Values[i], 11+i; got != float64(at*at-(at-1)*(at-1)) {
			t.Errorf("in of web at %d: %v", at, got)
		}
	}
	if got := f.Groups[0]; !slices.Equal(got.Labels, []string{"in", "late"}) || sum(got.Values) != 20 {
		t.Errorf("a series that came later: %+v, want an increase of 20 in the last 20 seconds", got)
	}
	all := mustQuery(t, c.History, Query{Metric: "bytes_total", Where: map[string][]string{"service": {"web"}}, Step: 10 * time.Second, Since: time.Minute})
	if all.Points != 3 || len(all.Groups) != 1 || sum(all.Groups[0].Values) != 30*30+5*30 {
		t.Errorf("%+v: want 3 points, with a sum of %d", all, 30*30+5*30)
	}
}

func TestCountersBeginAnew(t *testing.T) {
	c := newClock(1 << 20)
	for _, v := range []float64{100, 110, 4, 9} {
		c.pass(func(p *Pass) { p.Counter(bytesTotal, v, "web", "in") })
	}
	f := mustQuery(t, c.History, Query{Metric: "bytes_total"})
	if got := f.Groups[0].Values; !slices.Equal(got, []float64{10, 4, 5}) {
		t.Errorf("%v", got)
	}
}

func TestGaugesEndWithTheirSeries(t *testing.T) {
	c := newClock(1 << 20)
	for i := range 10 {
		c.pass(func(p *Pass) {
			p.Gauge(open, 7, "a")
			if i < 5 {
				p.Gauge(open, 1, "b")
			}
			p.Gauge(open, math.NaN(), "c")
			p.Gauge(open, math.Inf(1), "d")
		})
	}
	f := mustQuery(t, c.History, Query{Metric: "open"})
	if got, want := f.Groups[0].Values, []float64{8, 8, 8, 8, 7, 7, 7, 7, 7}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCoarseMetricsAreRecordedEveryTenSeconds(t *testing.T) {
	c := newClock(1 << 20)
	for i := range 41 {
		c.pass(func(p *Pass) { p.Gauge(healthy, float64(i), "a") })
	}
	f := mustQuery(t, c.History, Query{Metric: "healthy", Since: time.Minute})
	if got, want := f.Groups[0].Values, []float64{10, 20, 30, 40}; !slices.Equal(got, want) || f.Step != CoarseStep {
		t.Errorf("%v every %v, want %v", got, f.Step, want)
	}
}

func TestHistogramsAddUp(t *testing.T) {
	node := func(fast, slow uint64) *Frame {
		c := newClock(1 << 20)
		for i := range uint64(21) {
			c.pass(func(p *Pass) { p.Observed(took, []uint64{fast * i, 0, slow * i, 0}, float64(slow*i)*5, "web") })
		}
		return mustQuery(t, c.History, Query{Metric: "took", By: []string{"service"}, Since: time.Minute})
	}
	f := node(99, 0)
	if err := f.Add(node(0, 1)); err != nil {
		t.Fatal(err)
	}
	if g := f.Groups[0]; len(f.Groups) != 1 || !slices.Equal(g.Counts, []float64{990, 0, 10, 0, 990, 0, 10, 0}) || !slices.Equal(g.Sums, []float64{50, 50}) {
		t.Fatalf("%+v", f)
	}
	// The percentile of both is none of the averages of each one's.
	if got := f.Quantile(&f.Groups[0], .5)[0]; got < .05 || got > .051 {
		t.Errorf("p50 %v", got)
	}
	if got := f.Quantile(&f.Groups[0], .995)[0]; got != 1+9*.5 {
		t.Errorf("p99.5 %v, want 5.5: the middle of the third bucket", got)
	}
	if got := quantile(f.Buckets, []float64{0, 0, 0, 0}, .5); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
	if got := quantile(f.Buckets, []float64{0, 0, 0, 9}, .5); got != 10 {
		t.Errorf("above the last bound: %v", got)
	}
}

func TestFramesOfDifferentLengths(t *testing.T) {
	node := func(n int, service string) *Frame {
		c := newClock(1 << 20)
		for range n {
			c.pass(func(p *Pass) { p.Gauge(open, 1, service) })
		}
		return mustQuery(t, c.History, Query{Metric: "open"})
	}
	for _, order := range [][2]int{{3, 6}, {6, 3}} {
		f := node(order[0], "a")
		if err := f.Add(node(order[1], "a")); err != nil {
			t.Fatal(err)
		}
		if got := f.Groups[0].Values; !slices.Equal(got, []float64{1, 1, 1, 2, 2}) {
			t.Errorf("%v: %v", order, got)
		}
	}
	f := node(3, "a")
	for name, o := range map[string]*Frame{
		"kind":  {Kind: Counter, Step: time.Second},
		"step":  {Kind: Gauge, Step: CoarseStep},
		"short": {Kind: Gauge, Step: time.Second, Points: 2, Groups: []Group{{Values: []float64{1}}}},
	} {
		if err := f.Add(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A model that keeps everything gives the same increases as the history, at each
// resolution, after hours.
func TestHistoryAgreesWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClock(1 << 30)
		var values []float64
		v := 0.0
		for range rapid.IntRange(1, 60).Draw(t, "minutes") {
			every, more := rapid.SampledFrom([]int{1, 3, 50, 100}).Draw(t, "every"), rapid.IntRange(0, 1000).Draw(t, "more")
			for range 60 + rapid.IntRange(0, 20).Draw(t, "extra") {
				if len(values)%every == 0 {
					v += float64(more)
				}
				values = append(values, v)
				c.pass(func(p *Pass) { p.Counter(bytesTotal, v, "web", "in") })
			}
		}
		fine, err := c.Query(Query{Metric: "bytes_total", Step: FineStep})
		if err != nil {
			t.Fatal(err)
		}
		if want := min(len(values)-1, int(fineSlots)); fine.Points != want {
			t.Fatalf("%d points, want %d", fine.Points, want)
		}
		for i, got := range fine.Groups[0].Values {
			at := len(values) - fine.Points + i
			if want := values[at] - values[at-1]; got != want {
				t.Fatalf("second %d: %v, want %v", at, got, want)
			}
		}
		coarse, err := c.Query(Query{Metric: "bytes_total", Step: 3 * CoarseStep, Since: CoarseWindow})
		if err != nil {
			t.Fatal(err)
		}
		last := (len(values) - 1) / 10
		for i := range coarse.Points {
			to := last - 3*(coarse.Points-1-i)
			if got, want := coarse.Groups[0].Values[i], values[to*10]-values[(to-3)*10]; got != want {
				t.Fatalf("slot %d: %v, want %v", to, got, want)
			}
		}
	})
}

// A full budget shortens the time that is kept, then refuses series; it is never passed
// by more than a pass.
func TestBudgetBoundsTheHistory(t *testing.T) {
	const budget, services = 400_000, 1000
	c := newClock(budget)
	for i := range 1800 {
		c.pass(func(p *Pass) {
			for s := range services {
				p.Gauge(healthy, float64(i*s), fmt.Sprint("service-", s))
			}
		})
		if got := c.Stats().Bytes; got > budget+services*16 {
			t.Fatalf("%d bytes after %d passes, with a budget of %d", got, i, budget)
		}
	}
	stats := c.Stats()
	if stats.Window >= CoarseWindow || stats.Window < FineWindow || stats.Dropped > 0 || stats.Series != services {
		t.Fatalf("%+v: want a shorter window with all series", stats)
	}
	f := mustQuery(t, c.History, Query{Metric: "healthy", Since: CoarseWindow})
	if got := time.Duration(f.Points) * f.Step; got > stats.Window || got < stats.Window/2 {
		t.Errorf("points of %v, but the window is %v", got, stats.Window)
	}

	small := newClock(20_000)
	for range 100 {
		small.pass(func(p *Pass) {
			for s := range services {
				p.Gauge(healthy, 1, fmt.Sprint("service-", s))
			}
		})
	}
	if stats := small.Stats(); stats.Dropped == 0 || stats.Series == 0 || stats.Bytes > 30_000 {
		t.Errorf("%+v: want a part of the series", stats)
	}
}

// Series that are gone are forgotten once their last value is out of the window.
func TestGoneSeriesAreForgotten(t *testing.T) {
	c := newClock(1 << 20)
	c.pass(func(p *Pass) { p.Gauge(healthy, 1, "old") })
	for range int(CoarseWindow/time.Second) + 20 {
		c.pass(func(p *Pass) { p.Gauge(healthy, 1, "new") })
	}
	if got := c.Stats(); got.Series != 1 || got.Bytes > 1000 {
		t.Errorf("%+v", got)
	}
}

// A clock that stands still or jumps ahead breaks nothing.
func TestPassesAtOddTimes(t *testing.T) {
	c := newClock(1 << 20)
	v := 0.0
	for _, wait := range []time.Duration{0, 0, time.Millisecond, time.Second, 7 * time.Second, time.Hour, 3 * time.Hour, time.Second} {
		c.at = c.at.Add(wait - time.Second)
		c.pass(func(p *Pass) { v++; p.Counter(bytesTotal, v, "web", "in"); p.Gauge(healthy, v, "web") })
	}
	f := mustQuery(t, c.History, Query{Metric: "bytes_total", Since: CoarseWindow})
	if got := sum(f.Groups[0].Values); got != 1 {
		t.Errorf("an increase of %v in the last hour, want 1: the last pass that entered a slot of ten seconds", got)
	}
}

func TestQueriesAreChecked(t *testing.T) {
	c := newClock(1 << 24)
	for range 3 {
		c.pass(func(p *Pass) { p.Gauge(open, 1, "a") })
	}
	for want, q := range map[string]Query{
		"metric: missing":             {},
		"since: 2h":                   {Metric: "open", Since: 2 * time.Hour},
		"step: 3s":                    {Metric: "open", Step: 3 * time.Second},
		"points of 1s are kept for":   {Metric: "open", Step: time.Second, Since: time.Hour},
		`open has no label "x"`:       {Metric: "open", By: []string{"x"}},
		`it has: service`:             {Metric: "open", Where: map[string][]string{"y": {"a"}}},
		`no such metric has been`:     {Metric: "nothing"},
		"since: -1s is not between 0": {Metric: "open", Since: -time.Second},
	} {
		if _, err := c.Query(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", q, err, want)
		}
	}
	many := newClock(1 << 30)
	for range 3 {
		many.pass(func(p *Pass) {
			for s := range maxCells {
				p.Gauge(open, 1, fmt.Sprint(s))
			}
		})
	}
	if _, err := many.Query(Query{Metric: "open", By: []string{"service"}}); !errors.Is(err, ErrTooMany) {
		t.Errorf("%v", err)
	}

	// Neither may the sum of two nodes have too many.
	frame := func(first int) *Frame {
		f := &Frame{Metric: "open", Kind: Gauge, Step: FineStep, Points: int(fineSlots)}
		for i := range maxCells / int(fineSlots) {
			f.Groups = append(f.Groups, Group{Labels: []string{fmt.Sprint(first + i)}, Values: make([]float64, fineSlots)})
		}
		return f
	}
	f := frame(0)
	if err := f.Add(frame(0)); err != nil {
		t.Errorf("the same series of two nodes: %v", err)
	}
	if err := f.Add(frame(1)); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
}

func BenchmarkRecord(b *testing.B) {
	c := newClock(1 << 30)
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprint("service-", i)
	}
	i := 0.0
	b.ReportAllocs()
	for b.Loop() {
		i++
		c.pass(func(p *Pass) {
			for _, name := range names {
				p.Gauge(open, i, name)
			}
		})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(names)), "ns/value")
	b.ReportMetric(float64(c.Stats().Bytes)/float64(len(names)), "B/series")
}
