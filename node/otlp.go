package node

import (
	"context"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/otlp"
	"penstock/node/tlsconfig"
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
	return otlp.New(otlp.Config{
		Node: about, Log: n.log,
		Gather:       func() prometheus.Gatherer { return n.metrics.Registry },
		Certificates: func() *tlsconfig.Store { return n.data.Certificates() },
	})
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
