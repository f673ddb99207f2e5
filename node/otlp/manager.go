// Package otlp sends what a node sees to OpenTelemetry collectors: spans, log records and
// metrics, by OTLP over gRPC or HTTP. Each Telemetry resource has an exporter of its own,
// which comes, changes and goes with the resource.
//
//	m := otlp.New(otlp.Config{Log: log, Node: otlp.Node{ID: id, Name: "a"}, Gather: registry, Certificates: certs})
//	m.Apply(changes)                     // of resources in force, with the content of their files
//	m.Tracer().Policies()[0].Export(span)
//	m.Access(record); slog.New(m.Handler()).Warn("...")
//	m.Close(ctx)                         // sends what is queued until ctx ends
//
// Nothing that takes spans or lines blocks: they are queued in bounded queues, and dropped
// and counted when those are full. A collector that is slow, dead or refuses costs what the
// queues hold. What it answers is read up to a bound, shown as text, and never with the
// value of a header.
package otlp

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/accesslog"
	"penstock/node/tlsconfig"
	"penstock/node/trace"
	"penstock/routing/resource"
)

// endTimeout bounds how long an exporter sends what is queued when its resource changes
// or goes.
const endTimeout = 5 * time.Second

// Node describes the node that sends.
type Node struct {
	ID, Name, Version string
	Cluster           string            // its ID; "": none
	Host              string            // of the machine; "": unknown
	Tags              map[string]string // which a Telemetry may select by
}

// Config is the configuration of a Manager.
type Config struct {
	Node Node
	// Log gets that a collector fails, and that it works again. Required.
	Log *slog.Logger
	// Gather returns what the metrics are gathered from. Required.
	Gather func() prometheus.Gatherer
	// Certificates returns the store of client certificates. Required.
	Certificates func() *tlsconfig.Store
	// Retry is the wait before the first repetition of what failed; 0: half a second.
	Retry time.Duration
	// Delay is how long spans and lines wait for others; 0: DefaultDelay.
	Delay time.Duration
}

// Manager runs the exporters. Its methods are safe for concurrent use.
type Manager struct {
	cfg    Config
	tracer trace.Tracer
	lines  atomic.Pointer[[]*exporter] // those with logs
	access atomic.Bool                 // any of them wants access records
	level  atomic.Int64                // the least slog.Level that any wants

	mu        sync.Mutex
	exporters map[string]*exporter // by the name of the Telemetry
	faults    map[string]error     // of those that cannot start
	counts    map[string]*[signals]counts
	closed    bool
	ending    sync.WaitGroup // exporters that send what was queued
}

// nothing is a level above all.
const nothing = math.MaxInt64

// New makes a Manager that exports nothing. The caller must close it.
func New(cfg Config) *Manager {
	if cfg.Retry == 0 {
		cfg.Retry = 500 * time.Millisecond
	}
	if cfg.Delay == 0 {
		cfg.Delay = DefaultDelay
	}
	m := &Manager{
		cfg: cfg, exporters: map[string]*exporter{}, faults: map[string]error{}, counts: map[string]*[signals]counts{},
	}
	m.level.Store(nothing)
	return m
}

// Tracer returns the policies of the resources in force.
func (m *Manager) Tracer() *trace.Tracer { return &m.tracer }

// Apply puts changes in force. It does not wait for any collector.
func (m *Manager) Apply(changes []resource.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := false
	for i := range changes {
		ch := &changes[i]
		if ch.Kind != resource.KindTelemetry || m.closed {
			continue
		}
		changed = true
		old := m.exporters[ch.Name]
		delete(m.exporters, ch.Name)
		delete(m.faults, ch.Name)
		spec, ok := ch.Spec.(*resource.Telemetry)
		if ch.Delete || !ok || !hasTags(m.cfg.Node.Tags, spec.Nodes) {
			delete(m.counts, ch.Name)
		} else {
			m.start(ch.Name, spec.WithDefaults())
		}
		if old != nil {
			m.end(old)
		}
	}
	if changed {
		m.publish()
	}
}

// hasTags reports whether a node has all of the tags.
func hasTags(node, want map[string]string) bool {
	for k, v := range want {
		if got, ok := node[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// start starts an exporter. m.mu is held.
func (m *Manager) start(name string, spec *resource.Telemetry) {
	if m.counts[name] == nil {
		m.counts[name] = new([signals]counts)
	}
	e, err := newExporter(m, name, spec, m.counts[name])
	if err != nil {
		m.faults[name] = err
		m.cfg.Log.Error("cannot export to OpenTelemetry", "telemetry", name, "error", err)
		return
	}
	m.exporters[name] = e
	e.run()
}

// end ends an exporter that is not among those in force. It sends what is queued first,
// in the background. m.mu is held.
func (m *Manager) end(e *exporter) {
	m.ending.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		e.close(ctx)
	})
}

// publish makes the exporters in force known to those who fill them. m.mu is held.
func (m *Manager) publish() {
	var policies []*trace.Policy
	var lines []*exporter
	level, access := int64(nothing), false
	for _, name := range slices.Sorted(maps.Keys(m.exporters)) {
		e := m.exporters[name]
		if e.policy != nil {
			policies = append(policies, e.policy)
		}
		if e.logs == nil {
			continue
		}
		lines = append(lines, e)
		access = access || e.access
		if e.node {
			level = min(level, int64(e.level))
		}
	}
	m.tracer.Set(policies)
	m.lines.Store(&lines)
	m.access.Store(access)
	m.level.Store(level)
}

// Access sends a record of the access log. It does not block, may be called on a loop, and
// keeps no pointer of the record.
func (m *Manager) Access(r accesslog.Record) {
	if !m.access.Load() {
		return
	}
	kept := line{access: keep(&r)}
	for _, e := range *m.lines.Load() {
		if e.access {
			e.logs.put(kept)
		}
	}
}

// WantsAccess reports whether Access does anything: without it, nobody needs to make
// records.
func (m *Manager) WantsAccess() bool { return m.access.Load() }

// State is what an exporter has done with one signal.
type State struct {
	Telemetry string
	Signal    Signal
	Exported  uint64            // spans, log records or data points that the collector took
	Dropped   map[Reason]uint64 // those that it did not get, each reason
	Failures  uint64            // attempts to send that failed
	Queued    int               // that wait
	Fault     string            // why the last attempt failed; "": it did not
}

// States returns the state of each signal of each exporter, sorted by name.
func (m *Manager) States() []State {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []State
	for _, name := range slices.Sorted(maps.Keys(m.exporters)) {
		for _, s := range m.exporters[name].senders() {
			list = append(list, s.state(name))
		}
	}
	return list
}

// Problems describes the exporters that do not work on this node, which has that name. A
// nil Manager has none.
func (m *Manager) Problems(node string) (list []string) {
	if m == nil {
		return nil
	}
	for _, s := range m.States() {
		if s.Fault != "" {
			list = append(list, "node "+node+": Telemetry/"+s.Telemetry+": cannot send "+s.Signal.String()+": "+s.Fault)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.faults)) {
		list = append(list, "node "+node+": Telemetry/"+name+": sends nothing: "+m.faults[name].Error())
	}
	slices.SortStableFunc(list, strings.Compare)
	return list
}

// LastReport sends the metrics once more, until ctx ends, and gathers none afterwards. It is
// called while what they are gathered from still works.
func (m *Manager) LastReport(ctx context.Context) {
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.exporters))
	m.mu.Unlock()
	for _, e := range all {
		e.last()
	}
	for _, e := range all {
		if e.metrics == nil {
			continue
		}
		select {
		case <-e.metrics.done:
		case <-ctx.Done():
		}
	}
}

// Close sends what is queued until ctx ends, and ends all exporters.
func (m *Manager) Close(ctx context.Context) {
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.exporters))
	m.exporters, m.closed = map[string]*exporter{}, true
	m.publish()
	m.mu.Unlock()
	var group sync.WaitGroup
	for _, e := range all {
		group.Go(func() { e.close(ctx) })
	}
	group.Wait()
	m.ending.Wait()
}
