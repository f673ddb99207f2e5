package reactor

import (
	"net/netip"
	"testing"
)

func TestAddressesGoThroughTheKernelsForm(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:80":          "127.0.0.1:80",
		"[::ffff:10.1.2.3]:443": "10.1.2.3:443",
		"[2001:db8::1]:65535":   "[2001:db8::1]:65535",
		"[fe80::1%1]:258":       "[fe80::1%1]:258",
		"[fe80::1%lo]:258":      "[fe80::1%1]:258",
	} {
		var a sockaddr
		if err := a.setTCP(netip.MustParseAddrPort(in)); err != nil {
			t.Errorf("%s: %v", in, err)
		} else if got := a.addrPort().String(); got != want {
			t.Errorf("%s came back as %s", in, got)
		}
	}
	var a sockaddr
	if err := a.setTCP(netip.MustParseAddrPort("[fe80::1%nosuchzone]:1")); err == nil {
		t.Error("took a zone that does not exist")
	}
	if err := a.setUnix("/run/x"); err != nil || a.len != 2+6+1 || a.addrPort().IsValid() {
		t.Errorf("a path: length %d, %v", a.len, err)
	}
	if err := a.setUnix("@x"); err != nil || a.len != 2+2 {
		t.Errorf("an abstract name: length %d, %v", a.len, err)
	}
}
