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

// PhysicalLife is what of a physical cluster outlives its versions: the brokers
// that were discovered. Whoever discovers them sets them.
type PhysicalLife struct {
	name    string
	current atomic.Pointer[Physical]
	brokers atomic.Pointer[discovered]
	meeting sync.Mutex             // held by whoever adds one that was met
	met     atomic.Pointer[func()] // told of that
}

// discovered is one version of the brokers of a cluster.
type discovered struct {
	byNode    map[int32]string // host:port as the cluster says
	byAddress map[address]int32
}

// Name is the resource's name.
func (l *PhysicalLife) Name() string { return l.name }

// Current is the version in force; nil: the cluster was removed.
func (l *PhysicalLife) Current() *Physical { return l.current.Load() }

// SetBrokers tells which brokers the cluster has: host:port by node id, as the
// cluster itself says. It may be called from anywhere; the map is copied.
func (l *PhysicalLife) SetBrokers(brokers map[int32]string) {
	d := &discovered{maps.Clone(brokers), make(map[address]int32, len(brokers))}
	for _, n := range slices.Sorted(maps.Keys(brokers)) {
		host, port, _ := resource.SplitAddress(brokers[n])
		d.byAddress[addressKey(host, port)] = n
	}
	l.brokers.Store(d)
}

// OnMeet has a function called when Meet has learned something. It is called on
// a connection's loop and must not block.
func (l *PhysicalLife) OnMeet(told func()) { l.met.Store(&told) }

// maxMet bounds the brokers that are learned by Meet.
const maxMet = 10_000

// Meet learns a broker's address from an answer of the cluster that passes by.
// It may be called from anywhere, and costs nothing where it is known.
func (l *PhysicalLife) Meet(node int32, host string, port int32) {
	if node < 0 || host == "" || l.knows(node, host, port) {
		return
	}
	l.meeting.Lock()
	defer l.meeting.Unlock()
	known := maps.Clone(l.Brokers())
	if l.knows(node, host, port) || len(known) >= maxMet {
		return
	}
	if known == nil {
		known = map[int32]string{}
	}
	known[node] = joinHostPort(host, int(port))
	l.SetBrokers(known)
	if told := l.met.Load(); told != nil {
		(*told)()
	}
}

func (l *PhysicalLife) knows(node int32, host string, port int32) bool {
	known, ok := l.Brokers()[node]
	if !ok {
		return false
	}
	h, p, _ := resource.SplitAddress(known)
	n, err := strconv.ParseUint(p, 10, 16)
	return h == host && err == nil && int32(n) == port
}

// Brokers gives the brokers that SetBrokers told of, by node id. It must not be
// changed; nil: nobody has told yet.
func (l *PhysicalLife) Brokers() map[int32]string {
	if d := l.brokers.Load(); d != nil {
		return d.byNode
	}
	return nil
}

// nodeAt gives the node id of the broker that has an address.
func (l *PhysicalLife) nodeAt(host, port string) (int32, bool) {
	d := l.brokers.Load()
	if d == nil {
		return 0, false
	}
	n, ok := d.byAddress[addressKey(host, port)]
	return n, ok
}

// Physical is one version of a physical cluster.
type Physical struct {
	life      *PhysicalLife
	raw, spec *PhysicalCluster
	byName    map[string]*PhysicalBroker
}

// Name is the resource's name.
func (p *Physical) Name() string { return p.life.name }

// Life is what all versions share.
func (p *Physical) Life() *PhysicalLife { return p.life }

// Spec is the resource with its defaults filled in. It must not be changed,
// and is the same pointer until the resource is applied again.
func (p *Physical) Spec() *PhysicalCluster { return p.spec }

// Seeds lists addresses by which the cluster can be reached before anything is
// discovered: its bootstrap, or its listed brokers.
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

// Hosts iterates over the hosts of all addresses that it has now, listed,
// given as bootstrap and discovered, IP addresses included and some twice.
func (p *Physical) Hosts() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, t := range p.Seeds() {
			if host, _, _ := resource.SplitAddress(t.Address); !yield(host) {
				return
			}
		}
		for _, address := range p.life.Brokers() {
			if host, _, _ := resource.SplitAddress(address); !yield(host) {
				return
			}
		}
	}
}

// Target is where to connect for a broker.
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

// Targets lists where a virtual broker's connections go: one address, or for
// the bootstrap all that are known, any of which will do. The reason says why
// there is none.
func (v *Virtual) Targets(b *Broker) ([]Target, routing.Reason) {
	p := v.physical
	if b.physical != nil {
		return []Target{p.listed(b.physical)}, routing.OK
	}
	known := p.life.Brokers()
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

// discoveredAt gives the target of an address that the cluster itself told. Of
// a broker that is listed too it is what stands there.
func (p *Physical) discoveredAt(address string) Target {
	host, port, _ := resource.SplitAddress(address)
	key := addressKey(host, port)
	for i := range p.spec.Brokers {
		b := &p.spec.Brokers[i]
		host, port, _ := resource.SplitAddress(b.upstream())
		if addressKey(host, port) == key {
			return p.listed(b)
		}
	}
	return p.target(address)
}

func portText(port int32) string { return strconv.FormatInt(int64(port), 10) }
