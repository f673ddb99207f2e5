package model

import (
	"net/netip"
	"strconv"
	"strings"

	"penstock/kafka/filter"
	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// address is one form for all ways to write one.
type address struct {
	ip         netip.Addr // of a host that is one
	host, port string     // host is empty for an ip
}

// addressKey returns that form.
func addressKey(host, port string) address {
	if ip, err := netip.ParseAddr(host); err == nil {
		return address{ip: ip.Unmap(), port: port}
	}
	return address{host: strings.ToLower(strings.TrimSuffix(host, ".")), port: port}
}

// hostPort is an address advertised to clients.
type hostPort struct {
	host string
	port int32
}

// addresses map a broker's own address to the one advertised to clients.
type addresses struct {
	// Of brokers that are listed, by addressKey of what they are upstream.
	listed map[address]hostPort
	// Of brokers that are discovered by name.
	pattern *hostname.Numbered
	port    int32
	// Of brokers that are discovered by port.
	host  string
	ports PortRange
	first int32 // node id at the first port
}

// has reports whether there is an address for a node id.
func (a *addresses) has(node int32) bool {
	_, ok := a.of(node)
	return ok
}

// of returns the address for a node id.
func (a *addresses) of(node int32) (hostPort, bool) {
	switch {
	case node < 0:
	case a.pattern != nil:
		return hostPort{a.pattern.Name(node), a.port}, a.port != 0
	case a.ports.Len() > 0 && a.host != "":
		if i := int64(node) - int64(a.first); i >= 0 && i < int64(a.ports.Len()) {
			return hostPort{a.host, int32(a.ports.First) + int32(i)}, true
		}
	}
	return hostPort{}, false
}

// Address returns what clients see of a broker that the physical cluster
// names; false: it has no virtual broker. A node id of NoNode is looked up by
// the address.
func (v *Virtual) Address(node int32, host string, port int32) (filter.Broker, bool) {
	var at hostPort
	var ok bool
	if v.addresses.listed != nil {
		at, ok = v.addresses.listed[addressKey(host, portText(port))]
	} else {
		known := node
		if node < 0 {
			if known, ok = v.physical.state.nodeAt(host, portText(port)); !ok {
				return filter.Broker{}, false
			}
		}
		at, ok = v.addresses.of(known)
	}
	return filter.Broker{NodeID: node, Host: at.host, Port: at.port}, ok
}

// Advertised returns the host:port advertised to clients for a virtual broker,
// or "".
func (v *Virtual) Advertised(b *Broker) string {
	var at hostPort
	switch {
	case b.physical != nil:
		host, port, _ := resource.SplitAddress(b.physical.advertised())
		at = v.addresses.listed[addressKey(host, port)]
	case !b.Bootstrap():
		at, _ = v.addresses.of(b.node)
	case v.addresses.pattern != nil:
		at = hostPort{v.raw.Brokers.Discover.Bootstrap, v.addresses.port}
	default:
		at = hostPort{v.addresses.host, int32(v.raw.Brokers.Discover.BootstrapPort)}
	}
	if at.host == "" {
		return ""
	}
	return joinHostPort(at.host, int(at.port))
}

// Address is Virtual.Address of the version in force, or of the last one that
// was. Filters keep it.
func (l *VirtualState) Address(node int32, host string, port int32) (filter.Broker, bool) {
	v := l.last.Load()
	if v == nil {
		return filter.Broker{}, false
	}
	if v.addresses.listed == nil {
		v.physical.state.Learn(node, host, port)
	}
	b, ok := v.Address(node, host, port)
	if !ok && v.addresses.listed != nil {
		l.unlisted.add(node, host, port)
	}
	return b, ok
}

// reachableAddress makes the address of text "host:port", at the host of bind
// where it has none; not ok: nobody could connect there.
func reachableAddress(text, bind string) (hostPort, bool) {
	host, port, ok := resource.SplitAddress(text)
	if host == "" {
		host = bind
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return hostPort{host, int32(n)}, ok && err == nil && n != 0 && !resource.AnyHost(host)
}
