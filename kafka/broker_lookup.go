package kafka

import (
	"math/rand/v2"
	"time"

	"penstock/kafka/model"
	"penstock/netio"
	"penstock/routing"
)

// Bounds of finding out where a connection goes.
const (
	// maxAttempts bounds the addresses that are tried for one connection.
	maxAttempts = 5
	// maxDiscoveryWait bounds how long a connection waits until its broker is
	// discovered. A client that heard of a broker through another node may
	// arrive before this node has discovered it.
	maxDiscoveryWait = 5 * time.Second
	// maxResolveWait bounds how long a connection waits for the addresses of a host
	// name.
	maxResolveWait = time.Second
	// minCheckPause and maxCheckPause bound the pauses between two checks; each is twice
	// the one before.
	minCheckPause = 5 * time.Millisecond
	maxCheckPause = 100 * time.Millisecond
)

// brokerLookup is the search of a connection for its broker.
type brokerLookup struct {
	broker    *model.Broker
	targets   []target
	begun     time.Time // when it turned out that there is no address of it
	pause     time.Duration
	resolving bool // it is known, by a name without addresses
}

// lookUpBroker finds the addresses of the broker. If the broker is unknown, it
// asks for discovery, and the connection waits until that is done: a broker
// that is not found by then does not exist. If only its name is known, the
// connection waits for the addresses of that name.
func (p *Connection) lookUpBroker() (wait time.Duration, why netio.Reason) {
	v, s, r := p.version.virtual, p.lookup, p.proxy
	targets, reason := r.upstreams.targets(model.Route{Cluster: v, Broker: s.broker}, rand.IntN(1<<16), maxAttempts)
	if reason == routing.OK {
		s.targets = targets
		p.tally = p.stats.brokers.of(p.broker)
		p.tally.active.Add(1)
		return 0, netio.OK
	}
	cluster := v.Physical().Name()
	first := s.begun.IsZero()
	if first {
		s.begun, s.pause = time.Now(), minCheckPause/2
	}
	if !s.shouldWait(r, v, cluster, first) {
		return 0, netio.Reason(reason)
	}
	s.pause = min(2*s.pause, maxCheckPause)
	return s.pause, netio.OK
}

// shouldWait reports whether waiting may help. The first time it asks for
// discovery.
func (s *brokerLookup) shouldWait(r *Proxy, v *model.Virtual, cluster string, first bool) bool {
	switch {
	case r.upstreams.mayResolve(v, s.broker):
		if !s.resolving {
			s.resolving, s.begun = true, time.Now()
		}
		return time.Since(s.begun) < r.resolveWait
	case first:
		return r.watches.refresh(cluster)
	}
	return time.Since(s.begun) < r.discoveryWait && !r.watches.succeededSince(cluster, s.begun)
}
