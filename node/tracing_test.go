package node

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
	"penstock/node/otlp/otlptest"
)

// spanOf waits for the only span with a name that a node has sent to a collector.
func spanOf(t *testing.T, c *otlptest.Collector, node, name string, kind tracepb.Span_SpanKind) (found otlptest.Span) {
	t.Helper()
	testkit.WaitFor(t, fmt.Sprintf("the span %q of node %s", name, node), func() bool {
		for _, s := range c.Spans() {
			if s.Name == name && s.Kind == kind && s.Resource["penstock.node"] == node {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

// wantChild fails the test if a span is not right below another one.
func wantChild(t *testing.T, child, parent otlptest.Span) {
	t.Helper()
	if string(child.TraceId) != string(parent.TraceId) || string(child.ParentSpanId) != string(parent.SpanId) {
		t.Errorf("%s %s of %s is in trace %x below %x, want it below %s %s of %s: trace %x, span %x",
			child.Kind, child.Name, child.Resource["penstock.node"], child.TraceId, child.ParentSpanId,
			parent.Kind, parent.Name, parent.Resource["penstock.node"], parent.TraceId, parent.SpanId)
	}
}

const (
	serverSpan = tracepb.Span_SPAN_KIND_SERVER
	clientSpan = tracepb.Span_SPAN_KIND_CLIENT
)

func tracesTo(c *otlptest.Collector) string {
	return fmt.Sprintf("---\nkind: Telemetry\nname: traces\nspec: {otlp: {endpoint: %q}, traces: {sample: 100}}\n", c.Address)
}

// A connection through a mesh hop is one trace, over both nodes: no header carries it.
func TestMeshHopIsOneTrace(t *testing.T) {
	t.Parallel()
	p := newMeshPair(t, nodetest.NewBackend(t, "b"))
	collector := otlptest.New(t, otlptest.Config{})
	p.apply(t, tracesTo(collector))
	conn, _ := nodetest.Dial(t, p.near.at(t, "edge"))
	nodetest.Echo(t, conn)
	conn.Close()
	edge := spanOf(t, collector, "near", "tcp edge", serverSpan)
	hop := spanOf(t, collector, "near", "connect", clientSpan)
	inside := spanOf(t, collector, "far", "tcp inside", serverSpan)
	wantChild(t, hop, edge)
	wantChild(t, inside, hop)
	wantChild(t, spanOf(t, collector, "far", "connect", clientSpan), inside)
	if len(edge.ParentSpanId) != 0 {
		t.Errorf("the connection of the client is below %x", edge.ParentSpanId)
	}
}

// A request through a mesh hop is one trace as well, from its caller to the program.
func TestMeshRequestIsOneTrace(t *testing.T) {
	t.Parallel()
	p := webPair(t, "http", "")
	collector := otlptest.New(t, otlptest.Config{})
	seen := make(chan string, 1)
	program := testkit.ServeHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- r.Header.Get("Traceparent")
	})
	p.apply(t, nodetest.WebService("shop-local", "", program)+tracesTo(collector))
	c := nodetest.NewWebClient(t, p.near.at(t, "web"), false)
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c.Do("GET", "/cart", "", func(r *http.Request) { r.Header.Set("Traceparent", caller) })
	c.HTTP.CloseIdleConnections()
	near := spanOf(t, collector, "near", "GET", serverSpan)
	hop := spanOf(t, collector, "near", "GET", clientSpan)
	far := spanOf(t, collector, "far", "GET", serverSpan)
	last := spanOf(t, collector, "far", "GET", clientSpan)
	wantChild(t, hop, near)
	wantChild(t, far, hop)
	wantChild(t, last, far)
	if got := fmt.Sprintf("%x below %x", near.TraceId, near.ParentSpanId); got != caller[3:35]+" below "+caller[36:52] {
		t.Errorf("the first span is in trace %s", got)
	}
	if got, want := <-seen, fmt.Sprintf("00-%x-%x-01", last.TraceId, last.SpanId); got != want {
		t.Errorf("the program got %q, want %q", got, want)
	}
	// The connections have a trace of their own.
	web := spanOf(t, collector, "near", "tcp web", serverSpan)
	wantChild(t, spanOf(t, collector, "far", "tcp inside", serverSpan), web)
}
