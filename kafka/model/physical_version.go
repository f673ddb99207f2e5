package model

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"penstock/routing"
	"penstock/routing/resource"
)

// PhysicalState is the state of a physical cluster that outlives its versions:
// its discovered brokers.
type PhysicalState struct {
	name      string
	current   atomic.Pointer[Physical]
	brokers   atomic.Pointer[discovered]
	learning  sync.Mutex             // held by whoever adds one by Learn
	onLearned atomic.Pointer[func()] // called after that
}

// discovered is one version of the brokers of a cluster.
type discovered struct {
	byNode    map[int32]string // host:port as the cluster says
	byAddress map[address]int32
}

// Name returns the name of the resource.
func (l *PhysicalState) Name() string { return l.name }

// Current returns the version in force, or nil if the cluster was removed.
func (l *PhysicalState) Current() *Physical { return l.current.Load() }

// SetBrokers sets the brokers that the cluster has: host:port by node id, as
// the cluster itself says. It copies the map, and may be called from any
// goroutine.
func (l *PhysicalState) SetBrokers(brokers map[int32]string) {
	d := &discovered{maps.Clone(brokers), make(map[address]int32, len(brokers))}
	for _, n := range slices.Sorted(maps.Keys(brokers)) {
		host, port, _ := resource.SplitAddress(brokers[n])
		d.byAddress[addressKey(host, port)] = n
	}
	l.brokers.Store(d)
}

// OnLearned sets a function that is called when Learn has learned something. It is
// called on the loop of a connection and must not block.
func (l *PhysicalState) OnLearned(notify func()) { l.onLearned.Store(&notify) }

// maxLearned bounds the brokers that are learned by Learn.
const maxLearned = 10_000

// Learn learns the address of a broker from a response that passes. It may be
// called from any goroutine, and costs nothing if the address is known.
func (l *PhysicalState) Learn(node int32, host string, port int32) {
	if node < 0 || host == "" || l.knows(node, host, port) {
		return
	}
	l.learning.Lock()
	defer l.learning.Unlock()
	known := maps.Clone(l.Brokers())
	if l.knows(node, host, port) || len(known) >= maxLearned {
		return
	}
	if known == nil {
		known = map[int32]string{}
	}
	known[node] = joinHostPort(host, int(port))
	l.SetBrokers(known)
	if notify := l.onLearned.Load(); notify != nil {
		(*notify)()
	}
}

func (l *PhysicalState) knows(node int32, host string, port int32) bool {
	known, ok := l.Brokers()[node]
	if !ok {
		return false
	}
	h, p, _ := resource.SplitAddress(known)
	n, err := strconv.ParseUint(p, 10, 16)
	return h == host && err == nil && int32(n) == port
}

// Brokers returns the brokers that SetBrokers has set, by node id, or nil
// before that. The map must not be changed.
func (l *PhysicalState) Brokers() map[int32]string {
	if d := l.brokers.Load(); d != nil {
		return d.byNode
	}
	return nil
}

// nodeAt returns the node id of the broker that has an address.
func (l *PhysicalState) nodeAt(host, port string) (int32, bool) {
	d := l.brokers.Load()
	if d == nil {
		return 0, false
	}
	n, ok := d.byAddress[addressKey(host, port)]
	return n, ok
}

// Physical is one version of a physical cluster.
type Physical struct {
	state     *PhysicalState
	raw, spec *PhysicalCluster
	byName    map[string]*PhysicalBroker
}

// Name returns the name of the resource.
func (p *Physical) Name() string { return p.state.name }

// State returns the state that all versions share.
func (p *Physical) State() *PhysicalState { return p.state }

// Spec returns the resource with defaults filled in. It must not be changed,
// and is the same pointer until the resource is applied again.
func (p *Physical) Spec() *PhysicalCluster { return p.spec }

// Seeds lists the addresses at which the cluster can be reached before
// discovery: its bootstrap, or its listed brokers.
func (p *Physical) Seeds() []Target {
	var seeds []Target
	for _, address := range p.spec.Bootstrap {
		seeds = append(seeds, p.target(address))
	}
	for i := range p.spec.Brokers {
		seeds = append(seeds, p.listed(&p.spec.Brokers[i]))
	}
	return seeds
}

// Hosts iterates over the hosts of all its addresses: listed, bootstrap and
// discovered. IP addresses are among them, and some come twice.
func (p *Physical) Hosts() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, t := range p.Seeds() {
			if host, _, _ := resource.SplitAddress(t.Address); !yield(host) {
				return
			}
		}
		for _, address := range p.state.Brokers() {
			if host, _, _ := resource.SplitAddress(address); !yield(host) {
				return
			}
		}
	}
}

// Target is an address of a broker to connect to.
type Target struct {
	// Address is host:port.
	Address string
	// TLS is what the cluster, or the broker in its place, says of it, with
	// defaults; nil: plain. The pointer is the same until the resource is
	// applied again.
	TLS *PhysicalTLS
}

func (p *Physical) target(address string) Target { return Target{address, p.spec.TLS} }

func (p *Physical) listed(b *PhysicalBroker) Target {
	if b.TLS != nil {
		return Target{b.Address, b.TLS}
	}
	return p.target(b.Address)
}

// Targets lists the addresses for a virtual broker: one, or for the bootstrap
// all that are known, any of which will do. The reason says why there is none.
func (v *Virtual) Targets(b *Broker) ([]Target, routing.Reason) {
	p := v.physical
	if b.physical != nil {
		return []Target{p.listed(b.physical)}, routing.OK
	}
	known := p.state.Brokers()
	if !b.Bootstrap() {
		address, ok := known[b.node]
		if !ok {
			return nil, routing.NoEndpoint
		}
		return []Target{p.discoveredAt(address)}, routing.OK
	}
	if len(known) == 0 {
		return p.Seeds(), routing.OK
	}
	var all []Target
	for _, n := range slices.Sorted(maps.Keys(known)) {
		all = append(all, p.discoveredAt(known[n]))
	}
	return all, routing.OK
}

// discoveredAt returns the target of an address that the cluster itself told. Of
// a broker that is listed too it is what stands there.
func (p *Physical) discoveredAt(address string) Target {
	host, port, _ := resource.SplitAddress(address)
	key := addressKey(host, port)
	for i := range p.spec.Brokers {
		b := &p.spec.Brokers[i]
		host, port, _ := resource.SplitAddress(b.advertised())
		if addressKey(host, port) == key {
			return p.listed(b)
		}
	}
	return p.target(address)
}

func portText(port int32) string { return strconv.FormatInt(int64(port), 10) }
