package dataplane

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"penstock/netio"
	"penstock/routing"
	"penstock/routing/endpoint"
)

// A node without a local port towards an endpoint tries the others and does not
// count a failure of the endpoint. If none is left, the connection or request ends
// with limit_ports.
func TestPortExhaustionDoesNotBlameEndpoint(t *testing.T) {
	t.Parallel()
	const services = `kind: Listener
name: web
spec: {address: "127.0.0.1:0", service: shop}
---
kind: Service
name: shop
spec: {endpoints: [{address: "127.0.0.1:1"}, {address: "127.0.0.1:2"}], connect: {attempts: 2}, ejection: {failures: 1, maxShare: 100}}
`
	n := start(t, services)
	d, reason := n.Router.Table().Decide(&routing.Input{Listener: "web", Client: netip.MustParseAddr("127.0.0.1")})
	if reason != routing.OK {
		t.Fatal(reason)
	}
	err := fmt.Errorf("connect: %w", syscall.EADDRNOTAVAIL)
	tried := map[*endpoint.Endpoint]bool{}
	s, _ := n.Router.Table().Service("shop")
	f := n.flows.get("web", "shop")
	p := &plan{flow: f, path: newPath(f, s.Spec(), nil), decision: d}
	end := netio.OK
	for failed := error(nil); end == netio.OK; failed = err {
		if _, end = p.Next(nil, failed); end == netio.OK {
			tried[p.decision.Endpoint()] = true
		}
	}
	if end != netio.LimitPorts || len(tried) != 2 {
		t.Errorf("it ends with %s after %d endpoints", end, len(tried))
	}
	for e := range tried {
		if !e.Ready(time.Now()) || e.Active() != 0 {
			t.Errorf("%v: ready %v, %d connections", e.Addr, e.Ready(time.Now()), e.Active())
		}
	}
}
