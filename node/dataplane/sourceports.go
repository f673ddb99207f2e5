package dataplane

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"penstock/netio/ports"
)

// PortUse is the use of this node's local ports. A local port serves one
// connection to each endpoint address.
type PortUse struct {
	available int // ports for each address; 0: unknown
	timeWait  int // connections of the network namespace in TIME_WAIT; -1: unknown
	used      map[netip.AddrPort]int64
	users     []portUser
}

// portUser is a service or a virtual cluster, and the addresses of its endpoints.
type portUser struct {
	kind, name string
	addresses  []netip.AddrPort
}

// PortUse collects the current counters. Endpoints count their relayed
// connections; profiles and the Kafka proxy count those that they make.
func (d *Dataplane) PortUse() *PortUse {
	u := &PortUse{used: map[netip.AddrPort]int64{}}
	var err error
	if u.available, err = ports.Available(); err != nil {
		u.available = 0
	}
	if u.timeWait, err = ports.TimeWait(); err != nil {
		u.timeWait = -1
	}
	d.requests.profiles.ports.AddTo(u.used)
	for _, svc := range d.Services() {
		l := portUser{kind: "Service", name: svc.Name()}
		seen := map[string]bool{}
		for _, e := range svc.Group().Endpoints() {
			name := EndpointName(e)
			if !e.Addr.IsValid() || seen[name] { // endpoints with one address and different tags share a counter
				continue
			}
			seen[name] = true
			at := netip.AddrPortFrom(e.Addr.Addr().Unmap(), e.Addr.Port())
			u.used[at] += e.Relayed()
			l.addresses = append(l.addresses, at)
		}
		u.users = append(u.users, l)
	}
	clusters := d.Kafka.Ports()
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		l := portUser{kind: "VirtualCluster", name: name}
		for at, connections := range clusters[name] {
			u.used[at] += connections
			l.addresses = append(l.addresses, at)
		}
		u.users = append(u.users, l)
	}
	return u
}

// busiest returns the number of ports in use towards the address with the most.
func (u *PortUse) busiest(l *portUser) (most int64) {
	for _, at := range l.addresses {
		most = max(most, u.used[at])
	}
	return most
}

// Available returns the number of local ports for each address; 0: unknown.
func (u *PortUse) Available() int { return u.available }

// TimeWait returns the number of connections of the network namespace in
// TIME_WAIT; -1: unknown.
func (u *PortUse) TimeWait() int { return u.timeWait }

// Busiest returns, for each service and virtual cluster, the number of ports in
// use towards its address with the most. If a service and a virtual cluster have
// the same name, the higher number counts.
func (u *PortUse) Busiest() map[string]int64 {
	used := map[string]int64{}
	for i := range u.users {
		l := &u.users[i]
		used[l.name] = max(used[l.name], u.busiest(l))
	}
	return used
}

const (
	// portWarningPercent is the share of the local ports, in percent, above which a node warns.
	portWarningPercent = 80
	// maxPortWarnings bounds the addresses in the warnings, maxPortNames the
	// services that are named with each.
	maxPortWarnings, maxPortNames = 10, 3
)

// Warnings lists the addresses towards which the node is running out of ports,
// those with the most ports in use first.
func (u *PortUse) Warnings(node string) []string {
	full := map[netip.AddrPort][]string{} // services and virtual clusters by address
	for i := range u.users {
		l := &u.users[i]
		for _, at := range l.addresses {
			if u.available > 0 && u.used[at]*100 > int64(u.available)*portWarningPercent {
				full[at] = append(full[at], l.kind+"/"+l.name)
			}
		}
	}
	all := slices.SortedFunc(maps.Keys(full), func(a, b netip.AddrPort) int {
		if u.used[a] != u.used[b] {
			return cmp.Compare(u.used[b], u.used[a])
		}
		return a.Compare(b)
	})
	var list []string
	for _, at := range all[:min(len(all), maxPortWarnings)] {
		list = append(list, u.warning(node, at, full[at]))
	}
	if more := len(all) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("node %s: local ports are running out towards %d more addresses", node, more))
	}
	return list
}

func (u *PortUse) warning(node string, at netip.AddrPort, names []string) string {
	names = slices.Compact(names)
	who := strings.Join(names[:min(len(names), maxPortNames)], ", ")
	if more := len(names) - maxPortNames; more > 0 {
		who += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("node %s: %d of %d local ports (%d %%) are in use towards endpoint %v of %s; "+
		"with none left, connections there end with limit_ports. "+
		"Add endpoints or nodes, widen net.ipv4.ip_local_port_range, or keep fewer connections open (docs/operations.md, Ports)",
		node, u.used[at], u.available, u.used[at]*100/int64(u.available), at, who)
}
