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
	// maxSearch bounds how long one waits for its broker to be known. A node
	// hears of a broker by its own looks at the cluster, so clients that
	// were told of it by another node may be here first.
	maxSearch = 5 * time.Second
	// maxLookup does the same for addresses of its host name.
	maxLookup = time.Second
	// firstLook and lastLook are the pauses between two looks at what is
	// known meanwhile: each is twice the one before.
	firstLook = 5 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// brokerLookup is how a connection finds its broker.
type brokerLookup struct {
	broker  *model.Broker
	targets []target
	begun   time.Time // when it turned out that there is no address of it
	pause   time.Duration
	named   bool // it is known, by a name without addresses
}

// lookUpBroker looks where the broker is. Where that is not known the connection waits
// for the look at the physical cluster that it asks for, and no longer: a
// broker that is not there by then does not exist. Or for its name's addresses.
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

// goesOn tells whether more may become known, and sees to it at first.
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
