package kafka

import (
	"crypto/tls"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"penstock/kafka/discover"
	"penstock/kafka/model"
)

// watches follow the brokers of physical clusters that have a virtual cluster
// with discovered brokers. Changes must not overlap.
type watches struct {
	log            *slog.Logger
	tls            func(cluster, host string, t *model.PhysicalTLS) *tls.Config
	brokersChanged func(cluster string) // called when its brokers have changed

	mu sync.Mutex
	m  map[string]watch
}

// watch follows one version of a physical cluster.
type watch struct {
	spec *model.PhysicalCluster
	*discover.Watch
}

// update starts, restarts or ends the watch of a cluster after a change. p is
// nil if the cluster is gone.
func (w *watches) update(name string, p *model.Physical, wanted bool) {
	w.mu.Lock()
	old, ok := w.m[name]
	if ok && p != nil && wanted && old.spec == p.Spec() {
		w.mu.Unlock()
		return
	}
	delete(w.m, name)
	if p != nil && wanted {
		if started := w.start(p); started != nil {
			w.m[name] = watch{p.Spec(), started}
		}
	}
	w.mu.Unlock()
	if ok {
		old.Close()
	}
}

func (w *watches) start(p *model.Physical) *discover.Watch {
	spec, state := p.Spec(), p.State()
	cfg := discover.Config{
		Name: p.Name(), Interval: spec.Discovery.Interval.D(), Log: w.log,
		Update: func(brokers []discover.Broker) {
			known := make(map[int32]string, len(brokers))
			for _, b := range brokers {
				known[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
			}
			state.SetBrokers(known)
			w.brokersChanged(state.Name())
		},
	}
	for _, seed := range p.Seeds() {
		cfg.Bootstrap = append(cfg.Bootstrap, seed.Address)
	}
	if spec.TLS != nil {
		// The server name is that of each broker dialed, unless one is given.
		cfg.TLS = w.tls(p.Name(), spec.TLS.ServerName, spec.TLS)
	}
	if s := spec.Discovery.SASL; s != nil {
		cfg.SASL = &discover.SASL{Mechanism: s.Mechanism, Username: s.Username, Password: string(s.Password)}
	}
	started, err := discover.Start(cfg)
	if err != nil {
		w.log.Error("broker discovery could not start", "physicalCluster", p.Name(), "error", err)
		return nil
	}
	return started
}

// refresh asks for discovery because a broker is unknown. It reports whether
// the cluster is watched.
func (w *watches) refresh(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.m[name]
	if ok {
		found.Refresh()
	}
	return ok
}

// succeededSince reports whether discovery has begun and succeeded since then, or
// has ended.
func (w *watches) succeededSince(name string, since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.m[name]
	return !ok || found.SucceededSince(since)
}

// status returns the state of discovery of a cluster; false: it is not watched.
func (w *watches) status(name string) (discover.Status, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.m[name]
	if !ok {
		return discover.Status{}, false
	}
	return found.Status(), true
}

func (w *watches) close() {
	w.mu.Lock()
	all := w.m
	w.m = map[string]watch{}
	w.mu.Unlock()
	for _, one := range all {
		one.Close()
	}
}
