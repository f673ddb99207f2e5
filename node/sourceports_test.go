package node

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"penstock/netio/ports"
)

// silentServer is an endpoint that accepts, and says and reads nothing.
func silentServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// Local ports are counted by the address that they are used for, whatever is
// spoken there and however many services have it.
func TestLocalPortsInUseAreCounted(t *testing.T) {
	t.Parallel()
	held, answer := make(chan struct{}, 4), make(chan struct{})
	web := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			held <- struct{}{}
			<-answer
		}
		_, _ = io.WriteString(w, "ok")
	})
	silent, broker := silentServer(t), silentServer(t)
	text := `kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: apps}
---
kind: Listener
name: straight
spec: {address: "127.0.0.1:0", service: straight}
---
kind: Listener
name: one
spec: {address: "127.0.0.1:0", protocol: kafka}
---
kind: PhysicalCluster
name: big
spec: {brokers: [{name: a, address: %[3]q}]}
---
kind: VirtualCluster
name: t1
spec: {physicalClusterRef: big, brokers: [{name: a, endpointRef: one, physicalBrokerRef: a, advertise: "virtual:1"}]}
---
kind: Service
name: apps
spec: {endpoints: [{address: %[1]q, tags: {v: "1"}}, {address: %[1]q, tags: {v: "2"}}, {address: "unix:/nowhere"}]}
---
kind: Service
name: straight
spec: {endpoints: [{address: %[2]q}]}
---
kind: Service
name: broker
spec: {endpoints: [{address: %[3]q}, {address: %[1]q}]}
`
	n := startNode(t, fmt.Sprintf(text, silent, web, broker)+webListener[1:]+webService("shop", "", web)+webRoute(rule("/", "")))
	used := func(service, want string) {
		t.Helper()
		series := fmt.Sprintf("penstock_source_ports_used{service=%q}", service)
		waitFor(t, series+" to be "+want, func() bool { return n.metric(t, series) == want })
	}
	open := func(listener string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", n.at(t, listener))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	used("apps", "0")
	first := open("edge")
	for range 4 { // each fifth, or any, meets the socket that is not there
		open("edge")
	}
	used("apps", "5")
	used("broker", "5") // the same address
	for range 6 {
		open("one")
	}
	used("t1", "6")
	used("broker", "6")
	_ = first.(*net.TCPConn).SetLinger(0) // its end alone would wait for the endpoint's
	first.Close()
	used("apps", "4")
	// Three requests at once have a connection each, which stay when they are over;
	// a connection that is relayed to the same address is one more.
	c := newWebClient(t, n.at(t, "web"), true)
	done := make(chan struct{})
	for range 3 {
		go func() {
			if _, err := c.try("GET", "/long", ""); err != nil {
				t.Error(err)
			}
			done <- struct{}{}
		}()
	}
	for range 3 {
		<-held
	}
	open("straight")
	used("shop", "4")
	close(answer)
	for range 3 {
		<-done
	}
	used("shop", "4")
	used("straight", "4")
	c.do("GET", "/", "")
	n.mustApply(t, webService("shop", ", resolve: 20s", web)[5:])
	used("shop", "1") // those of the version before are closed
	available, err := ports.Available()
	if got := n.metric(t, `penstock_source_ports{service="shop"}`); err != nil || got != fmt.Sprint(available) {
		t.Errorf("%s ports, want %d, %v", got, available, err)
	}
	if w := n.mustStatus(t).Warnings; len(w) > 0 {
		t.Errorf("it warns: %q", w)
	}
}

// A node warns of each address towards which more than four fifths of the ports
// are in use, of the fullest first, and names who leads there.
func TestNodesWarnOfFewPortsLeft(t *testing.T) {
	t.Parallel()
	at := func(i int) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80) }
	u := &portUse{available: 1000, used: map[netip.AddrPort]int64{at(1): 800, at(2): 801, at(3): 1000}, leads: []lead{
		{"Service", "a", []netip.AddrPort{at(1), at(2)}},
		{"Service", "b", []netip.AddrPort{at(3)}},
		{"Service", "c", []netip.AddrPort{at(3)}},
		{"Service", "d", []netip.AddrPort{at(3), at(3)}},
		{"VirtualCluster", "e", []netip.AddrPort{at(3)}},
	}}
	got := u.warnings("n1")
	if len(got) != 2 {
		t.Fatalf("%q", got)
	}
	for i, words := range [][]string{
		{"node n1: 1000 of 1000 local ports (100 %)", "10.0.0.3:80 of Service/b, Service/c, Service/d and 1 more;", "limit_ports", "net.ipv4.ip_local_port_range"},
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
		u.leads[0].to = append(u.leads[0].to, at(i))
	}
	if got = u.warnings("n1"); len(got) != maxPortWarnings+1 || !slices.Contains(got, "node n1: the same of 20 more addresses") {
		t.Errorf("%d warnings: %q", len(got), got)
	}
	u.available = 0 // the system does not say
	if got = u.warnings("n1"); len(got) > 0 {
		t.Errorf("%q", got)
	}
}
