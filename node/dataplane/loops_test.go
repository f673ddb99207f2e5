package dataplane

import (
	"net/netip"
	"testing"

	"penstock/netio"
)

func TestOwnAddresses(t *testing.T) {
	for _, test := range []struct {
		listens, host string
		want          bool
	}{
		{"127.0.0.1:80", "127.0.0.1", true},
		{"127.0.0.1:80", "127.0.0.2", false},
		{"127.0.0.1:80", "10.0.0.1", false},
		{"0.0.0.0:80", "127.0.0.2", true},
		{"0.0.0.0:80", "10.0.0.1", true},
		{"0.0.0.0:80", "10.0.0.2", false},
		{"0.0.0.0:80", "::1", false},
		{"0.0.0.0:80", "fd00::1", false},
		{":80", "127.0.0.1", true},
		{":80", "::1", true},
		{"[::]:80", "10.0.0.1", true},
		{"[::]:80", "fd00::1", true},
		{"[::1]:80", "::1", true},
		{"[::1]:80", "127.0.0.1", false},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1", true},
	} {
		own := newOwnAddresses([]netio.Listener{
			{Name: "edge", Network: "tcp", Address: test.listens},
			{Name: "socket", Network: "unix", Address: "/run/edge:80"},
			{Name: "free", Network: "tcp", Address: "127.0.0.1:0"},
		})
		own.machine = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
		if len(own.byPort) != 1 || len(own.byPort[80]) != 1 {
			t.Fatalf("%s: %v", test.listens, own.byPort)
		}
		if got := own.accepts(own.byPort[80][0], netip.MustParseAddr(test.host)); got != test.want {
			t.Errorf("a connection to %s arrives at a listener at %s: %v, want %v", test.host, test.listens, got, test.want)
		}
	}
}
