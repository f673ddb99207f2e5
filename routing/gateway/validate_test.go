package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Two addresses that one node cannot listen at together are a fault, however
// they are written.
func TestOverlappingAddressesAreFaults(t *testing.T) {
	for _, c := range []struct{ addresses, want string }{
		{"127.0.0.1 ::1", ""},
		{"0.0.0.0 ::1", ""},
		{"fe80::1%eth0 fe80::1%eth1", ""},
		{"::1 0:0:0:0:0:0:0:1", "duplicate"},
		{"127.0.0.1 ::ffff:127.0.0.1", "duplicate"},
		{"127.0.0.1 0.0.0.0", "overlaps with 127.0.0.1"},
		{"0.0.0.0 127.0.0.1", "overlaps with 0.0.0.0"},
		{"10.0.0.1 ::", "overlaps with 10.0.0.1"},
		{":: 0.0.0.0", "overlaps with ::"},
		{"::1 ::", "overlaps with ::1"},
		{"10.0.0.1 10.0.0.2 ::ffff:a00:1", "duplicate"},
	} {
		g := &Gateway{GatewayClassName: "x", Listeners: []Listener{{Name: "l", Port: 1, Protocol: "TCP"}}}
		for _, value := range strings.Fields(c.addresses) {
			g.Addresses = append(g.Addresses, Address{Value: value})
		}
		got := ""
		g.Validate(func(path, message string, _ any) { got += message })
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.addresses, got, c.want)
		}
	}
}

// Listeners that cannot share a port conflict, even if their protocols are not supported.
func TestListenersOfOnePortConflict(t *testing.T) {
	tls := func(protocol, hostname, mode string) Listener {
		return Listener{
			Port: 443, Protocol: protocol, Hostname: hostname,
			Security: &TLS{Mode: mode, CertificateRefs: []CertificateRef{{Name: "c"}}},
		}
	}
	plain := func(protocol string) Listener { return Listener{Port: 443, Protocol: protocol} }
	for what, c := range map[string]struct {
		a, b Listener
		want string
	}{
		"HTTPS and TLS, both for every name":    {tls("HTTPS", "", "Terminate"), tls("TLS", "", "Passthrough"), reasonHostnameConflict},
		"HTTPS and TLS of one name":             {tls("HTTPS", "a.b", "Terminate"), tls("TLS", "A.b", "Terminate"), reasonHostnameConflict},
		"HTTPS and TLS of two names":            {tls("HTTPS", "a.b", "Terminate"), tls("TLS", "c.d", "Passthrough"), ""},
		"TLS of two modes":                      {tls("TLS", "a.b", "Terminate"), tls("TLS", "c.d", "Passthrough"), reasonProtocolConflict},
		"HTTP and TLS":                          {plain("HTTP"), tls("TLS", "", "Passthrough"), reasonProtocolConflict},
		"HTTP and HTTPS":                        {plain("HTTP"), tls("HTTPS", "", "Terminate"), reasonProtocolConflict},
		"TCP and TLS":                           {plain("TCP"), tls("TLS", "", "Passthrough"), reasonProtocolConflict},
		"TCP twice":                             {plain("TCP"), plain("tcp"), reasonHostnameConflict},
		"TCP and UDP, whose ports are others":   {plain("TCP"), plain("UDP"), ""},
		"TLS and what nobody knows anything of": {tls("TLS", "", "Passthrough"), plain("example.com/mine"), ""},
	} {
		c.a.Name, c.b.Name = "a", "b"
		for i, l := range listenersOf(&Gateway{Listeners: []Listener{c.a, c.b}}) {
			if l.conflict.reason != c.want {
				t.Errorf("%s, listener %d: %q, want %q", what, i, l.conflict.reason, c.want)
			}
		}
	}
}

// If a node cannot listen at several addresses, each status names the same one.
func TestStatusNamesTheSameAddressEachTime(t *testing.T) {
	g := &Gateway{GatewayClassName: "x", Listeners: []Listener{{Name: "l", Port: 1, Protocol: "TCP"}}}
	for i := range maxAddresses {
		g.Addresses = append(g.Addresses, Address{Value: fmt.Sprintf("10.0.0.%d", 10+i)})
	}
	o := resource.Object{Key: resource.Key{Kind: KindGateway, Name: "edge"}, Spec: g}
	set, faults, _ := new(validate.Set).With([]resource.Change{resource.Put(o)})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for range 20 {
		status := NewStatuses(set, func(listener string) string { return "no " + listener }).Status(&o, 1, time.Time{})
		for _, c := range status.(*Status).Conditions {
			if c.Type == "Programmed" && c.Message != "no edge/10.0.0.10:1" {
				t.Fatal(c.Message)
			}
		}
	}
}

// The status of a Gateway without addresses has the node's, if the Gateway listens.
func TestStatusHasTheNodeAddress(t *testing.T) {
	tcp := Listener{Name: "l", Port: 1, Protocol: "TCP"}
	for what, c := range map[string]struct {
		bind string
		g    Gateway
		want string
	}{
		"the node's":        {"192.0.2.1", Gateway{Listeners: []Listener{tcp}}, "[{IPAddress 192.0.2.1}]"},
		"its own":           {"192.0.2.1", Gateway{Listeners: []Listener{tcp}, Addresses: []Address{{Value: "::1"}}}, "[{IPAddress ::1}]"},
		"none to listen at": {"192.0.2.1", Gateway{Listeners: []Listener{tcp}, Addresses: []Address{{Type: "Hostname", Value: "a.b"}}}, "[]"},
		"nothing listens":   {"192.0.2.1", Gateway{Listeners: []Listener{{Name: "l", Port: 1, Protocol: "UDP"}}}, "[]"},
		"nobody knows":      {"", Gateway{Listeners: []Listener{tcp}}, "[]"},
	} {
		c.g.GatewayClassName = "x"
		o := resource.Object{Key: resource.Key{Kind: KindGateway, Name: "edge"}, Spec: &c.g}
		set, faults, _ := new(validate.Set).With([]resource.Change{resource.Put(o)})
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		status := NewStatuses(set, nil).WithBindAddress(c.bind).Status(&o, 1, time.Time{}).(*Status)
		if got := fmt.Sprint(status.Addresses); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}
