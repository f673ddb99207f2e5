package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/node/accesslog"
	"penstock/node/api"
)

// newLogs returns the logs of a node, and its own log, of which nothing is written.
func newLogs(budget int) (*Logs, *slog.Logger) {
	l := New(Config{Node: "n1", Budget: budget})
	return l, slog.New(l.Handler(slog.DiscardHandler))
}

func (l *Logs) all(f api.LogFilter) []api.LogEntry {
	return l.Read(&api.LogsHereRequest{LogFilter: f, Limit: api.MaxLogs}).Entries
}

// messages returns the messages of entries, each with its first value.
func messages(entries []api.LogEntry) (all []string) {
	for i := range entries {
		text := entries[i].Message
		if a := entries[i].Attrs; len(a) > 0 {
			text += " " + a[0].Value
		}
		all = append(all, text)
	}
	return all
}

func attr(e *api.LogEntry, key string) string {
	for _, a := range e.Attrs {
		if a.Key == key {
			return a.Value
		}
	}
	return ""
}

func record(id uint64, service, reason string) *accesslog.Record {
	return &accesslog.Record{
		Event: accesslog.Closed, At: time.Now(), ID: id, Listener: "edge", Client: netip.MustParseAddrPort("192.0.2.1:5000"), SNI: "api.example.com",
		Service: service, Endpoint: "127.0.0.1:7001", Reason: reason, In: 10, Out: 20, Duration: 1500 * time.Millisecond,
		Connect: time.Millisecond, Attempts: 1,
	}
}

func TestLinesAreReadAsTheyWereWritten(t *testing.T) {
	var out bytes.Buffer
	l := New(Config{Node: "n1"})
	log := slog.New(l.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.With("room", "edge").WithGroup("g").With("a", 1).Info("said", "error", errors.New("broken"), "took", time.Second, "ok", true, "share", 0.5,
		slog.Group("in", "n", uint64(7)), "at", time.Unix(1700000000, 0))
	log.Debug("not wanted")
	log.Warn("warned")
	l.Put(record(4711, "apps", "no_route"))
	got := l.all(api.LogFilter{})
	if len(got) != 3 || got[0].Message != "said" || got[0].Level != "info" || got[0].Node != "n1" || got[1].Level != "warn" {
		t.Fatalf("%+v", got)
	}
	want := "[{room edge} {g.a 1} {g.error broken} {g.took 1s} {g.ok true} {g.share 0.5} {g.in.n 7} {g.at 2023-11-14T22:13:20Z}]"
	if text := fmt.Sprint(got[0].Attrs); text != want {
		t.Errorf("values %s\nwant   %s", text, want)
	}
	want = "[{id 4711} {listener edge} {client 192.0.2.1:5000} {sni api.example.com} {service apps} {endpoint 127.0.0.1:7001} {reason no_route} " +
		"{in 10} {out 20} {duration 1.5s} {connect 1ms} {attempts 1}]"
	if text := fmt.Sprint(got[2].Attrs); text != want || got[2].Message != "connection closed" {
		t.Errorf("values %s\nwant   %s", text, want)
	}
	if strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "msg=warned") {
		t.Errorf("passed on:\n%s", out.String())
	}
}

// The next handler decides what is below info, and the memory has that too.
func TestDebugLinesAreKeptIfTheyAreWanted(t *testing.T) {
	l := New(Config{})
	log := slog.New(l.Handler(slog.NewTextHandler(new(bytes.Buffer), &slog.HandlerOptions{Level: slog.LevelDebug})))
	log.Debug("detail")
	if got := l.all(api.LogFilter{}); len(got) != 1 || got[0].Level != "debug" {
		t.Errorf("%+v", got)
	}
}

func TestFilters(t *testing.T) {
	l, log := newLogs(0)
	log.Info("starting", "name", "n1")
	log.Warn("endpoint is down", "service", "apps", "error", "Connection REFUSED")
	log.Info("a session has moved", "connection", uint64(2))
	log.Info("other", "id", 2)
	l.Put(record(1, "apps", "client_fin"))
	l.Put(record(2, "shop", "no_healthy_endpoint"))
	old := record(3, "apps", "upstream_reset")
	old.At = time.Now().Add(-time.Hour)
	l.Put(old)
	for name, c := range map[string]struct {
		f    api.LogFilter
		want []string
	}{
		"service":                 {api.LogFilter{Service: "apps"}, []string{"endpoint is down apps", "connection closed 1", "connection closed 3"}},
		"reason":                  {api.LogFilter{Reason: "no_healthy_endpoint"}, []string{"connection closed 2"}},
		"service and reason":      {api.LogFilter{Service: "apps", Reason: "no_healthy_endpoint"}, nil},
		"listener":                {api.LogFilter{Listener: "edge"}, []string{"connection closed 1", "connection closed 2", "connection closed 3"}},
		"other listener":          {api.LogFilter{Listener: "edg"}, nil},
		"level":                   {api.LogFilter{Level: "warn"}, []string{"endpoint is down apps"}},
		"connection":              {api.LogFilter{Connection: 2}, []string{"a session has moved 2", "connection closed 2"}},
		"text in any case":        {api.LogFilter{Text: "connection ref"}, []string{"endpoint is down apps"}},
		"text of a number":        {api.LogFilter{Text: "1.5S", Service: "shop"}, []string{"connection closed 2"}},
		"text of a known message": {api.LogFilter{Text: "CLOSED", Reason: "client_fin"}, []string{"connection closed 1"}},
		"own":                     {api.LogFilter{Own: true}, []string{"starting n1", "endpoint is down apps", "a session has moved 2", "other 2"}},
		"access":                  {api.LogFilter{Access: true}, []string{"connection closed 1", "connection closed 2", "connection closed 3"}},
	} {
		if got := messages(l.all(c.f)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	r := &api.LogsHereRequest{LogFilter: api.LogFilter{Access: true}, Since: time.Now().Add(-time.Minute), Limit: 10}
	if got := messages(l.Read(r).Entries); !slices.Equal(got, []string{"connection closed 1", "connection closed 2"}) {
		t.Errorf("since: %q", got)
	}
	if got := messages(l.Read(&api.LogsHereRequest{Limit: 2}).Entries); !slices.Equal(got, []string{"connection closed 2", "connection closed 3"}) {
		t.Errorf("the last two: %q", got)
	}
	if got := messages(l.OfConnection(2)); !slices.Equal(got, []string{"a session has moved 2", "connection closed 2"}) {
		t.Errorf("of connection 2: %q", got)
	}
	for _, f := range []api.LogFilter{{Level: "loud"}, {Own: true, Access: true}} {
		if Check(&f) == nil {
			t.Errorf("%+v passes", f)
		}
	}
}

// A flood of lines of one kind forgets only lines of that kind, and the memory keeps its
// bound.
func TestAFloodForgetsOnlyItsOwnKind(t *testing.T) {
	const budget = MinBudget
	for _, c := range []struct {
		kind Ring
		one  func(l *Logs, log *slog.Logger, i int)
	}{
		{Access, func(l *Logs, _ *slog.Logger, i int) { l.Put(record(uint64(i+100), "apps", "client_fin")) }},
		{Failures, func(l *Logs, _ *slog.Logger, i int) { l.Put(record(uint64(i+100), "apps", "no_route")) }},
		{Own, func(_ *Logs, log *slog.Logger, i int) { log.Info("said", "i", i) }},
		{Warnings, func(_ *Logs, log *slog.Logger, i int) { log.Warn("warned", "i", i) }},
	} {
		l, log := newLogs(budget)
		log.Info("first own")
		log.Error("first error")
		l.Put(record(1, "apps", "client_fin"))
		l.Put(record(2, "apps", "client_reset"))
		for i := range 50_000 {
			c.one(l, log, i)
		}
		bytes := 0
		for i, s := range l.Stats() {
			bytes += s.Bytes
			if lost := s.Forgotten > 0; lost != (Ring(i) == c.kind) || s.Lines == 0 {
				t.Errorf("a flood of %v: %v has %+v", c.kind, Ring(i), s)
			}
		}
		if bytes > budget {
			t.Errorf("a flood of %v: %d bytes", c.kind, bytes)
		}
		s := l.Stats()[c.kind]
		if uint64(s.Lines)+s.Forgotten != 50_001 { //nolint:gosec // not negative
			t.Errorf("a flood of %v: %+v", c.kind, s)
		}
	}
}

// A line of a megabyte is cut, and says by how much.
func TestALongLineIsCut(t *testing.T) {
	l, log := newLogs(0)
	log.Info(strings.Repeat("m", 1<<20), "a", strings.Repeat("a", 1<<20), "b", 1)
	var many []any
	for i := range 2000 {
		many = append(many, fmt.Sprintf("key-%d", i), strings.Repeat("v", 50))
	}
	log.Info("many", many...)
	log.Info("key", strings.Repeat("k", 1<<20), 1)
	got := l.all(api.LogFilter{})
	if len(got) != 3 {
		t.Fatalf("%d lines", len(got))
	}
	if e := &got[0]; len(e.Message) != maxText || len(attr(e, "a")) != maxText || attr(e, "b") != "1" || attr(e, truncatedKey) != fmt.Sprint(2*(1<<20-maxText)) {
		t.Errorf("message of %d bytes, %s cut off", len(e.Message), attr(e, truncatedKey))
	}
	if e := &got[1]; sizeOf(e) > 3*maxLine || attr(e, "key-0") == "" || attr(e, "key-1999") != "" || attr(e, truncatedKey) == "" {
		t.Errorf("%d bytes, %s cut off", sizeOf(e), attr(e, truncatedKey))
	}
	if e := &got[2]; attr(e, truncatedKey) != fmt.Sprint(1<<20-maxText) {
		t.Errorf("a long key: %s cut off", attr(e, truncatedKey))
	}
}

// Whoever reads from position to position gets each line once, or is told how many were
// forgotten.
func TestPositions(t *testing.T) {
	l, log := newLogs(MinBudget)
	log.Info("before", "i", 0)
	first := l.Read(&api.LogsHereRequest{Limit: 10})
	for i := range 5 {
		log.Info("said", "i", i)
		l.Put(record(uint64(i), "apps", "client_fin")) //nolint:gosec // not negative
	}
	second := l.Read(&api.LogsHereRequest{After: first.Position, Limit: 100})
	if len(first.Entries) != 1 || len(second.Entries) != 10 || second.Lost != 0 || second.Entries[0].Message != "said" {
		t.Fatalf("%d, then %d lines, %d lost", len(first.Entries), len(second.Entries), second.Lost)
	}
	third := l.Read(&api.LogsHereRequest{After: second.Position, Limit: 100})
	if len(third.Entries) != 0 || third.Lost != 0 {
		t.Errorf("%+v", third)
	}
	const flood = 20_000
	for i := range flood {
		log.Info("flood", "i", i)
	}
	fourth := l.Read(&api.LogsHereRequest{After: third.Position, Limit: 100})
	if got := uint64(len(fourth.Entries)) + fourth.Lost; len(fourth.Entries) != 100 || got != flood {
		t.Errorf("%d lines, %d lost of %d", len(fourth.Entries), fourth.Lost, flood)
	}
	if other := l.Read(&api.LogsHereRequest{LogFilter: api.LogFilter{Access: true}, After: third.Position, Limit: 100}); other.Lost != 0 {
		t.Errorf("%d lines of another kind are lost", other.Lost)
	}
	// A position of an earlier start, whose clock was ahead, is none of this one's.
	if again := l.Read(&api.LogsHereRequest{After: fourth.Position + 1<<40, Limit: 10}); len(again.Entries) != 10 {
		t.Errorf("after a restart: %d lines", len(again.Entries))
	}
}

// An answer has a bound in bytes: the last lines.
func TestAnAnswerIsBounded(t *testing.T) {
	l, log := newLogs(64 << 20)
	for i := range 3000 {
		log.Info("long", "i", i, "text", strings.Repeat("x", maxText))
	}
	got := l.all(api.LogFilter{})
	if n := len(got); n < 900 || n > 1100 || got[n-1].Attrs[0].Value != "2999" {
		t.Errorf("%d lines", n)
	}
}

// Any values survive the memory.
func TestValuesSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var attrs []slog.Attr
		var want []string
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			key := rapid.SampledFrom([]string{"id", "service", "x", "", "ключ", "truncated"}).Draw(t, "key")
			var a slog.Attr
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				a = slog.String(key, rapid.String().Draw(t, "s"))
			case 1:
				a = slog.Int64(key, rapid.Int64().Draw(t, "i"))
			case 2:
				a = slog.Uint64(key, rapid.Uint64().Draw(t, "u"))
			case 3:
				a = slog.Duration(key, time.Duration(rapid.Int64().Draw(t, "d")))
			case 4:
				a = slog.Float64(key, rapid.Float64().Draw(t, "f"))
			case 5:
				a = slog.Bool(key, rapid.Bool().Draw(t, "b"))
			default:
				a = slog.Any(key, rapid.SliceOf(rapid.Int()).Draw(t, "any"))
			}
			attrs = append(attrs, a)
			want = append(want, key+"="+a.Value.String())
		}
		at := time.Unix(0, rapid.Int64().Draw(t, "at")).UTC()
		level := slog.Level(rapid.IntRange(-8, 12).Draw(t, "level"))
		message := rapid.String().Draw(t, "message")
		e := (&Logs{}).entry(appendLine(nil, at, level, message, attrs))
		var got []string
		for _, a := range e.Attrs {
			got = append(got, a.Key+"="+a.Value)
		}
		if !e.At.Equal(at) || e.Message != message || e.Level != levelText(level) || !slices.Equal(got, want) {
			t.Fatalf("%+v, want %v %q %q", e, at, message, want)
		}
	})
}

// Lines come and are read at the same time.
func TestReadersAndWriters(t *testing.T) {
	l, log := newLogs(MinBudget)
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		writers.Go(func() {
			for i := range 20_000 {
				log.Info("said", "i", i)
				l.Put(record(uint64(i), "apps", "no_route")) //nolint:gosec // not negative
			}
		})
		readers.Go(func() {
			seen, position := uint64(0), uint64(1)
			for over := false; !over; {
				select {
				case <-done:
					over = true
				default:
				}
				r := l.Read(&api.LogsHereRequest{After: position, Limit: 1000})
				position = r.Position
				seen += uint64(len(r.Entries)) + r.Lost
				for i := range r.Entries {
					if e := &r.Entries[i]; e.Message != "said" && attr(e, "reason") != "no_route" {
						t.Errorf("read %+v", e)
						return
					}
				}
			}
			// A reader that is slow has some lines of a segment counted as lost that it has read.
			if seen < 80_000 {
				t.Errorf("%d lines were read or lost, of 80,000", seen)
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

func BenchmarkPut(b *testing.B) {
	l, _ := newLogs(0)
	r := record(1, "apps", "client_fin")
	b.ReportAllocs()
	for b.Loop() {
		l.Put(r)
	}
	s := l.Stats()[Access]
	b.ReportMetric(float64(s.Bytes)/float64(s.Lines), "bytes/line")
}

func BenchmarkHandle(b *testing.B) {
	_, log := newLogs(0)
	b.ReportAllocs()
	for b.Loop() {
		log.LogAttrs(context.Background(), slog.LevelInfo, "endpoint is up", slog.String("service", "apps"), slog.Int("n", 3))
	}
}

func BenchmarkReadByReason(b *testing.B) {
	l, _ := newLogs(0)
	for i := range 100_000 {
		l.Put(record(uint64(i), "apps", "client_reset")) //nolint:gosec // not negative
		l.Put(record(uint64(i), "apps", "client_fin"))   //nolint:gosec // not negative
	}
	r := &api.LogsHereRequest{LogFilter: api.LogFilter{Reason: "no_route"}, Limit: 100}
	for b.Loop() {
		l.Read(r)
	}
}
