package dataplane

import (
	"fmt"
	"net"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
	"penstock/routing/endpoint"
)

// Each endpoint is checked at the port that its tag names, at healthCheck.port without the
// tag, and so is healthy although nothing listens at its own port.
func TestHealthChecksAtOtherPorts(t *testing.T) {
	t.Parallel()
	web := nodetest.NamedServer(t, "status")
	_, port, err := net.SplitHostPort(web)
	if err != nil {
		t.Fatal(err)
	}
	const service = `
kind: Service
name: db
spec:
  protocol: mysql
  tls: {insecureSkipVerify: true}
  proxyProtocol: {send: v2}
  healthCheck: {type: http, path: /status, interval: 100ms, %s}
  endpoints:
  - {address: "127.0.0.1:1", tags: {status_port: %q}}
  - {address: "127.0.0.1:2", tags: {status_port: none}}
`
	n := start(t, fmt.Sprintf(service, "portTag: status_port, port: 3", port))
	want := func(what string, healths ...endpoint.Health) {
		t.Helper()
		testkit.WaitFor(t, what, func() bool {
			s, _ := n.Router.Table().Service("db")
			for i, m := range s.Members() {
				if m.Health() != healths[i] {
					return false
				}
			}
			return true
		})
	}
	want("the first is healthy by its tag", endpoint.Healthy, endpoint.Unhealthy)
	n.mustApply(t, fmt.Sprintf(service, "port: "+port, port)[1:])
	want("both are healthy by the port", endpoint.Healthy, endpoint.Healthy)
	n.mustApply(t, fmt.Sprintf(service, "portTag: other", port)[1:])
	want("neither is at its own port", endpoint.Unhealthy, endpoint.Unhealthy)
}
