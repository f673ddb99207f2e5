package dataplane

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// A node warns of each address towards which more than 80 % of the ports are in
// use, the fullest first, and names its services and virtual clusters.
func TestWarningsOfFewPortsLeft(t *testing.T) {
	t.Parallel()
	at := func(i int) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80) }
	u := &PortUse{available: 1000, used: map[netip.AddrPort]int64{at(1): 800, at(2): 801, at(3): 1000}, users: []portUser{
		{"Service", "a", []netip.AddrPort{at(1), at(2)}},
		{"Service", "b", []netip.AddrPort{at(3)}},
		{"Service", "c", []netip.AddrPort{at(3)}},
		{"Service", "d", []netip.AddrPort{at(3), at(3)}},
		{"VirtualCluster", "e", []netip.AddrPort{at(3)}},
	}}
	got := u.Warnings("n1")
	if len(got) != 2 {
		t.Fatalf("%q", got)
	}
	for i, words := range [][]string{
		{
			"node n1: 1000 of 1000 local ports (100 %)", "10.0.0.3:80 of Service/b, Service/c, Service/d and 1 more;",
			"limit_ports", "net.ipv4.ip_local_port_range",
		},
		{"node n1: 801 of 1000 local ports (80 %)", "10.0.0.2:80 of Service/a;"},
	} {
		for _, word := range words {
			if !strings.Contains(got[i], word) {
				t.Errorf("%q does not say %q", got[i], word)
			}
		}
	}
	for i := range 30 {
		u.used[at(i)] = 900
		u.users[0].addresses = append(u.users[0].addresses, at(i))
	}
	more := "node n1: local ports are running out towards 20 more addresses"
	if got = u.Warnings("n1"); len(got) != maxPortWarnings+1 || !slices.Contains(got, more) {
		t.Errorf("%d warnings: %q", len(got), got)
	}
	u.available = 0 // unknown
	if got = u.Warnings("n1"); len(got) > 0 {
		t.Errorf("%q", got)
	}
}
