package dataplane

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"penstock/netio"
	"penstock/routing/provider"
)

// ownAddresses are the TCP addresses at which this node listens.
type ownAddresses struct {
	byPort  map[uint16][]ownAddress
	machine []netip.Addr // those of this machine's interfaces
}

type ownAddress struct {
	listener string
	host     netip.Addr // unspecified: each of its family, and IPv4 too if it is IPv6
}

// newOwnAddresses reads the machine's addresses as they are now.
func newOwnAddresses(listeners []netio.Listener) *ownAddresses {
	own := &ownAddresses{byPort: map[uint16][]ownAddress{}}
	for i := range listeners {
		l := &listeners[i]
		if l.Network != "tcp" {
			continue
		}
		address := l.Address
		if strings.HasPrefix(address, ":") {
			address = "[::]" + address
		}
		if at, err := netip.ParseAddrPort(address); err == nil && at.Port() != 0 {
			own.byPort[at.Port()] = append(own.byPort[at.Port()], ownAddress{l.Name, at.Addr().Unmap()})
		}
	}
	interfaces, _ := net.InterfaceAddrs() // without them, loopback addresses are known still
	for _, a := range interfaces {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own.machine = append(own.machine, prefix.Addr().Unmap())
		}
	}
	return own
}

// accepts reports whether a connection to a host of the port arrives at the
// listener.
func (own *ownAddresses) accepts(l ownAddress, host netip.Addr) bool {
	if !l.host.IsUnspecified() {
		return l.host == host
	}
	return (l.host.Is6() || host.Is4()) && (host.IsLoopback() || slices.Contains(own.machine, host))
}

// Loop returns why this node must not connect to an endpoint that a provider
// found: it is a listener of this node that leads to a service which uses that
// endpoint. It costs little for an endpoint at another port.
func (d *Dataplane) Loop(ref provider.Ref, at netip.AddrPort) error {
	own := d.reconciler.own.Load()
	if own == nil {
		return nil
	}
	for _, l := range own.byPort[at.Port()] {
		if own.accepts(l, at.Addr().Unmap().WithZone("")) && d.Router.Table().LeadsToUser(l.listener, ref) {
			return fmt.Errorf("%s is the listener %s of this node: it would connect to itself", at, l.listener)
		}
	}
	return nil
}
