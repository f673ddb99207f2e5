package node

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/accesslog"
	"penstock/node/otlp"
	"penstock/node/tlsconfig"
	"penstock/routing/resource"
)

// flushTimeout bounds how long a node that stops sends to OpenTelemetry collectors what is
// queued.
const flushTimeout = 2 * time.Second

// newOTLP makes the exporters to OpenTelemetry collectors. What they refer to is there
// before resources take effect.
func (n *Node) newOTLP() *otlp.Manager {
	host, _ := os.Hostname() // without it, the attribute is left out
	about := otlp.Node{ID: n.id, Name: n.cfg.Name, Version: n.cfg.Version, Host: host, Tags: n.cfg.Tags}
	if n.cluster != nil {
		about.Cluster = n.cluster.ClusterID()
	}
	m := otlp.New(otlp.Config{
		Node: about, Log: n.log,
		Gather:       func() prometheus.Gatherer { return n.metrics.Registry },
		Certificates: func() *tlsconfig.Store { return n.data.Certificates() },
	})
	n.otlpLines.Store(m)
	return m
}

// lastMetrics sends the metrics once more, while the components still work.
func (n *Node) lastMetrics(ctx context.Context) {
	if n.otlp == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	n.otlp.LastReport(ctx)
}

// closeOTLP sends what is queued.
func (n *Node) closeOTLP(ctx context.Context) {
	if n.otlp == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	n.otlp.Close(ctx)
}

// otlpLines hands lines of the node's log to the exporters, once these are there. Loggers
// are made before them.
type otlpLines struct {
	to   *atomic.Pointer[otlp.Manager]
	with []func(slog.Handler) slog.Handler // what WithAttrs and WithGroup have added
}

// handler returns the exporters' handler; nil: there is none yet.
func (h otlpLines) handler() slog.Handler {
	m := h.to.Load()
	if m == nil {
		return nil
	}
	next := m.Handler()
	for _, add := range h.with {
		next = add(next)
	}
	return next
}

// Enabled implements slog.Handler.
func (h otlpLines) Enabled(ctx context.Context, level slog.Level) bool {
	m := h.to.Load()
	return m != nil && m.Handler().Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h otlpLines) Handle(ctx context.Context, r slog.Record) error {
	if next := h.handler(); next != nil {
		return next.Handle(ctx, r)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h otlpLines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.add(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h otlpLines) WithGroup(name string) slog.Handler {
	return h.add(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h otlpLines) add(one func(slog.Handler) slog.Handler) slog.Handler {
	return otlpLines{h.to, append(slices.Clip(h.with), one)}
}

// otlpAccess is the sink of the access log for the exporters. It is there while a Telemetry
// resource wants these lines.
type otlpAccess struct {
	to      *otlp.Manager
	written atomic.Uint64
}

// Name implements accesslog.Sink.
func (s *otlpAccess) Name() string { return "otlp" }

// Put implements accesslog.Sink.
func (s *otlpAccess) Put(r *accesslog.Record) {
	s.to.Access(*r)
	s.written.Add(1)
}

// Stats implements accesslog.Sink. The exporters count what they drop.
func (s *otlpAccess) Stats() accesslog.Stats { return accesslog.Stats{Written: s.written.Load()} }

// Close implements accesslog.Sink.
func (s *otlpAccess) Close() {}

// applyTelemetry puts Telemetry resources into force.
func (n *Node) applyTelemetry(changes []resource.Change) {
	n.otlp.Apply(changes)
	switch wants := n.otlp.WantsAccess(); {
	case wants && n.accessTo == nil:
		n.accessTo = &otlpAccess{to: n.otlp}
		n.access.Add(n.accessTo)
	case !wants && n.accessTo != nil:
		n.access.Remove(n.accessTo)
		n.accessTo = nil
	}
}
