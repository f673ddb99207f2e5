package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/resource"
)

// Bounds of simulations.
const (
	// MaxSimulatedConnections bounds the connections of one run.
	MaxSimulatedConnections = 1_000_000
	// maxRuns bounds the runs of one simulation, maxSimulatedTotal the sum of their
	// connections.
	maxRuns, maxSimulatedTotal = 50, 10_000_000
	// maxOutcomes bounds the listed outcomes of a run.
	maxOutcomes = 1000
)

// ErrConnectionCount reports a number of connections out of range.
var ErrConnectionCount = errors.New("number of connections out of range")

// SimulateRequest selects what to simulate: connections to a listener (Input),
// connections to a service regardless of the listener (Destination), or with
// neither everything that the change may route differently: each service that
// it affects and each affected name of a listener.
type SimulateRequest struct {
	// Connections is the number per run, 1 to MaxSimulatedConnections. They stay
	// open until the run ends.
	Connections int
	Input       *Input
	Destination string
	// Source is the tags of connections to a destination; nil: one run for each
	// source that policies distinguish.
	Source map[string]string
	// Request is the request of each connection; nil: where requests are routed
	// individually, an example request of each rule.
	Request *Request
}

// Simulation is where connections go before a change and after it.
type Simulation struct {
	Connections int            `json:"connections"` // per run
	Runs        []SimulatedRun `json:"plays"`
	// MoreRuns is the number of runs left out.
	MoreRuns int `json:"morePlays,omitempty"`
}

// SimulatedRun is one run: connections or requests of one kind.
type SimulatedRun struct {
	// Listener is where they arrive; "" for runs by destination.
	Listener   string `json:"listener,omitempty"`
	ServerName string `json:"serverName,omitempty"`
	ALPN       string `json:"alpn,omitempty"`
	User       string `json:"user,omitempty"` // of mysql clients
	// Destination is their service; "" if the listener determines it.
	Destination string             `json:"destination,omitempty"`
	Source      string             `json:"source,omitempty"`  // as in EffectiveSource, or tags
	Request     string             `json:"request,omitempty"` // as in "GET /cart"; "" if connections are simulated
	Outcomes    []SimulatedOutcome `json:"outcomes"`
	// MoreOutcomes is the number of outcomes not listed; each has fewer
	// connections.
	MoreOutcomes int `json:"moreOutcomes,omitempty"`
}

// SimulatedOutcome is one result of routing, and how often it occurs.
type SimulatedOutcome struct {
	Destination string `json:"destination,omitempty"`
	Service     string `json:"service,omitempty"`
	Subset      string `json:"subset,omitempty"` // "k=v,..."; "": the whole service
	Endpoint    string `json:"endpoint,omitempty"`
	Reason      Reason `json:"reason,omitempty"` // why they are closed; "" if they are not
	// Route is the MeshHTTPRoute by which the requests of these connections are
	// routed individually; "" for connections routed as a whole, and for requests.
	Route string `json:"route,omitempty"`
	// Status and Location are the answer of a redirect.
	Status   int    `json:"status,omitempty"`
	Location string `json:"location,omitempty"`
	Before   int    `json:"before"`
	After    int    `json:"after"`
}

// simulationRun is one run, for any table.
type simulationRun struct {
	report SimulatedRun
	in     Input
	src    *source  // for runs by destination; otherwise nil
	q      *Request // nil if connections are simulated
}

// Simulate routes connections on clones of both tables.
func (w *WhatIf) Simulate(ctx context.Context, r *SimulateRequest, now time.Time) (*Simulation, error) {
	if r.Connections < 1 || r.Connections > MaxSimulatedConnections {
		return nil, fmt.Errorf("%w: %d, want 1 to %d", ErrConnectionCount, r.Connections, MaxSimulatedConnections)
	}
	runs := w.runs(r)
	sim := &Simulation{Connections: r.Connections, Runs: []SimulatedRun{}}
	if most := max(1, min(maxRuns, maxSimulatedTotal/r.Connections)); len(runs) > most {
		sim.MoreRuns = len(runs) - most
		runs = runs[:most]
	}
	before, after := w.newClones()
	for i := range runs {
		if err := runs[i].compare(ctx, before.Table(), after.Table(), r.Connections, now); err != nil {
			return nil, err
		}
		sim.Runs = append(sim.Runs, runs[i].report)
	}
	return sim, nil
}

// compare runs n connections on both tables and lists the outcomes.
func (run *simulationRun) compare(ctx context.Context, before, after *Table, n int, now time.Time) error {
	rows := map[SimulatedOutcome]*SimulatedOutcome{}
	for i, table := range []*Table{before, after} {
		counts, err := run.route(ctx, table, n, now)
		if err != nil {
			return err
		}
		for e, count := range counts {
			key := e.outcome()
			if rows[key] == nil {
				row := key
				rows[key] = &row
			}
			if i == 0 {
				rows[key].Before += count
			} else {
				rows[key].After += count
			}
		}
	}
	list := make([]SimulatedOutcome, 0, len(rows))
	for _, row := range rows {
		list = append(list, *row)
	}
	if more := len(list) - maxOutcomes; more > 0 {
		slices.SortFunc(list, func(a, b SimulatedOutcome) int {
			return cmp.Or(cmp.Compare(max(b.Before, b.After), max(a.Before, a.After)), a.compare(b))
		})
		list, run.report.MoreOutcomes = list[:maxOutcomes], more
	}
	slices.SortFunc(list, SimulatedOutcome.compare)
	run.report.Outcomes = list
	return nil
}

// compare orders outcomes: those without a reason first, then by name.
func (o SimulatedOutcome) compare(p SimulatedOutcome) int {
	return cmp.Or(
		strings.Compare(string(o.Reason), string(p.Reason)), strings.Compare(o.Destination, p.Destination),
		strings.Compare(o.Service, p.Service), strings.Compare(o.Subset, p.Subset), strings.Compare(o.Endpoint, p.Endpoint),
		strings.Compare(o.Route, p.Route), cmp.Compare(o.Status, p.Status), strings.Compare(o.Location, p.Location),
	)
}

// runs returns the runs for a request.
func (w *WhatIf) runs(r *SimulateRequest) (runs []simulationRun) {
	switch {
	case r.Input != nil:
		run := simulationRun{in: *r.Input, report: SimulatedRun{
			Listener: r.Input.Listener, ServerName: r.Input.ServerName, User: r.Input.User, Source: tagList(r.Input.Tags),
		}}
		run.report.ALPN = strings.Join(r.Input.ALPN, ",")
		return withRequest([]simulationRun{run}, r.Request)
	case r.Destination != "" && r.Request != nil:
		classes := w.requestClassesOf(r.Destination)
		if len(classes) == 0 {
			classes = w.classesOf(r.Destination)
		}
		return withRequest(w.runsTo(r.Destination, r.Source, classes), r.Request)
	case r.Destination != "":
		return append(w.runsTo(r.Destination, r.Source, w.classesOf(r.Destination)), w.requestRuns(r.Destination, r.Source)...)
	}
	for _, name := range w.changedServices {
		runs = append(runs, w.runsTo(name, r.Source, w.classesOf(name))...)
		runs = append(runs, w.requestRuns(name, r.Source)...)
	}
	for _, m := range w.nameMoves() {
		in := m.input()
		in.Tags = r.Source
		runs = append(runs, simulationRun{in: *in, report: SimulatedRun{
			Listener: m.listener, ServerName: m.hello.name, ALPN: m.hello.alpn, User: m.hello.user, Source: tagList(r.Source),
		}})
	}
	return runs
}

// runsTo returns the runs for one destination: from the source with
// these tags or, if nil, from each of the classes.
func (w *WhatIf) runsTo(destination string, tags map[string]string, classes []class) (runs []simulationRun) {
	if tags != nil {
		src := &source{layers: [4]map[string]string{0: tags, 3: w.table.node}}
		return []simulationRun{{src: src, in: Input{Tags: tags}, report: SimulatedRun{Destination: destination, Source: tagList(tags)}}}
	}
	for _, c := range classes {
		src := c.sample
		runs = append(runs, simulationRun{src: &src, report: SimulatedRun{Destination: destination, Source: c.name()}})
	}
	return runs
}

// routeResult is the result of routing one connection or request.
type routeResult struct {
	destination string
	backend     *backend
	endpoint    *endpoint.Endpoint
	reason      Reason
	route       string // as SimulatedOutcome.Route
	request     bool   // counts as a request at the endpoint
	status      int
	location    string
}

// route routes n connections on a table and returns the number for each end. All
// stay open until the last is routed and are then closed, so that each run
// starts from the same state.
func (run *simulationRun) route(ctx context.Context, t *Table, n int, now time.Time) (map[routeResult]int, error) {
	counts := map[routeResult]int{}
	for i := range n {
		if i&4095 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d, reason := run.decide(t)
		e := routeResult{
			destination: d.Destination(), backend: d.backend, reason: reason, status: d.Status, location: d.Location, request: d.request,
		}
		if d.http {
			e.route = d.Route
		}
		if reason == OK && d.backend != nil {
			if !run.in.Client.IsValid() { // simulate many clients, for Maglev
				d.hash = balance.Mix(uint64(i) + 1)
			}
			e.endpoint, e.reason = d.Next(now)
		}
		counts[e]++
	}
	for e, n := range counts {
		for range n {
			if e.endpoint != nil {
				kind := (&Decision{request: e.request}).kind()
				e.backend.group.Release(e.endpoint, kind, true)
			}
		}
	}
	return counts, nil
}

// decide makes one decision, for a connection or for a request.
func (run *simulationRun) decide(t *Table) (a RequestDecision, reason Reason) {
	if run.src == nil {
		return run.decideAt(t)
	}
	s, ok := t.services.Get(run.report.Destination)
	if !ok {
		return RequestDecision{}, NoBackend
	}
	a.destination = s.serviceState
	if t.deniesSource(&run.in, run.src, s.name, run.q) {
		return a, PermissionDenied
	}
	var b *backend
	if p := t.httpPolicyFor(s.name, run.src); run.q != nil && p != nil {
		full, ok := run.q.described(&run.in, &Listener{spec: &resource.Listener{}})
		if !ok {
			a.Status = statusBadRequest
			return a, OK
		}
		b, reason = p.answer(&a, s, &full, nil)
	} else {
		b, _, reason = s.send(run.src, nil)
	}
	if b != nil {
		a.service, a.backend, a.hash = b.serviceState, b, b.hash(&run.in)
	}
	return a, reason
}

// decideAt is decide for runs by listener.
func (run *simulationRun) decideAt(t *Table) (a RequestDecision, reason Reason) {
	a.Decision, reason = t.Decide(&run.in)
	if reason != OK || !a.http {
		return a, reason
	}
	l, _ := t.listeners.Get(run.in.Listener)
	if run.q == nil {
		src := t.source(&run.in, l)
		if p := t.httpPolicyFor(a.Destination(), &src); p != nil {
			a.Route = p.route
		}
		return a, OK
	}
	full, ok := run.q.described(&run.in, l)
	if !ok {
		return RequestDecision{Decision: Decision{destination: a.destination}, Status: statusBadRequest}, OK
	}
	return t.Request(&run.in, a.Destination(), &full)
}

// outcome converts an end to an outcome without counts.
func (e *routeResult) outcome() SimulatedOutcome {
	o := SimulatedOutcome{Destination: e.destination, Reason: e.reason, Route: e.route, Status: e.status, Location: e.location}
	if e.backend != nil {
		o.Service, o.Subset = e.backend.name, tagList(e.backend.tags)
	}
	if e.endpoint != nil {
		if o.Endpoint = e.endpoint.Address; e.endpoint.Addr.IsValid() && e.endpoint.Addr.String() != o.Endpoint {
			o.Endpoint += " at " + e.endpoint.Addr.String()
		}
	}
	return o
}
