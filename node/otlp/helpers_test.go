package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/internal/testkit"
	"penstock/node/otlp/otlptest"
	"penstock/node/tlsconfig"
	"penstock/node/trace"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

func TestMain(m *testing.M) { testkit.VerifyTestMain(m) }

// testNode is a Manager with what it is given.
type testNode struct {
	*Manager
	t        *testing.T
	log      *testkit.Log
	registry *prometheus.Registry
	certs    *tlsconfig.Store
}

func newLogger(to *testkit.Log) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }

func newNode(t *testing.T) *testNode {
	n := &testNode{t: t, log: new(testkit.Log), registry: prometheus.NewRegistry(), certs: tlsconfig.NewStore()}
	n.Manager = New(Config{
		Node:         Node{ID: "id-1", Name: "n1", Version: "v1", Cluster: "c1", Host: "h1", Tags: map[string]string{"zone": "a"}},
		Log:          newLogger(n.log),
		Gather:       func() prometheus.Gatherer { return n.registry },
		Certificates: func() *tlsconfig.Store { return n.certs },
		Retry:        time.Millisecond,
		Delay:        time.Millisecond,
	})
	t.Cleanup(n.closeNow)
	return n
}

// changes decodes resources.
func changes(t testing.TB, text string) (list []resource.Change) {
	t.Helper()
	objects, faults := codec.Decode("", []byte(text), resource.RoutingKinds())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, o := range objects {
		list = append(list, resource.Put(o))
	}
	return list
}

// apply applies a Telemetry with this name, with fields of otlp and others.
func (n *testNode) apply(name, otlp, others string) {
	n.t.Helper()
	n.Apply(changes(n.t, fmt.Sprintf("kind: Telemetry\nname: %s\nspec: {otlp: {%s}, %s}\n", name, otlp, others)))
}

func (n *testNode) delete(name string) {
	n.Apply([]resource.Change{resource.Delete(resource.Key{Kind: resource.KindTelemetry, Name: name})})
}

// export exports a span by all policies.
func (n *testNode) export(name string) {
	for _, p := range n.Tracer().Policies() {
		p.Export(&trace.Span{TraceID: trace.ID{1}, SpanID: trace.SpanID{2}, Name: name, Kind: trace.Server, Start: time.Unix(1, 0), End: time.Unix(2, 0)})
	}
}

// state returns the state of a signal of the only Telemetry.
func (n *testNode) state(of Signal) State {
	for _, s := range n.States() {
		if s.Signal == of {
			return s
		}
	}
	n.t.Helper()
	n.t.Fatalf("there is no %v", of)
	return State{}
}

// waitFault waits until sending a signal fails, and returns why.
func (n *testNode) waitFault(of Signal) (fault string) {
	n.t.Helper()
	testkit.WaitFor(n.t, "a fault of "+of.String(), func() bool { fault = n.state(of).Fault; return fault != "" })
	return fault
}

// closeNow closes the node without sending what is queued.
func (n *testNode) closeNow() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n.Close(ctx)
}

// both runs a test for each protocol.
func both(t *testing.T, test func(t *testing.T, protocol string)) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) { test(t, protocol) })
	}
}

// startBoth runs a test for each protocol, with a node that exports traces to a collector.
func startBoth(t *testing.T, others string, test func(t *testing.T, n *testNode, c *otlptest.Collector)) {
	both(t, func(t *testing.T, protocol string) {
		c := otlptest.New(t, otlptest.Config{Protocol: protocol})
		n := newNode(t)
		n.apply("otel", fmt.Sprintf("endpoint: %q, protocol: %s, headers: [{name: Authorization, value: Bearer hunter2-hunter2}]%s",
			c.Address, protocol, others), "traces: {}")
		test(t, n, c)
	})
}

func waitSpans(t *testing.T, c *otlptest.Collector, want int) {
	t.Helper()
	testkit.WaitFor(t, fmt.Sprintf("%d spans at the collector", want), func() bool { return len(c.Spans()) >= want })
}
