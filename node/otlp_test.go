package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/otlp/otlptest"
	"penstock/node/rpc"
	"penstock/node/trace"
)

// A Telemetry takes effect without a restart; the node says what its collector does not
// take, and sends what is queued when it stops.
func TestTelemetryTakesEffect(t *testing.T) {
	t.Parallel()
	c := otlptest.New(t, otlptest.Config{})
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "hello")))
	telemetry := func(address string) string {
		return fmt.Sprintf("kind: Telemetry\nname: otel\nspec: {otlp: {endpoint: %q, headers: [{name: key, value: hunter2}]}, "+
			"resourceAttributes: {team: core}, traces: true, logs: true, metrics: {interval: 1s}}\n", address)
	}
	n.mustApply(t, telemetry(testkit.FreeAddress(t)))
	testkit.WaitFor(t, "a warning", func() bool {
		for _, w := range n.mustStatus(t).Warnings {
			if strings.HasPrefix(w, "node n1: Telemetry/otel: cannot send metrics: ") {
				return !strings.Contains(w, "hunter2")
			}
		}
		return false
	})
	n.waitMetric(t, `penstock_otlp_up{signal="metrics",telemetry="otel"}`, "0")

	n.mustApply(t, telemetry(c.Address))
	seen := func(name string) (m otlptest.Metric) {
		testkit.WaitFor(t, name, func() bool {
			for _, m = range c.Metrics() {
				if m.GetName() == name {
					return true
				}
			}
			return false
		})
		return m
	}
	m := seen("penstock_endpoint_healthy")
	attrs := otlptest.Attrs(m.GetGauge().GetDataPoints()[0].GetAttributes())
	if attrs["service"] != "apps" || m.GetGauge().GetDataPoints()[0].GetAsDouble() != 1 {
		t.Errorf("%v", m.Metric)
	}
	for key, want := range map[string]string{"service.name": "penstock", "service.version": "test", "penstock.node": "n1", "team": "core"} {
		if m.Resource[key] != want {
			t.Errorf("%s is %q, want %q", key, m.Resource[key], want)
		}
	}
	if m.Resource["service.instance.id"] == "" || c.Header().Get("key") != "hunter2" {
		t.Errorf("resource %v, headers %v", m.Resource, c.Header())
	}
	seen("go_goroutines")
	n.waitMetric(t, `penstock_otlp_up{signal="metrics",telemetry="otel"}`, "1")
	if list := n.mustStatus(t).Warnings; len(list) > 0 {
		t.Errorf("warnings %q", list)
	}

	conn, _ := nodetest.Dial(t, n.at(t, "edge"))
	conn.Close()
	testkit.WaitFor(t, "the line of the connection", func() bool { return hasLine(c, "connection closed") })
	n.waitMetric(t, `penstock_access_log_lines_total{sink="otlp"}`, "1")

	n.otlp.Tracer().Policies()[0].Export(&trace.Span{TraceID: trace.ID{1}, SpanID: trace.SpanID{1}, Name: "last"})
	n.log.With("key", "value").Warn("last")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.Stop(ctx)
	if !slices.ContainsFunc(c.Spans(), func(s otlptest.Span) bool { return s.GetName() == "last" }) || !hasLine(c, "last") {
		t.Errorf("of %d spans and %d log records the last are missing", len(c.Spans()), len(c.Logs()))
	}
}

// hasLine reports whether a line of the log with this message has arrived.
func hasLine(c *otlptest.Collector, message string) bool {
	return slices.ContainsFunc(c.Logs(), func(r otlptest.Record) bool { return r.GetBody().GetStringValue() == message })
}

// The access log has a sink for collectors while a Telemetry wants lines.
func TestAccessLogOfTelemetryEnds(t *testing.T) {
	t.Parallel()
	c := otlptest.New(t, otlptest.Config{})
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "hello")), func(c *Config) { c.AccessLog = AccessOff })
	for _, logs := range []bool{true, false, true} {
		n.mustApply(t, fmt.Sprintf("kind: Telemetry\nname: otel\nspec: {otlp: {endpoint: %q}, traces: true, logs: %v}\n", c.Address, logs))
		if got := len(n.access.Sinks()); (got == 1) != logs || n.access.Wants("client_fin") != logs {
			t.Errorf("logs: %v: %d sinks", logs, got)
		}
	}
}

// Who may write resources cannot have a secret sent to another collector.
func TestSecretsOfTelemetryStay(t *testing.T) {
	t.Parallel()
	n := startNode(t, "kind: Telemetry\nname: otel\n"+
		"spec: {otlp: {endpoint: \"127.0.0.1:1\", headers: [{name: key, value: hunter2}]}, traces: true}\n")
	_, text := n.get(t, "/v1/telemetries/otel")
	if strings.Contains(text, "hunter2") || !strings.Contains(text, "(hidden)") {
		t.Fatalf("shows %s", text)
	}
	put := func(endpoint string) error {
		_, err := rpc.Call[api.ApplyResult](t.Context(), n.client, api.MethodApply, api.ApplyRequest{
			Documents: [][]byte{fmt.Appendf(nil, `{"kind": "Telemetry", "name": "otel", "spec": {"otlp": {"endpoint": %q, `+
				`"headers": [{"name": "key", "value": "(hidden)"}]}, "traces": {}, "logs": {}}}`, endpoint)},
		})
		return err
	}
	var refusal *api.Error
	if err := put("127.0.0.1:2"); !errors.As(err, &refusal) || len(refusal.Faults) == 0 || !strings.HasSuffix(refusal.Faults[0].Message, "give the secret") {
		t.Errorf("another collector: %+v", err)
	}
	if err := put("127.0.0.1:1"); err != nil {
		t.Error(err)
	}
}
