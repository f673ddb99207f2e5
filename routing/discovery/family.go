package discovery

import (
	"net"
	"net/netip"
	"slices"
)

// oneFamily returns the addresses of one family if a name has both: the IPv4
// ones, unless this node has a route only to the IPv6 ones. A name with both is
// one server reachable in two ways, not two servers. If one way is closed (the
// node has no IPv6, or the server behind "localhost" listens only on 127.0.0.1)
// each connection to it costs a retry, and retries have a budget.
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

// routed reports whether this node has a route to an address. Connecting a
// datagram socket looks up the route and sends nothing.
func routed(a netip.Addr) bool {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
