package dataplane

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
	"penstock/routing"
)

func serial(c *tls.Conn) int64 { return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64() }

// terminating returns the resources of a listener with a certificate for one name
// and one for a wildcard.
func terminating(b *nodetest.Backend, extra string) string {
	return fmt.Sprintf(`
kind: Listener
name: edge
spec:
  address: 127.0.0.1:0
  protocol: tls
  tls: {mode: terminate, certificateRefs: [one, many]%s}
  service: apps
---
kind: Service
name: apps
spec: {endpoints: [{address: "%s"}]}
`, extra, b.At())
}

// TestCertificatesAreReplacedUnderConnections: new handshakes use the new
// certificate, established connections continue.
func TestCertificatesAreReplacedUnderConnections(t *testing.T) {
	ca := certs.NewCA("test CA")
	b := nodetest.NewBackend(t, "b")
	cert := ca.Issue("one.example")
	wild := ca.Issue("*.many.example")
	n := start(t, terminating(b, "")+nodetest.Certificate("one", cert)+nodetest.Certificate("many", wild))
	edge := n.at(t, "edge")
	config := &tls.Config{RootCAs: ca.Pool, ServerName: "one.example"}
	first, name, err := nodetest.DialTLS(t, edge, config)
	if err != nil || name != "b" {
		t.Fatalf("%q, %v", name, err)
	}
	if other, _, err := nodetest.DialTLS(t, edge, &tls.Config{
		RootCAs: ca.Pool, ServerName: "x.many.example",
	}); err != nil || serial(other) == serial(first) {
		t.Errorf("the wildcard's name: %v", err)
	}
	cert = ca.Issue("one.example")
	n.mustApply(t, nodetest.Certificate("one", cert)[5:])
	second, _, err := nodetest.DialTLS(t, edge, config)
	if err != nil {
		t.Fatal(err)
	}
	if serial(second) == serial(first) {
		t.Error("the old certificate is still shown")
	}
	for _, c := range []net.Conn{first, second} {
		nodetest.Echo(t, c)
	}
}

// TestUnknownNamesGetNoCertificate: a hello with an unknown, missing or
// invalid server name is refused with a reason.
func TestUnknownNamesGetNoCertificate(t *testing.T) {
	ca := certs.NewCA("test CA")
	b := nodetest.NewBackend(t, "b")
	cert := ca.Issue("one.example")
	wild := ca.Issue("*.many.example")
	n := start(t, terminating(b, "")+nodetest.Certificate("one", cert)+nodetest.Certificate("many", wild))
	for name, reason := range map[string]string{
		"two.example":  "no_certificate",
		"many.example": "no_certificate",
		"":             "no_sni",
		"one..example": "bad_sni",
	} {
		if _, _, err := nodetest.DialTLS(t, n.at(t, "edge"), &tls.Config{InsecureSkipVerify: true, ServerName: name}); err == nil {
			t.Errorf("%q was accepted", name)
		}
		testkit.WaitFor(t, "reason "+reason, func() bool { return strings.Contains(n.lines.String(), "reason="+reason) })
	}
}

func TestClientCertificates(t *testing.T) {
	ca, other := certs.NewCA("test CA"), certs.NewCA("test CA")
	b := nodetest.NewBackend(t, "b")
	cert := ca.Issue("one.example")
	good := ca.Issue("client").TLS
	bad := other.Issue("client").TLS
	auth := ", clientAuth: {mode: require, ca: " + fmt.Sprintf("%q", ca.PEM) + "}"
	text := strings.Replace(terminating(b, auth), "[one, many]", "[one]", 1)
	n := start(t, text+nodetest.Certificate("one", cert))
	for what, c := range map[string]struct {
		certs []tls.Certificate
		ok    bool
	}{"none": {nil, false}, "ours": {[]tls.Certificate{good}, true}, "another's": {[]tls.Certificate{bad}, false}} {
		_, _, err := nodetest.DialTLS(t, n.at(t, "edge"), &tls.Config{
			RootCAs: ca.Pool, ServerName: "one.example",
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // whatever CAs the server lists
				return &slices.Concat(c.certs, []tls.Certificate{{}})[0], nil
			},
		})
		if (err == nil) != c.ok {
			t.Errorf("certificate %s: %v", what, err)
		}
	}
	for _, reason := range []string{"handshake_no_certificate", "handshake_bad_certificate"} {
		testkit.WaitFor(t, reason+" to be counted", func() bool {
			return n.metric(t, `penstock_connections_total{listener="edge",result="`+reason+`",service=""}`) == "1"
		})
	}
	testkit.WaitFor(t, "the log's lines", func() bool { return strings.Count(n.lines.String(), "reason=handshake_") == 2 })
	if strings.Contains(n.lines.String(), " tls=0x") {
		t.Errorf("the log has a version of TLS for handshakes that failed:\n%s", n.lines.String())
	}
	if text := n.lines.String(); strings.Contains(text, "protocol violation: tls: client didn't") {
		t.Errorf("a missing certificate was reported as a protocol violation:\n%s", text)
	}
}

func TestSessionsAreResumedUntilClientAuthChanges(t *testing.T) {
	ca, other := certs.NewCA("test CA"), certs.NewCA("test CA")
	b := nodetest.NewBackend(t, "b")
	cert := ca.Issue("one.example")
	shown := nodetest.Certificate("one", cert)
	auth := func(a *certs.CA) string {
		return strings.Replace(terminating(b, ", clientAuth: {mode: request, ca: "+fmt.Sprintf("%q", a.PEM)+"}"),
			"[one, many]", "[one]", 1) + shown
	}
	n := start(t, auth(ca))
	config := &tls.Config{RootCAs: ca.Pool, ServerName: "one.example", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	edge := n.at(t, "edge")
	resumed := func() bool {
		t.Helper()
		c, _, err := nodetest.DialTLS(t, edge, config)
		if err != nil {
			t.Fatal(err)
		}
		return c.ConnectionState().DidResume
	}
	if resumed() || !resumed() {
		t.Error("the second connection is to resume the first one's session")
	}
	cert = ca.Issue("one.example")
	n.mustApply(t, nodetest.Certificate("one", cert)[5:])
	if !resumed() {
		t.Error("a new certificate caused a full handshake")
	}
	n.mustApply(t, auth(other))
	if resumed() {
		t.Error("a session was resumed although clientAuth changed")
	}
}

func TestTLSTowardsEndpoints(t *testing.T) {
	ca, other := certs.NewCA("test CA"), certs.NewCA("test CA")
	pair := ca.Issue("127.0.0.1", "backend.example").TLS
	clientCert := ca.Issue("penstock")
	b := nodetest.ServeBackend(t, "b", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool,
	})
	service := func(a *certs.CA, more string) string {
		return strings.Replace(nodetest.OneService(b), "spec: {endpoints", fmt.Sprintf("spec: {tls: {ca: %q%s}, endpoints", a.PEM, more), 1)
	}
	n := start(t, service(ca, ", certificateRef: me")+nodetest.Certificate("me", clientCert))
	if _, name := nodetest.Dial(t, n.at(t, "edge")); name != "b" {
		t.Errorf("came to %q", name)
	}
	for what, text := range map[string]string{
		"another's CA":          service(other, ", certificateRef: me"),
		"another name":          service(ca, ", certificateRef: me, serverName: elsewhere.example"),
		"no client certificate": service(ca, ", minVersion: \"1.2\""),
	} {
		n.mustApply(t, text)
		if got := nodetest.Attempt(n.at(t, "edge")); got != "" {
			t.Errorf("%s: %q came back", what, got)
		}
	}
	testkit.WaitFor(t, "three refusals", func() bool { return strings.Count(n.lines.String(), "reason=upstream") >= 3 })
	n.mustApply(t, service(ca, ", certificateRef: me, serverName: backend.example"))
	if _, name := nodetest.Dial(t, n.at(t, "edge")); name != "b" {
		t.Errorf("by the name given: came to %q", name)
	}
}

func TestPassthroughRoutesByName(t *testing.T) {
	ca := certs.NewCA("test CA")
	one := ca.Issue("one.example").TLS
	many := ca.Issue("x.many.example", "y.x.many.example").TLS
	a := nodetest.ServeBackend(t, "a", &tls.Config{Certificates: []tls.Certificate{one}})
	b := nodetest.ServeBackend(t, "b", &tls.Config{Certificates: []tls.Certificate{many}})
	n := start(t, fmt.Sprintf(`
kind: Listener
name: edge
spec:
  address: 127.0.0.1:0
  protocol: tls
  hosts:
  - {names: [one.example], service: a}
  - {names: ["*.many.example"], service: b}
---
kind: Service
name: a
spec: {endpoints: [{address: "%s"}]}
---
kind: Service
name: b
spec: {endpoints: [{address: "%s"}]}
`, a.At(), b.At()))
	edge := n.at(t, "edge")
	for name, want := range map[string]string{"one.example": "a", "x.many.example": "b", "y.x.many.example": "b", "ONE.example": "a"} {
		if _, got, err := nodetest.DialTLS(t, edge, &tls.Config{RootCAs: ca.Pool, ServerName: name}); err != nil || got != want {
			t.Errorf("%s came to %q, %v; want %q", name, got, err, want)
		}
		in := routing.Input{Listener: "edge", ServerName: name, HasServerName: true}
		if e := n.Router.Table().Explain(&in, time.Now()); e.Service != want {
			t.Errorf("explain of %s: %+v", name, e)
		}
	}
	if _, _, err := nodetest.DialTLS(t, edge, &tls.Config{RootCAs: ca.Pool, ServerName: "two.example"}); err == nil {
		t.Error("a name without a rule was accepted")
	}
	testkit.WaitFor(t, "the reason", func() bool { return strings.Contains(n.lines.String(), "sni=two.example reason=no_route") })
}
