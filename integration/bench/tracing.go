package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"penstock/internal/testkit/process"
)

// tracingMeasures are measured on nodes that differ in what they send to a collector. The
// goals are those of 1 %.
func tracingMeasures() []measure {
	return []measure{
		{"tracing at 1 %: 256 B round trip, 64 connections", "us", 1.02, roundTrips(64, nil)},
		{"tracing at 1 %: new connection", "us", 1.03, newConnections},
	}
}

// tracingVariants are the Telemetry resources of the nodes; the first has none.
var tracingVariants = []struct{ name, spec string }{
	{"off", ""},
	{"traces 1 %", "traces: {sample: 1}"},
	{"all at 1 %", "traces: {sample: 1}, metrics: {interval: 1s}, logs: {access: false}"},
	{"traces 100 %", "traces: {sample: 100}"},
}

// collector is an OpenTelemetry collector that takes everything and keeps nothing. It
// counts the requests with spans.
type collector struct {
	*httptest.Server
	spans atomic.Int64
}

func newCollector() *collector {
	c := new(collector)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, _ := io.Copy(io.Discard, r.Body); n > 0 && r.URL.Path == "/v1/traces" {
			c.spans.Add(1)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	return c
}

// runTracing prints what a node costs that sends spans, as a multiple of one that sends
// none.
func runTracing(e *env) error {
	var todo []measure
	for _, m := range tracingMeasures() {
		if e.o.only.MatchString(m.name) {
			todo = append(todo, m)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	to := newCollector()
	defer to.Close()
	var nodes []subject
	head := []string{"CPU of a node that sends spans"}
	for _, v := range tracingVariants {
		s, err := startTraced(e, v.name, v.spec, to.URL)
		if err != nil {
			return err
		}
		defer s.Kill()
		nodes = append(nodes, s)
		head = append(head, v.name)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(w, strings.Join(append(head, "goal at 1 %"), "\t")+"\t")
	for _, m := range todo {
		costs, err := measureInTurn(e, m.name, m.load, nodes)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintf(w, "%s\t%.3g us\t", m.name, median(costs[0]))
		for _, of := range costs[1:] {
			fmt.Fprintf(w, "%.3f\t", ratio(of, costs[0]))
		}
		fmt.Fprintf(w, "<= %.2f\t\n", m.goal)
	}
	if to.spans.Load() == 0 {
		return errors.New("no spans came to the collector: nothing was measured")
	}
	w.Flush()
	fmt.Println()
	return nil
}

// startTraced starts a node that sends to a collector what the variant says.
func startTraced(e *env, name, spec, to string) (subject, error) {
	ports, err := process.FreePorts(3)
	if err != nil {
		return subject{}, err
	}
	dir, err := os.MkdirTemp(e.dir, "penstock-traced-")
	if err != nil {
		return subject{}, err
	}
	resources := fmt.Sprintf("kind: Service\nname: echo\nspec: {endpoints: [{address: %q}]}\n---\n%s", e.echo.addr(), plainListener(ports[0]))
	if spec != "" {
		resources += fmt.Sprintf("---\nkind: Telemetry\nname: bench\nspec: {otlp: {endpoint: %q, protocol: http}, %s}\n", to, spec)
	}
	file, err := write(dir, "penstock.yaml", resources)
	if err != nil {
		return subject{}, err
	}
	proc, err := process.Start("penstock, "+name, dir, []string{e.o.penstock, "start", "--dev", "--data-dir", filepath.Join(dir, "data"),
		"--resources", file, "--loops", fmt.Sprint(e.o.workers), "--access-log", "off",
		"--cluster", process.Loopback(ports[1]), "--http", process.Loopback(ports[2])}, ports[0])
	return subject{proc, places{tcp: ports[0], tls: ports[0]}}, err
}
