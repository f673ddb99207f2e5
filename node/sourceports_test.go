package node

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"penstock/internal/testkit"
	"penstock/netio/ports"
	"penstock/node/nodetest"
)

// Local ports are counted by the remote address, whatever the protocol and however
// many services have the address.
func TestLocalPortsInUseAreCounted(t *testing.T) {
	t.Parallel()
	held, answer := make(chan struct{}, 4), make(chan struct{})
	web := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			held <- struct{}{}
			<-answer
		}
		_, _ = io.WriteString(w, "ok")
	})
	silent, broker := nodetest.SilentServer(t), nodetest.SilentServer(t)
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
	n := startNode(t, fmt.Sprintf(text, silent, web, broker)+nodetest.WebListener[1:]+nodetest.WebService("shop", "", web)+
		nodetest.WebRoute(nodetest.Rule("/", "")))
	used := func(service, want string) {
		t.Helper()
		series := fmt.Sprintf("penstock_source_ports_used{service=%q}", service)
		testkit.WaitFor(t, series+" to be "+want, func() bool { return n.metric(t, series) == want })
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
	for range 4 { // some may try the unix socket first, which does not exist
		open("edge")
	}
	used("apps", "5")
	used("broker", "5") // the same address
	for range 6 {
		open("one")
	}
	used("t1", "6")
	used("broker", "6")
	_ = first.(*net.TCPConn).SetLinger(0) // after a FIN the relay would wait for the endpoint's FIN
	first.Close()
	used("apps", "4")
	// Three concurrent requests use a connection each, which stay open afterwards; a
	// connection relayed to the same address is one more.
	c := nodetest.NewWebClient(t, n.at(t, "web"), true)
	done := make(chan struct{})
	for range 3 {
		go func() {
			if _, err := c.Try("GET", "/long", ""); err != nil {
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
	c.Do("GET", "/", "")
	n.mustApply(t, nodetest.WebService("shop", ", resolve: 20s", web)[5:])
	used("shop", "1") // the connections of the previous version are closed
	available, err := ports.Available()
	if got := n.metric(t, `penstock_source_ports{service="shop"}`); err != nil || got != fmt.Sprint(available) {
		t.Errorf("%s ports, want %d, %v", got, available, err)
	}
	if w := n.mustStatus(t).Warnings; len(w) > 0 {
		t.Errorf("it warns: %q", w)
	}
}
