package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"penstock/routing/endpoint"
	"penstock/routing/resource"
)

// whatIf returns the WhatIf of resources to put, or of "delete KIND/NAME".
func (w *world) whatIf(input string) *WhatIf {
	var changes []resource.Change
	if rest, ok := strings.CutPrefix(input, "delete "); ok {
		changes, input = append(changes, resource.Delete(keyOf(rest))), ""
	}
	objects, faults := decodeInput(input)
	if len(faults) > 0 && input != "" {
		w.t.Fatal(faults)
	}
	for _, o := range objects {
		changes = append(changes, resource.Put(o))
	}
	whatIf, err := w.router.Table().WhatIf(changes, w, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	return whatIf
}

// diff prints the summary of a change without applying it.
func (w *world) diff(input string) string {
	return cmp.Or(strings.Join(w.whatIf(input).DiffSummary(nil), "\n"), "nothing changes for connections")
}

// simulate runs connections on the table and on the changed one, without
// applying the change.
func (w *world) simulate(d *datadriven.TestData) string {
	n, err := strconv.Atoi(d.CmdArgs[0].Key)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &SimulateRequest{Connections: n, Request: requestOf(w.t, d)}
	if !d.MaybeScanArgs(w.t, "to", &r.Destination) && len(d.CmdArgs) > 1 {
		r.Input = parseInput(w.t, d.CmdArgs[1:])
	}
	sim, err := w.whatIf(d.Input).Simulate(context.Background(), r, w.now)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, p := range sim.Runs {
		if p.Request != "" {
			fmt.Fprintf(&b, "%s: ", p.Request)
		}
		fmt.Fprintf(&b, "%s%s from %s\n", p.Destination, strings.TrimSpace(p.Listener+" "+p.ServerName), cmp.Or(p.Source, "anyone"))
		for _, o := range p.Outcomes {
			to := o.Service
			if o.Subset != "" {
				to += " {" + o.Subset + "}"
			}
			if o.Endpoint != "" {
				to += " " + o.Endpoint
			}
			if o.Route != "" {
				to = "request by request, by " + o.Route
			}
			if o.Status != 0 {
				to = fmt.Sprintf("answered %d %s", o.Status, o.Location)
			}
			if o.Reason != OK {
				to = strings.TrimSpace(to + " closed: " + string(o.Reason))
			}
			fmt.Fprintf(&b, "  %s: %d -> %d\n", to, o.Before, o.After)
		}
	}
	return cmp.Or(b.String(), "nothing to play")
}

// Simulated connections stay open during their run, so that a balancer by
// connections counts them. It also counts the table's own connections, which do
// not change.
func TestSimulatedConnectionsCountAtEndpoints(t *testing.T) {
	r := NewRouter(Config{})
	s := service(2)
	s.Balancing.Policy = "leastConnections"
	mustApply(t, r, put("Service", "apps", s), plainTo("apps"))
	table := r.Table()
	apps, _ := table.Service("apps")
	for range 100 {
		apps.Group().Acquire(apps.Members()[0].Endpoint, endpoint.Connection)
	}
	whatIf, err := table.WhatIf([]resource.Change{put("Service", "apps", service(2))}, nil, t0)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // the second round starts from the same state
		sim, err := whatIf.Simulate(t.Context(), &SimulateRequest{Connections: 200, Input: &Input{Listener: "front"}}, t0)
		if err != nil {
			t.Fatal(err)
		}
		got := sim.Runs[0].Outcomes
		if len(got) != 2 || got[0].Before != 50 || got[1].Before != 150 || got[0].After != 100 || got[1].After != 100 {
			t.Errorf("round %d: %+v, want 50 and 150 by connections, 100 each by turns", round, got)
		}
	}
	if m := apps.Members(); m[0].Active() != 100 || m[1].Active() != 0 {
		t.Errorf("the endpoints have %d and %d connections after the simulation", m[0].Active(), m[1].Active())
	}
}

// Each run starts from the same state: the connections of the previous one are
// closed.
func TestSimulationRunsAreIndependent(t *testing.T) {
	r := NewRouter(Config{})
	s := service(2)
	s.Balancing.Policy = "leastConnections"
	mustApply(t, r, put("Service", "apps", s),
		put("MeshTCPRoute", "web", routeFor(resource.TargetRef{Kind: kindMeshService, Name: "web"}, "apps")))
	apps, _ := r.Table().Service("apps")
	for range 10 {
		apps.Group().Acquire(apps.Members()[0].Endpoint, endpoint.Connection)
	}
	whatIf, err := r.Table().WhatIf(nil, nil, t0)
	if err != nil {
		t.Fatal(err)
	}
	sim, err := whatIf.Simulate(t.Context(), &SimulateRequest{Connections: 10, Destination: "apps"}, t0)
	if err != nil || len(sim.Runs) != 2 {
		t.Fatalf("%+v, %v", sim, err)
	}
	for _, p := range sim.Runs {
		if len(p.Outcomes) != 1 || p.Outcomes[0].Before != 10 {
			t.Errorf("from %s: %+v, want all at the endpoint that has none", p.Source, p.Outcomes)
		}
	}
}

// Without a client address a simulation uses many clients: Maglev would send a
// single one to one endpoint.
func TestSimulationUsesManyClients(t *testing.T) {
	r := NewRouter(Config{})
	s := service(10)
	s.Balancing.Policy = "maglev"
	mustApply(t, r, put("Service", "apps", s), plainTo("apps"))
	whatIf, _ := r.Table().WhatIf(nil, nil, t0)
	for _, req := range []SimulateRequest{{Input: &Input{Listener: "front"}}, {Destination: "apps"}} {
		req.Connections = 1000
		sim, err := whatIf.Simulate(t.Context(), &req, t0)
		if err != nil || len(sim.Runs) != 1 || len(sim.Runs[0].Outcomes) != 10 {
			t.Fatalf("%+v, %v", sim, err)
		}
	}
}

func TestSimulationsAreBounded(t *testing.T) {
	r := NewRouter(Config{})
	batch := []resource.Change{put("Service", "apps", service(1))}
	mustApply(t, r, batch...)
	var routes []resource.Change
	for i := range 2 * maxRuns {
		routes = append(routes, put("MeshTCPRoute", fmt.Sprint("r", i),
			routeFor(resource.TargetRef{Kind: kindMeshService, Name: fmt.Sprint("s", i)}, "apps")))
	}
	whatIf, err := r.Table().WhatIf(routes, nil, t0)
	if err != nil {
		t.Fatal(err)
	}
	sim, err := whatIf.Simulate(t.Context(), &SimulateRequest{Connections: 1}, t0)
	if err != nil || len(sim.Runs) != maxRuns || sim.MoreRuns != maxRuns+1 {
		t.Errorf("%d plays, %d more, %v", len(sim.Runs), sim.MoreRuns, err)
	}
	for _, n := range []int{0, -1, MaxSimulatedConnections + 1} {
		if _, err := whatIf.Simulate(t.Context(), &SimulateRequest{Connections: n}, t0); !errors.Is(err, ErrConnectionCount) {
			t.Errorf("%d connections: %v", n, err)
		}
	}
	mustApply(t, r, put("Service", "apps", service(maxOutcomes+7)))
	if whatIf, err = r.Table().WhatIf(nil, nil, t0); err != nil {
		t.Fatal(err)
	}
	sim, err = whatIf.Simulate(t.Context(), &SimulateRequest{Connections: maxOutcomes + 10, Destination: "apps"}, t0)
	if p := sim.Runs[0]; err != nil || len(p.Outcomes) != maxOutcomes || p.MoreOutcomes != 7 ||
		!slices.ContainsFunc(p.Outcomes, func(o SimulatedOutcome) bool { return o.Before == 2 }) {
		t.Errorf("%d outcomes, %d more, %v", len(p.Outcomes), p.MoreOutcomes, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	all := &SimulateRequest{Connections: MaxSimulatedConnections, Destination: "apps"}
	if _, err := whatIf.Simulate(ctx, all, t0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// The number of sentences is bounded.
func TestDiffSummaryIsBounded(t *testing.T) {
	r := manyPolicies(t, 300)
	var changes []resource.Change
	for i := range 300 {
		name := fmt.Sprintf("service-%04d", i)
		changes = append(changes, put("MeshTCPRoute", "own-"+name, routeFor(resource.TargetRef{Kind: kindMesh}, name,
			resource.BackendRef{Kind: kindMeshService, Name: "service-0000", Weight: new(0)})))
	}
	whatIf, err := r.Table().WhatIf(changes, nil, t0)
	if err != nil {
		t.Fatal(err)
	}
	sentences := whatIf.DiffSummary(nil)
	if len(sentences) != maxSentences+1 || sentences[maxSentences] != "and 200 more changes" {
		t.Errorf("%d sentences, the last is %q", len(sentences), sentences[len(sentences)-1])
	}
	elsewhere := func(service, address string) int64 {
		if service == "service-0007" && address == "10.0.0.0:1" {
			return 2
		}
		return 0
	}
	if sentences := strings.Join(whatIf.DiffSummary(elsewhere), "\n"); !strings.Contains(sentences, "own-service-0007: all new connections "+
		"to service-0007 are closed (no_backend); 2 established connections stay\n") {
		t.Errorf("connections of other nodes are not counted in:\n%s", sentences)
	}
}
