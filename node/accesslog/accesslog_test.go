package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var fullRecord = Record{
	Event: Closed, At: time.Unix(1700000000, 0).UTC(), ID: 7, Listener: "edge", Client: netip.MustParseAddrPort("192.0.2.1:5000"),
	SNI: "a b", TLS: "1.3", Identity: `CN="a`, Service: "apps", Endpoint: "127.0.0.1:7001", Reason: "client_fin",
	In: 10, Out: 20, Duration: time.Second, Connect: time.Millisecond, Attempts: 1,
}

// logTo makes a log with one sink.
func logTo(cfg LinesConfig) *Log {
	l := New(Config{})
	l.Add(NewLines(cfg))
	return l
}

func mustFormat(t testing.TB, name string, fields ...string) Format {
	t.Helper()
	f, err := NewFormat(name, fields)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestLineOmitsEmptyFields(t *testing.T) {
	for _, c := range []struct {
		record Record
		want   string
	}{
		{fullRecord, `time=2023-11-14T22:13:20.000Z level=INFO msg="connection closed" id=7 listener=edge client=192.0.2.1:5000 ` +
			`sni="a b" tls=1.3 identity="CN=\"a" service=apps endpoint=127.0.0.1:7001 reason=client_fin in=10 out=20 duration=1s connect=1ms attempts=1`},
		{Record{
			Event: Connected, At: fullRecord.At, ID: 8, Listener: "unix", Service: "apps", Endpoint: "e",
			Connect: time.Millisecond, Attempts: 2,
		},
			`time=2023-11-14T22:13:20.000Z level=INFO msg="connection opened" id=8 listener=unix ` +
				`service=apps endpoint=e connect=1ms attempts=2`},
		{Record{Event: Closed, At: fullRecord.At, ID: 9, Listener: "edge", Reason: "no_sni"},
			`time=2023-11-14T22:13:20.000Z level=INFO msg="connection closed" id=9 listener=edge reason=no_sni in=0 out=0 duration=0s`},
	} {
		var out bytes.Buffer
		l := logTo(LinesConfig{Output: To(&out)})
		l.Write(c.record)
		l.Close()
		if got := strings.TrimSuffix(out.String(), "\n"); got != c.want {
			t.Errorf("wrote\n%s\nwant\n%s", got, c.want)
		}
	}
}

func TestLinesInJSON(t *testing.T) {
	var out bytes.Buffer
	l := logTo(LinesConfig{Output: To(&out), Format: mustFormat(t, FormatJSON)})
	l.Write(fullRecord)
	l.Close()
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil ||
		line["reason"] != "client_fin" || line["out"] != 20.0 || line["connect"] != 0.001 {
		t.Errorf("%v: %s", err, out.Bytes())
	}
}

// blockedWriter is a writer that blocks until it is opened.
type blockedWriter struct {
	open    chan struct{}
	entered chan struct{}
	once    sync.Once
	lines   int
}

func newBlockedWriter() *blockedWriter {
	return &blockedWriter{open: make(chan struct{}), entered: make(chan struct{})}
}

func (g *blockedWriter) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.entered) })
	<-g.open
	g.lines += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

// A sink that is stuck holds its bound of bytes, and delays neither the callers nor the
// other sinks.
func TestStuckSinkDelaysNothing(t *testing.T) {
	stuck, out := newBlockedWriter(), new(testkit.Log)
	l := New(Config{Queue: 10_000})
	l.Add(NewLines(LinesConfig{Name: "stuck", Output: To(stuck), Queue: 20_000}))
	l.Add(NewLines(LinesConfig{Name: "other", Output: To(out)}))
	l.Write(fullRecord)
	<-stuck.entered
	for range 1000 {
		l.Write(fullRecord)
	}
	testkit.WaitFor(t, "the other sink's lines", func() bool { return strings.Count(out.String(), "\n") == 1001 })
	s := l.Sinks()[0].Stats
	if s.Queued > 20_000 || s.Dropped < 900 || s.Dropped > 1000 || l.Lost() != 0 {
		t.Errorf("%+v; %d records lost", s, l.Lost())
	}
	dropped := s.Dropped
	close(stuck.open)
	l.Close()
	if got := uint64(stuck.lines); got != 1001-dropped { //nolint:gosec // not negative
		t.Errorf("%d lines written, %d dropped of 1001", got, dropped)
	}
}

// blockedSink is a sink whose Put blocks until it is opened.
type blockedSink struct {
	*blockedWriter
	got int
}

func (b *blockedSink) Name() string { return "blocked" }
func (b *blockedSink) Put(*Record)  { _, _ = b.Write(nil); b.got++ }
func (b *blockedSink) Stats() Stats { return Stats{} }
func (b *blockedSink) Close()       {}

// Write does not wait for a full queue, and a queued record keeps only the truncated texts
// from clients in memory.
func TestQueueIsBounded(t *testing.T) {
	b := &blockedSink{blockedWriter: newBlockedWriter()}
	l := New(Config{Queue: 1000})
	l.Add(b)
	l.Write(fullRecord)
	<-b.entered
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := held()
	for range 1100 {
		r := fullRecord
		r.Event, r.SNI, r.ClientID = Requested, strings.Repeat("s", 16<<10), strings.Repeat("c", 1<<20)
		r.Request = &Request{Method: strings.Repeat("m", 8<<10), Host: strings.Repeat("h", 8<<10), Path: strings.Repeat("p", 64<<10)}
		l.Write(r)
	}
	if each := (held() - before) / 1000; each > 8<<10 {
		t.Errorf("%d bytes wait for each line", each)
	}
	if n := l.Lost(); n != 100 {
		t.Errorf("%d records are lost, want 100", n)
	}
	close(b.open)
	l.Close()
	if b.got != 1001 {
		t.Errorf("%d records reached the sink, want 1001", b.got)
	}
}

// brokenOnce fails once in the middle of a line, as a full disk does.
type brokenOnce struct {
	testkit.Log
	failed bool
}

func (b *brokenOnce) Write(p []byte) (int, error) {
	if !b.failed {
		b.failed = true
		n, _ := b.Log.Write(p[:30])
		return n, errors.New("disk full")
	}
	return b.Log.Write(p)
}

// After a failed write, the rest is written, and a line that was cut off ends.
func TestWritingResumesAfterFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &brokenOnce{}
		l := logTo(LinesConfig{Output: To(out)})
		for i := range uint64(3) {
			r := fullRecord
			r.ID = i
			l.Write(r)
		}
		synctest.Wait()
		<-time.After(maxRetry)
		l.Close()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || len(lines[0]) != 30 || !strings.Contains(lines[1], " id=1 ") || !strings.Contains(lines[2], " id=2 ") {
			t.Errorf("written: %q", lines)
		}
	})
}

// brokenForEver fails always.
type brokenForEver struct{}

func (brokenForEver) Write([]byte) (int, error) { return 0, errors.New("no server") }

// An output that fails for ever is told of once, loses lines only when too many wait, and
// does not hold up the end.
func TestOutputThatNeverWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told testkit.Log
		l := logTo(LinesConfig{Name: "gone", Output: To(brokenForEver{}), Queue: 10_000, Log: slog.New(slog.NewTextHandler(&told, nil))})
		for range 10 {
			for range 10 {
				l.Write(fullRecord)
			}
			<-time.After(time.Minute)
		}
		s := l.Sinks()[0]
		if s.Queued == 0 || s.Queued > 10_000 || s.Errors < 50 || s.Dropped == 0 || s.Written != 0 {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(told.String(), "cannot be written"); n != 1 {
			t.Errorf("told %d times:\n%s", n, told.String())
		}
		before := time.Now()
		l.Close()
		if took := time.Since(before); took > 2*closeTimeout {
			t.Errorf("Close took %v", took)
		}
	})
}

// Without sinks, records about failures are wanted for the memory alone.
func TestWhatIsWanted(t *testing.T) {
	var none *Log
	kept := &kept{}
	l := New(Config{Memory: kept})
	defer l.Close()
	for reason, want := range map[string]bool{"client_fin": false, "": false, "drained": false, "no_route": true, "client_reset": true, "identity_revoked": true} {
		if none.Wants(reason) || l.Wants(reason) != want {
			t.Errorf("%q is wanted: %v", reason, l.Wants(reason))
		}
	}
	if l.WantsRequest("", 200) || l.WantsRequest("", 404) || !l.WantsRequest("", 503) || !l.WantsRequest("", 0) || !l.WantsRequest("bad_path", 400) {
		t.Error("requests")
	}
	b := &blockedSink{}
	l.Add(b)
	if !l.Wants("client_fin") || !l.WantsRequest("", 200) {
		t.Error("a sink does not get ordinary ends")
	}
	l.Remove(b)
	if l.Wants("client_fin") {
		t.Error("ordinary ends are wanted for a sink that is gone")
	}
}

type kept struct{}

func (*kept) Put(*Record) {}

func BenchmarkWrite(b *testing.B) {
	l := logTo(LinesConfig{Output: To(io.Discard)})
	defer l.Close()
	b.ReportAllocs()
	for b.Loop() {
		l.Write(fullRecord)
	}
}

// BenchmarkUnwanted is the cost of an ordinary end with --access-log off.
func BenchmarkUnwanted(b *testing.B) {
	l := New(Config{Memory: new(kept)})
	defer l.Close()
	reason := string([]byte(fullRecord.Reason))
	for b.Loop() {
		if l.Wants(reason) {
			b.Fatal("wanted")
		}
	}
}
