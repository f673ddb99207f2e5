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
	// maxSearch bounds how long a connection waits until its broker is
	// discovered. A client that heard of a broker through another node may
	// arrive before this node has discovered it.
	maxSearch = 5 * time.Second
	// maxLookup bounds how long a connection waits for the addresses of a host
	// name.
	maxLookup = time.Second
	// firstLook and lastLook bound the pauses between two checks; each is twice
	// the one before.
	firstLook = 5 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// brokerLookup is the search of a connection for its broker.
type brokerLookup struct {
	broker  *model.Broker
	targets []target
	begun   time.Time // when it turned out that there is no address of it
	pause   time.Duration
	named   bool // it is known, by a name without addresses
}

// lookUpBroker finds the addresses of the broker. If the broker is unknown, it
// asks for discovery, and the connection waits until that is done: a broker
// that is not found by then does not exist. If only its name is known, the
// connection waits for the addresses of that name.
func (p *Connection) lookUpBroker() (wait time.Duration, why netio.Reason) {
	v, s, r := p.serving.virtual, p.lookup, p.proxy
	targets, reason := r.upstreams.targets(model.Route{Cluster: v, Broker: s.broker}, rand.IntN(1<<16), maxAttempts)
	if reason == routing.OK {
		s.targets = targets
		p.counted = p.stats.brokers.of(p.broker)
		p.counted.active.Add(1)
		return 0, netio.OK
	}
	cluster := v.Physical().Name()
	first := s.begun.IsZero()
	if first {
		s.begun, s.pause = time.Now(), firstLook/2
	}
	if !s.goesOn(r, v, cluster, first) {
		return 0, netio.Reason(reason)
	}
	s.pause = min(2*s.pause, lastLook)
	return s.pause, netio.OK
}

// goesOn reports whether waiting may help. The first time it asks for
// discovery.
func (s *brokerLookup) goesOn(r *Proxy, v *model.Virtual, cluster string, first bool) bool {
	switch {
	case r.upstreams.resolves(v, s.broker):
		if !s.named {
			s.named, s.begun = true, time.Now()
		}
		return time.Since(s.begun) < r.lookup
	case first:
		return r.watches.refresh(cluster)
	}
	return time.Since(s.begun) < r.lookups && !r.watches.lookedSince(cluster, s.begun)
}
