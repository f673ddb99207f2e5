package ports

import (
	"maps"
	"net/netip"
	"testing"
)

func TestAvailable(t *testing.T) {
	for _, test := range []struct {
		span, reserved string
		want           int // -1: an error
	}{
		{"32768\t60999\n", "\n", 28232},
		{"1024 65535", "", 64512},
		{"40000 40009", "40001,40003-40004\n", 7},
		{"40000 40009", "1-39999,40009-65535", 9},
		{"40000 40009", "30000-50000", 0},
		{"40000 40009", "8080,50000-50001", 10},
		{"40000", "", -1},
		{"40009 40000", "", -1},
		{"40000 70000", "", -1},
		{"a b", "", -1},
		{"40000 40009", "x", -1},
		{"40000 40009", "3-1", -1},
	} {
		got, err := available(test.span, test.reserved)
		if err != nil {
			got = -1
		}
		if got != test.want {
			t.Errorf("of %q without %q there are %d, %v; want %d", test.span, test.reserved, got, err, test.want)
		}
	}
	if n, err := Available(); err != nil || n <= 0 {
		t.Errorf("this system has %d, %v", n, err)
	}
}

func TestTimeWait(t *testing.T) {
	n, err := timeWait("sockets: used 77\nTCP: inuse 45 orphan 0 tw 7054 alloc 45 mem 0\nUDP: inuse 3 mem 74\n")
	if err != nil || n != 7054 {
		t.Errorf("%d, %v", n, err)
	}
	for _, text := range []string{"", "TCP: inuse 1\n", "TCP: tw\n", "TCP: tw x\n"} {
		if n, err := timeWait(text); err == nil {
			t.Errorf("%q: %d", text, n)
		}
	}
	if _, err := TimeWait(); err != nil {
		t.Error(err)
	}
}

func TestCountKeepsAddressesWithConnectionsAlone(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("[2001:db8::1]:80")
	var c Count
	check := func(want map[netip.AddrPort]int64) {
		t.Helper()
		got := map[netip.AddrPort]int64{}
		if c.AddTo(got); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	check(nil)
	c.Add(a, 1)
	c.Add(netip.MustParseAddrPort("[::ffff:10.0.0.1]:80"), 1) // the same
	c.Add(b, 1)
	c.Add(netip.AddrPort{}, 1) // a unix socket
	check(map[netip.AddrPort]int64{a: 2, b: 1})
	c.Add(b, -1)
	check(map[netip.AddrPort]int64{a: 2})
	if len(c.m) != 1 {
		t.Errorf("it keeps %v", c.m)
	}
	sum := map[netip.AddrPort]int64{a: 40}
	if c.AddTo(sum); sum[a] != 42 {
		t.Errorf("added to 40: %d", sum[a])
	}
}
