package resource

import (
	"net/netip"
	"strings"
)

// SplitAddress splits an address into host and port. An IPv6 address must be in
// brackets, which it removes.
func SplitAddress(s string) (host, port string, ok bool) {
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 {
		return "", "", false
	}
	host, port = s[:colon], s[colon+1:]
	if inner, is := strings.CutPrefix(host, "["); is {
		inner, closed := strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		return inner, port, closed && err == nil && a.Is6()
	}
	return host, port, !strings.ContainsAny(host, ":[]")
}

// AnyHost reports whether the host of a listen address is not a specific one: it
// is empty (the node's --bind) or a wildcard.
func AnyHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}
