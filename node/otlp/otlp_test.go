package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/internal/testkit"
	"penstock/node/accesslog"
	"penstock/node/otlp/otlptest"
	"penstock/node/trace"
)

// wholeSpan has all that a span can have.
func wholeSpan() *trace.Span {
	return &trace.Span{
		TraceID: trace.ID{15: 1}, SpanID: trace.SpanID{7: 2}, ParentID: trace.SpanID{7: 3}, TraceState: "a=b", Flags: trace.FlagSampled, Remote: true,
		Kind: trace.Server, Name: "GET", Start: time.Unix(1, 5), End: time.Unix(2, 0), Error: "connect_failed",
		Attrs: []trace.Attr{
			trace.String(trace.KeyListener, "edge"), trace.Int(trace.KeyStatus, 502), trace.Float("f", 0.5), trace.Bool("b", true),
			trace.String("odd", "a\xffb"),
		},
		Events: []trace.Event{{Name: "connected", At: time.Unix(1, 7), Attrs: []trace.Attr{trace.String(trace.KeyEndpoint, "10.0.0.1:80")}}},
		Links:  []trace.Link{{TraceID: trace.ID{15: 9}, SpanID: trace.SpanID{7: 8}, TraceState: "c=d"}},
	}
}

// The collector gets the signals with the attributes of the node, and the headers.
func TestAllSignalsArrive(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-environment=hunter3")
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://192.0.2.1:1")
		prefix := map[string]string{"http": "/otlp"}[protocol]
		c := otlptest.New(t, otlptest.Config{Protocol: protocol, Prefix: prefix})
		n := newNode(t)
		counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_test_total", Help: "Of a test."}, []string{"listener"})
		n.registry.MustRegister(counter)
		counter.WithLabelValues("edge").Add(42)
		n.apply("otel", fmt.Sprintf(`endpoint: "http://%s%s", protocol: %s, headers: [{name: X-Key, value: hunter2}]`, c.Address, prefix, protocol),
			"resourceAttributes: {service.name: proxy, team: core}, traces: true, logs: true, metrics: {interval: 1s}")
		n.Tracer().Policies()[0].Export(wholeSpan())
		n.Access(accesslog.Record{
			Event: accesslog.Closed, At: time.Unix(5, 0), ID: 7, Listener: "edge", Client: netip.MustParseAddrPort("192.0.2.1:5000"), Service: "apps",
			Reason: "client_fin", In: 10, Out: 20, Duration: time.Second, Error: errors.New("a\xffb"), TraceID: trace.ID{15: 1}, SpanID: trace.SpanID{7: 2},
		})
		slog.New(n.Handler()).With("loop", 1).WithGroup("g").Error("it failed", "error", errors.New("why"), "after", time.Second)
		waitSpans(t, c, 1)
		testkit.WaitFor(t, "two log records", func() bool { return len(c.Logs()) == 2 })
		testkit.WaitFor(t, "metrics", func() bool { return len(c.Metrics()) > 0 })

		node := map[string]string{
			"service.name": "proxy", "service.version": "v1", "service.instance.id": "id-1", "host.name": "h1",
			"penstock.node": "n1", "penstock.cluster": "c1", "team": "core",
		}
		span := c.Spans()[0]
		for of, got := range map[string]map[string]string{"span": span.Resource, "log": c.Logs()[0].Resource, "metric": c.Metrics()[0].Resource} {
			if !maps.Equal(got, node) {
				t.Errorf("the %s is of %v, want %v", of, got, node)
			}
		}
		checkSpan(t, &span)
		checkRecords(t, c.Logs())
		if m := c.Metrics()[0]; m.GetName() != "penstock_test_total" || m.GetSum().GetDataPoints()[0].GetAsDouble() != 42 || !m.GetSum().GetIsMonotonic() {
			t.Errorf("metric %v", m)
		}
		h := c.Header()
		if h.Get("X-Key") != "hunter2" || h.Get("x-environment") != "" || !strings.HasPrefix(h.Get("User-Agent"), userAgent) {
			t.Errorf("headers %v", h)
		}
		testkit.WaitFor(t, "the counts", func() bool {
			return !slices.ContainsFunc(n.States(), func(s State) bool { return s.Exported == 0 })
		})
		for _, s := range n.States() {
			if s.Failures > 0 || s.Fault != "" {
				t.Errorf("%+v", s)
			}
		}
	})
}

func checkSpan(t *testing.T, s *otlptest.Span) {
	t.Helper()
	if s.GetTraceId()[15] != 1 || s.GetSpanId()[7] != 2 || s.GetParentSpanId()[7] != 3 || s.GetTraceState() != "a=b" || s.GetFlags() != 0x301 ||
		s.GetName() != "GET" || s.GetKind() != 2 || s.GetStartTimeUnixNano() != 1e9+5 || s.GetEndTimeUnixNano() != 2e9 ||
		s.GetStatus().GetCode() != 2 || s.GetStatus().GetMessage() != "connect_failed" {
		t.Errorf("span %v", s.Span)
	}
	want := map[string]string{"penstock.listener": "edge", "http.response.status_code": "502", "f": "0.5", "b": "true", "odd": "a�b"}
	if got := otlptest.Attrs(s.GetAttributes()); !maps.Equal(got, want) {
		t.Errorf("attributes %v, want %v", got, want)
	}
	e, l := s.GetEvents()[0], s.GetLinks()[0]
	if e.GetName() != "connected" || e.GetTimeUnixNano() != 1e9+7 || otlptest.Attrs(e.GetAttributes())["penstock.endpoint"] != "10.0.0.1:80" ||
		l.GetTraceId()[15] != 9 || l.GetSpanId()[7] != 8 || l.GetTraceState() != "c=d" {
		t.Errorf("event %v, link %v", e, l)
	}
}

func checkRecords(t *testing.T, list []otlptest.Record) {
	t.Helper()
	access, own := list[0], list[1]
	want := map[string]string{
		"penstock.connection.id": "7", "penstock.listener": "edge", "client.address": "192.0.2.1", "client.port": "5000", "penstock.service": "apps",
		"penstock.reason": "client_fin", "penstock.bytes.in": "10", "penstock.bytes.out": "20", "penstock.duration": "1", "error.message": "a�b",
	}
	if got := otlptest.Attrs(access.GetAttributes()); !maps.Equal(got, want) || access.GetBody().GetStringValue() != "connection closed" ||
		access.GetTraceId()[15] != 1 || access.GetSpanId()[7] != 2 || access.GetTimeUnixNano() != 5e9 || access.GetSeverityNumber() != 9 {
		t.Errorf("record %v, attributes %v, want %v", access.LogRecord, got, want)
	}
	want = map[string]string{"loop": "1", "g.error": "why", "g.after": "1"}
	if got := otlptest.Attrs(own.GetAttributes()); !maps.Equal(got, want) || own.GetBody().GetStringValue() != "it failed" ||
		own.GetSeverityNumber() != 17 || own.GetSeverityText() != "ERROR" {
		t.Errorf("record %v, attributes %v, want %v", own.LogRecord, got, want)
	}
}

// A change takes effect at once: what was queued goes to the collector before it, what
// comes later to the new one.
func TestChangeTakesEffectAtOnce(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		before, after := otlptest.New(t, otlptest.Config{Protocol: protocol}), otlptest.New(t, otlptest.Config{Protocol: protocol})
		n := newNode(t)
		n.apply("otel", fmt.Sprintf("endpoint: %q, protocol: %s", before.Address, protocol), "traces: {sample: 5, client: 20, overall: 50, slow: 3s}")
		n.export("first")
		n.apply("otel", fmt.Sprintf("endpoint: %q, protocol: %s", after.Address, protocol), "traces: {listeners: [edge], errors: false, slow: 0}")
		n.export("second")
		waitSpans(t, before, 1)
		waitSpans(t, after, 1)
		if before.Spans()[0].GetName() != "first" || after.Spans()[0].GetName() != "second" || len(before.Spans()) != 1 {
			t.Errorf("before %v, after %v", before.Spans(), after.Spans())
		}
		testkit.WaitFor(t, "both counted: a change does not reset counters", func() bool { return n.state(Traces).Exported == 2 })
		n.delete("otel")
		if n.Tracer().Enabled() || len(n.States()) > 0 {
			t.Error("is in force after it was deleted")
		}
	})
}

func TestPolicies(t *testing.T) {
	n := newNode(t)
	n.apply("some", `endpoint: "127.0.0.1:1"`, "traces: {sample: 5, client: 20, overall: 50, slow: 3s, errors: false, services: [apps]}")
	n.apply("all", `endpoint: "127.0.0.1:1"`, "traces: true")
	n.apply("elsewhere", `endpoint: "127.0.0.1:1"`, "traces: true, nodes: {zone: b}")
	n.apply("here", `endpoint: "127.0.0.1:1"`, "traces: true, nodes: {zone: a}")
	policies := n.Tracer().Policies()
	var names []string
	for _, p := range policies {
		names = append(names, p.Telemetry)
	}
	if !slices.Equal(names, []string{"all", "here", "some"}) {
		t.Fatalf("policies of %v", names)
	}
	if p := policies[0]; p.Sample != 0.01 || p.Client != 1 || p.Overall != 1 || !p.Errors || p.Slow != time.Second || !p.Selects("x", "y") {
		t.Errorf("%+v", p)
	}
	if p := policies[2]; p.Sample != 0.05 || p.Client != 0.2 || p.Overall != 0.5 || p.Errors || p.Slow != 3*time.Second || !p.Selects("x", "apps") || p.Selects("x", "y") {
		t.Errorf("%+v", p)
	}
}

// Close sends what is queued.
func TestCloseFlushes(t *testing.T) {
	startBoth(t, "", func(t *testing.T, n *testNode, c *otlptest.Collector) {
		for range 100 {
			n.export("late")
		}
		n.Close(t.Context())
		if got := len(c.Spans()); got != 100 {
			t.Errorf("%d spans arrived, want 100", got)
		}
		n.apply("otel", `endpoint: "127.0.0.1:1"`, "traces: true")
		if n.Tracer().Enabled() {
			t.Error("a change took effect after Close")
		}
	})
}

func TestHandlerLevels(t *testing.T) {
	c := otlptest.New(t, otlptest.Config{})
	n := newNode(t)
	log := slog.New(n.Handler())
	if log.Enabled(t.Context(), slog.LevelError) || n.WantsAccess() {
		t.Error("lines are wanted without a Telemetry")
	}
	n.apply("traces", fmt.Sprintf("endpoint: %q", c.Address), "traces: true")
	if log.Enabled(t.Context(), slog.LevelError) || n.WantsAccess() {
		t.Error("lines are wanted without logs")
	}
	n.apply("warnings", fmt.Sprintf("endpoint: %q", c.Address), "logs: {access: false, level: warn}")
	if log.Enabled(t.Context(), slog.LevelInfo) || !log.Enabled(t.Context(), slog.LevelWarn) || n.WantsAccess() {
		t.Error("the level does not count")
	}
	n.apply("access", fmt.Sprintf("endpoint: %q", c.Address), "logs: {node: false}")
	log.Warn("own")
	n.Access(accesslog.Record{Event: accesslog.Connected, Listener: "edge"})
	testkit.WaitFor(t, "both", func() bool { return len(c.Logs()) == 2 })
	n.Close(t.Context())
	if len(c.Logs()) != 2 {
		t.Errorf("%d records, want each once", len(c.Logs()))
	}
}

// A line of any size has a bounded part in a queue.
func TestLinesAreBounded(t *testing.T) {
	c := otlptest.New(t, otlptest.Config{})
	n := newNode(t)
	n.apply("otel", fmt.Sprintf("endpoint: %q", c.Address), "logs: true")
	huge := strings.Repeat("é", 1<<20)
	args := []any{"group", slog.GroupValue(slog.String(huge, huge))}
	for range 1000 {
		args = append(args, "k", huge)
	}
	slog.New(n.Handler()).Warn(huge, args...)
	n.Access(accesslog.Record{
		Event: accesslog.Requested, SNI: huge, Identity: huge, Error: errors.New(huge),
		Request: &accesslog.Request{Method: huge, Host: huge, Path: huge},
	})
	n.Close(t.Context())
	if len(c.Logs()) != 2 {
		t.Fatalf("%d records", len(c.Logs()))
	}
	for _, r := range c.Logs() {
		if len(r.GetBody().GetStringValue()) > maxMessage || len(r.GetAttributes()) > maxAttrs {
			t.Errorf("%d bytes, %d attributes", len(r.GetBody().GetStringValue()), len(r.GetAttributes()))
		}
		for key, value := range otlptest.Attrs(r.GetAttributes()) {
			if len(key) > maxValue || len(value) > 2*maxValue {
				t.Errorf("an attribute has %d and %d bytes", len(key), len(value))
			}
		}
	}
}

// A queue keeps only the part of a record that is sent, and changes nothing of the caller's.
func TestQueuedRecordsAreCut(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	given := accesslog.Record{
		SNI: huge, Identity: huge, ClientID: huge, Software: huge, Principal: huge, Via: huge,
		Request: &accesslog.Request{Method: huge, Host: huge, Path: huge},
	}
	kept := keep(&given)
	if n := (line{access: kept}).bytes(); n > 512+9*maxValue || len(kept.Via) > maxValue || len(given.Request.Path) != len(huge) {
		t.Errorf("keeps %d bytes", n)
	}
}

// Metrics come in requests that collectors take, whatever their number.
func TestManyMetricsComeInParts(t *testing.T) {
	c := otlptest.New(t, otlptest.Config{})
	n := newNode(t)
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "penstock_endpoint"}, []string{"endpoint"})
	histogram := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "penstock_seconds", Buckets: []float64{1}}, []string{"endpoint"})
	n.registry.MustRegister(gauge, histogram)
	const series = 2*maxPoints + 1
	for i := range series {
		gauge.WithLabelValues(fmt.Sprint(i)).Set(1)
		histogram.WithLabelValues(fmt.Sprint(i)).Observe(0.5)
	}
	n.apply("otel", fmt.Sprintf("endpoint: %q", c.Address), "metrics: {interval: 1h}")
	testkit.WaitFor(t, "all points", func() bool { return n.state(Metrics).Exported == 2*series })
	seen := map[string]int{}
	for _, m := range c.Metrics() {
		seen[m.GetName()] += len(m.GetGauge().GetDataPoints()) + len(m.GetHistogram().GetDataPoints())
	}
	if want := map[string]int{"penstock_endpoint": series, "penstock_seconds": series}; !maps.Equal(seen, want) || c.Calls() != 5 {
		t.Errorf("%v in %d requests, want %v in 5", seen, c.Calls(), want)
	}
}

// Metrics are not gathered after the last report: what they are of is closed then.
func TestLastReport(t *testing.T) {
	c := otlptest.New(t, otlptest.Config{})
	n := newNode(t)
	gathered := 0
	n.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_gathered"}, func() float64 { gathered++; return 1 }))
	n.apply("otel", fmt.Sprintf("endpoint: %q", c.Address), "traces: true, metrics: {interval: 1h}")
	testkit.WaitFor(t, "the first report", func() bool { return len(c.Metrics()) == 1 })
	n.LastReport(t.Context())
	n.export("later")
	n.Close(t.Context())
	if gathered != 2 || len(c.Metrics()) != 2 || len(c.Spans()) != 1 {
		t.Errorf("gathered %d times, %d metrics and %d spans arrived", gathered, len(c.Metrics()), len(c.Spans()))
	}
}

// A span that is larger than others does not make a request that collectors refuse.
func TestLargeSpansComeInParts(t *testing.T) {
	c := otlptest.New(t, otlptest.Config{})
	n := newNode(t)
	n.apply("otel", fmt.Sprintf("endpoint: %q, compression: none", c.Address), "traces: true")
	large := wholeSpan()
	large.Attrs = append(large.Attrs, trace.String("large", strings.Repeat("x", maxBatchBytes/2)))
	for range 9 {
		n.Tracer().Policies()[0].Export(large)
	}
	n.Close(t.Context())
	if len(c.Spans()) != 9 || c.Calls() < 9 {
		t.Errorf("%d spans in %d requests", len(c.Spans()), c.Calls())
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aéé", 4, "aé"}, {"a\xff", 9, "a�"}, {"ééé", 1, ""}} {
		if got := cut(c.text, c.n); got != c.want {
			t.Errorf("cut(%q, %d) = %q", c.text, c.n, got)
		}
	}
}

func BenchmarkExport(b *testing.B) {
	policy := benchManager(b).Tracer().Policies()[0]
	span := wholeSpan()
	b.ReportAllocs()
	for b.Loop() {
		policy.Export(span)
	}
}

func BenchmarkAccess(b *testing.B) {
	m := benchManager(b)
	r := accesslog.Record{
		Event: accesslog.Closed, ID: 7, Listener: "edge", Client: netip.MustParseAddrPort("192.0.2.1:5000"), Service: "apps", Endpoint: "127.0.0.1:7001",
		Reason: "client_fin", SNI: "apps.example.com",
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Access(r)
	}
}

// benchManager returns a Manager with a Telemetry whose collector is dead.
func benchManager(b *testing.B) *Manager {
	m := New(Config{Log: slog.New(slog.DiscardHandler), Certificates: noCertificates, Retry: time.Hour})
	m.Apply(changes(b, "kind: Telemetry\nname: a\nspec: {otlp: {endpoint: \"127.0.0.1:1\"}, traces: true, logs: true}\n"))
	b.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		m.Close(ctx)
	})
	return m
}
