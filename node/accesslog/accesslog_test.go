package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/node/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var fullRecord = Record{
	Event: Closed, At: time.Unix(1700000000, 0).UTC(), ID: 7, Listener: "edge", Client: netip.MustParseAddrPort("192.0.2.1:5000"),
	SNI: "a b", TLS: "1.3", Identity: `CN="a`, Service: "apps", Endpoint: "127.0.0.1:7001", Reason: "client_fin",
	In: 10, Out: 20, Duration: time.Second, Connect: time.Millisecond, Attempts: 1,
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
		{Record{Event: Closed, At: fullRecord.At, ID: 10, Listener: "edge", Reason: "no_sni", TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: 2}},
			`time=2023-11-14T22:13:20.000Z level=INFO msg="connection closed" id=10 listener=edge reason=no_sni in=0 out=0 duration=0s ` +
				`trace=00000000000000000000000000000001 span=0000000000000002`},
		{Record{Event: Closed, At: fullRecord.At, ID: 9, Listener: "edge", Reason: "no_sni"},
			`time=2023-11-14T22:13:20.000Z level=INFO msg="connection closed" id=9 listener=edge reason=no_sni in=0 out=0 duration=0s`},
	} {
		var out bytes.Buffer
		l := New(Config{Out: &out})
		l.Write(c.record)
		l.Close()
		if got := strings.TrimSuffix(out.String(), "\n"); got != c.want {
			t.Errorf("wrote\n%s\nwant\n%s", got, c.want)
		}
	}
}

func TestLinesInJSON(t *testing.T) {
	var out bytes.Buffer
	l := New(Config{Out: &out, JSON: true})
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

func (g *blockedWriter) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.entered) })
	<-g.open
	g.lines += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

func TestStuckWriterDoesNotBlock(t *testing.T) {
	g := &blockedWriter{open: make(chan struct{}), entered: make(chan struct{})}
	l := New(Config{Out: g, Queue: 10})
	l.Write(fullRecord)
	<-g.entered
	for range 100 {
		l.Write(fullRecord)
	}
	if n := l.Dropped(); n != 90 {
		t.Errorf("%d lines dropped, want 90", n)
	}
	close(g.open)
	l.Close()
	if g.lines != 11 {
		t.Errorf("%d lines written, want 11", g.lines)
	}
}

// A queued line keeps only the truncated texts from clients in memory.
func TestQueuedTextsAreTruncated(t *testing.T) {
	g := &blockedWriter{open: make(chan struct{}), entered: make(chan struct{})}
	l := New(Config{Out: g, Queue: 1000})
	l.Write(fullRecord)
	<-g.entered
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := held()
	for range 1000 {
		r := fullRecord
		r.Event, r.SNI = Requested, strings.Repeat("s", 16<<10)
		r.Request = &Request{Method: strings.Repeat("m", 8<<10), Host: strings.Repeat("h", 8<<10), Path: strings.Repeat("p", 64<<10)}
		l.Write(r)
	}
	if each := (held() - before) / 1000; each > 8<<10 {
		t.Errorf("%d bytes wait for each line", each)
	}
	if n := l.Dropped(); n != 0 {
		t.Errorf("%d lines are dropped", n)
	}
	close(g.open)
	l.Close()
}

type brokenOnce struct {
	bytes.Buffer
	failed bool
}

func (b *brokenOnce) Write(p []byte) (int, error) {
	if !b.failed {
		b.failed = true
		return 0, errors.New("disk full")
	}
	return b.Buffer.Write(p)
}

func TestWritingResumesAfterFailedWrite(t *testing.T) {
	out := &brokenOnce{}
	l := New(Config{Out: out})
	l.Write(fullRecord)
	for l.Dropped() == 0 {
		l.Write(fullRecord)
	}
	l.Write(fullRecord)
	l.Close()
	if !strings.Contains(out.String(), "client_fin") {
		t.Error("nothing was written after the failure")
	}
}

func BenchmarkWrite(b *testing.B) {
	l := New(Config{Out: new(discard)})
	defer l.Close()
	b.ReportAllocs()
	for b.Loop() {
		l.Write(fullRecord)
	}
}

type discard struct{}

func (*discard) Write(p []byte) (int, error) { return len(p), nil }
