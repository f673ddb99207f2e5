package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"penstock/kafka/filter"
	"penstock/routing/resource"
)

// Unmapped is a broker of the physical cluster for which a virtual cluster has
// no address: clients do not see it.
type Unmapped struct {
	NodeID  int32
	Address string // host:port, as the physical cluster says
}

// mapper is the configuration of a filter that gives brokers addresses by hand.
type mapper interface {
	Maps(host string, port int32) bool
}

// Unmapped lists the brokers that have no virtual address, sorted by node id:
// of the discovered ones, or if brokers are listed, of those that responses
// have named lately.
func (v *Virtual) Unmapped() []Unmapped {
	if v.Discovered() {
		return v.unmappedAmong(v.physical.state.Brokers())
	}
	return v.unmappedAmong(v.state.unlisted.known(time.Now()))
}

func (v *Virtual) unmappedAmong(brokers map[int32]string) (list []Unmapped) {
	for n, address := range brokers {
		host, text, _ := resource.SplitAddress(address)
		port, _ := strconv.ParseUint(text, 10, 16)
		if _, ok := v.Address(n, host, int32(port)); !ok && !v.maps(host, int32(port)) {
			list = append(list, Unmapped{n, address})
		}
	}
	slices.SortFunc(list, func(a, b Unmapped) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return list
}

func (v *Virtual) maps(host string, port int32) bool {
	for _, s := range v.chain {
		if m, ok := s.Config.(mapper); ok && m.Maps(host, port) {
			return true
		}
	}
	return false
}

// Explain tells why a broker has no virtual address, and what that means.
func (u Unmapped) Explain(v *Virtual) string {
	text := "node " + strconv.Itoa(int(u.NodeID)) + " has " + v.missing()
	if v.hides() {
		return "hidden from clients: " + text
	}
	return "connections that receive its address are closed: " + text
}

// missing says what a broker without a virtual address does not have.
func (v *Virtual) missing() string {
	d := v.raw.Brokers.Discover
	switch {
	case d == nil:
		return "no broker in spec.brokers"
	case d.byName():
		return "no name" // every node id has one
	}
	return d.missingPort()
}

func (d *Discover) missingPort() string {
	return fmt.Sprintf("no port in brokerPorts %s (node ids %d to %d)", d.BrokerPorts, d.FirstNodeID, d.FirstNodeID+d.BrokerPorts.Len()-1)
}

// WarnUnmapped warns of known brokers that a virtual cluster with the spec c
// would not show. path is that of the setting to change, or "" if there are
// none.
func (t *Table) WarnUnmapped(c *VirtualCluster) (path, message string, value any) {
	d := c.Brokers.Discover
	p, ok := t.physical.Get(c.PhysicalClusterRef)
	if !ok || d == nil || d.byName() || d.BrokerPorts.Len() == 0 {
		return "", "", nil
	}
	// Advertised at any host: only the ports count here.
	v := &Virtual{physical: p, addresses: addresses{host: "*", ports: d.BrokerPorts, first: int32(d.FirstNodeID)}}
	for _, filters := range [][]Filter{c.Filters, p.raw.Filters} {
		for i := range filters {
			if config, ok := filters[i].Config.(filter.Config); ok {
				v.chain = append(v.chain, &sharedFilter{Link: Link{Config: config}})
			}
		}
	}
	list := v.unmappedAmong(p.state.Brokers())
	if len(list) == 0 {
		return "", "", nil
	}
	means := "clients will not see it, and the partitions and groups that it leads will not be available to them"
	if c.UnmappedBrokers == "fail" {
		means = "connections that receive its address will be closed (kafka_unmapped_broker)"
	}
	return "spec.brokers.discover.brokerPorts", fmt.Sprintf("has no port for %s: %s", nodesText(list), means), d.BrokerPorts
}

// nodesText names some brokers.
func nodesText(list []Unmapped) string {
	const most = 5
	text := ""
	for i, u := range list[:min(most, len(list))] {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("node %d at %s", u.NodeID, u.Address)
	}
	if more := len(list) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Bounds of what is remembered of brokers that are not listed.
const (
	maxUnlisted = 1000
	// unlistedTTL is how long one is remembered after an answer has named it:
	// clients ask for Metadata every five minutes.
	unlistedTTL = 15 * time.Minute
)

// unlisted are the brokers without a virtual address that answers have named.
// Where brokers are listed nobody else knows of them.
type unlisted struct {
	mu      sync.Mutex
	brokers map[int32]unlistedBroker
	onNew   func() // called for one that is new; nil: nobody
}

type unlistedBroker struct {
	address string
	seenAt  time.Time
}

// OnUnmapped sets a function that is called when a response first names a
// broker without a virtual address. It is called on the loop of a connection
// and must not block.
func (l *VirtualState) OnUnmapped(notify func()) {
	l.unlisted.mu.Lock()
	defer l.unlisted.mu.Unlock()
	l.unlisted.onNew = notify
}

func (u *unlisted) add(node int32, host string, port int32) {
	if node < 0 || host == "" {
		return
	}
	now, notify := time.Now(), func() {}
	defer func() { notify() }()
	u.mu.Lock()
	defer u.mu.Unlock()
	old, known := u.brokers[node]
	if !known && len(u.brokers) >= maxUnlisted {
		return
	}
	address := joinHostPort(host, int(port))
	if u.brokers == nil {
		u.brokers = map[int32]unlistedBroker{}
	}
	u.brokers[node] = unlistedBroker{address, now}
	if old.address != address && u.onNew != nil {
		notify = u.onNew
	}
}

// known returns those that were named lately: host:port by node id.
func (u *unlisted) known(now time.Time) map[int32]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.brokers, func(_ int32, b unlistedBroker) bool { return now.Sub(b.seenAt) > unlistedTTL })
	all := make(map[int32]string, len(u.brokers))
	for n, b := range u.brokers {
		all[n] = b.address
	}
	return all
}
