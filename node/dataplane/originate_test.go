package dataplane

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
	"penstock/routing"
)

// originating returns the resources of a plain listener with TLS to a backend, which is
// the endpoint of a Service with tls of its own, or what is given.
func originating(b *nodetest.Backend, originate, service string) string {
	return fmt.Sprintf(`
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", tls: {originate: {%s}}, service: apps}
---
kind: Service
name: apps
spec: {%s endpoints: [{address: %q}]}
`, originate, service, b.At())
}

// A program without TLS gets mutual TLS, by the listener's settings in place of the
// Service's; what does not verify gets nothing.
func TestAPlainListenerOriginatesMutualTLS(t *testing.T) {
	t.Parallel()
	ca, other := certs.NewCA("test CA"), certs.NewCA("other CA")
	seen := make(chan int64, 16)
	b := nodetest.ServeBackend(t, "b", &tls.Config{
		Certificates: []tls.Certificate{ca.Issue("backend.example").TLS},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool,
		VerifyConnection: func(s tls.ConnectionState) error {
			seen <- s.PeerCertificates[0].SerialNumber.Int64()
			return nil
		},
	})
	mine := fmt.Sprintf("ca: %q, certificateRef: me, serverName: backend.example", ca.PEM)
	wrong := fmt.Sprintf("tls: {ca: %q},", other.PEM) // the Service's own would fail
	me := ca.Issue("web")
	n := start(t, originating(b, mine, wrong)+nodetest.Certificate("me", me))
	shown := func() int64 {
		t.Helper()
		if _, to := nodetest.Dial(t, n.at(t, "edge")); to != "b" {
			t.Fatalf("came to %q", to)
		}
		return <-seen
	}
	first := shown()
	n.mustApply(t, nodetest.Certificate("me", ca.Issue("web"))[5:])
	if second := shown(); second == first {
		t.Error("the next connection shows the old certificate")
	}
	e := n.Router.Table().Explain(&routing.Input{Listener: "edge"}, time.Now())
	if e.Reason != routing.OK || !strings.Contains(e.Text(), "tls.originate") {
		t.Errorf("explain: %s", e.Text())
	}
	// The Service alone would be right now; the listener's settings win.
	right := fmt.Sprintf("tls: {%s},", mine)
	for what, text := range map[string]string{
		"another's CA":          originating(b, fmt.Sprintf("ca: %q, certificateRef: me, serverName: backend.example", other.PEM), right),
		"another identity":      originating(b, fmt.Sprintf("ca: %q, certificateRef: me, verify: {dns: [x.example]}", ca.PEM), right),
		"no client certificate": originating(b, fmt.Sprintf(`ca: %q, serverName: backend.example, minVersion: "1.2"`, ca.PEM), right),
	} {
		n.mustApply(t, text)
		if got := nodetest.Attempt(n.at(t, "edge")); got != "" {
			t.Errorf("%s: %q came back", what, got)
		}
	}
	const refused = `penstock_connections_total{listener="edge",result="upstream_tls",service="apps"}`
	testkit.WaitFor(t, "refusals by TLS", func() bool { return n.metric(t, refused) >= "2" })
	n.mustApply(t, strings.Replace(originating(b, "", right), "tls: {originate: {}}, ", "", 1))
	if _, to := nodetest.Dial(t, n.at(t, "edge")); to != "b" {
		t.Errorf("without originate came to %q", to)
	}
}

// Nothing is sent in the clear to an endpoint that does not speak TLS.
func TestOriginateNeverFallsBackToPlainText(t *testing.T) {
	t.Parallel()
	ca := certs.NewCA("test CA")
	b := nodetest.NewBackend(t, "b")
	n := start(t, originating(b, fmt.Sprintf("ca: %q, serverName: backend.example", ca.PEM), ""))
	if got := nodetest.Attempt(n.at(t, "edge")); got != "" {
		t.Errorf("%q came back", got)
	}
	testkit.WaitFor(t, "the reason", func() bool { return strings.Contains(n.lines.String(), "reason=upstream_tls") })
}

// What would be sent with other TLS than the listener's is closed, with a reason.
func TestOriginateConflictsAreClosed(t *testing.T) {
	t.Parallel()
	ca := certs.NewCA("test CA")
	for what, text := range map[string]string{
		"a route into the mesh": `---
kind: Service
name: hop
spec: {mesh: true, endpoints: [{address: "127.0.0.1:1"}]}
---
kind: MeshTCPRoute
name: away
spec:
  targetRef: {kind: Mesh}
  to: [{targetRef: {kind: MeshService, name: apps}, rules: [{default: {backendRefs: [{kind: MeshService, name: hop}]}}]}]
`,
		"requests one by one": "---\nkind: MeshHTTPRoute\nname: away\nspec:\n  targetRef: {kind: Mesh}\n  to:\n" +
			"  - targetRef: {kind: MeshService, name: apps}\n    rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {}}]\n",
	} {
		b := nodetest.NewBackend(t, "b")
		change := func(c *Config) { c.Tags = map[string]string{"protocol": "http"} }
		n := start(t, originating(b, fmt.Sprintf("ca: %q", ca.PEM), "protocol: http,")+text, change)
		if got := nodetest.Attempt(n.at(t, "edge")); got != "" {
			t.Errorf("%s: %q came back", what, got)
		}
		testkit.WaitFor(t, what, func() bool { return strings.Contains(n.lines.String(), "reason=originate_conflict") })
		if e := n.Router.Table().Explain(&routing.Input{Listener: "edge"}, time.Now()); e.Reason != routing.OriginateConflict {
			t.Errorf("%s: explain says %s", what, e.Text())
		}
	}
}
