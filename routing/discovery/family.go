package discovery

import (
	"net"
	"net/netip"
	"slices"
)

// oneFamily gives the addresses of one family, where a name has both: the IPv4
// ones, unless this node has no route to any of them. A name with both is one
// server with two ways to it, not two servers. Where one of the ways is closed
// (the node has no IPv6, or what stands behind "localhost" listens at 127.0.0.1
// alone) every connection that is sent there costs a retry, of which there is
// a budget.
func oneFamily(addrs []netip.Addr, routed func(netip.Addr) bool) []netip.Addr {
	var v4, v6 []netip.Addr
	for _, a := range addrs {
		if a.Unmap().Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	if len(v4) == 0 || len(v6) > 0 && !slices.ContainsFunc(v4, routed) && slices.ContainsFunc(v6, routed) {
		return v6
	}
	return v4
}

// routed tells whether this node has a route to an address. To connect a
// datagram socket looks for one and sends nothing.
func routed(a netip.Addr) bool {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
