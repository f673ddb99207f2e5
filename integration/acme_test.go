package integration

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

// The ports of the listeners that pebble checks names at, the same on all nodes.
const (
	acmeTLSPort  = "9443"
	acmeHTTPPort = "9080"
)

// acmeEdge returns the listeners of a test: one that terminates TLS with these
// certificates, and one whose requests are routed one by one.
func acmeEdge(backend, certificates string) string {
	return service("shop", []string{backend}, "protocol: http") +
		listenerAt("edge", ":"+acmeTLSPort, "protocol: tls", "service: shop",
			"tls: {mode: terminate, certificateRefs: ["+certificates+"]}") +
		listenerAt("plain", ":"+acmeHTTPPort, "service: shop", "tags: {protocol: http}") + `---
kind: MeshHTTPRoute
name: shop
spec:
  to:
  - targetRef: {kind: MeshService, name: shop}
    rules:
    - {matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [{kind: MeshService, name: shop}]}}
`
}

// served returns the certificate that a node serves for a name; nil: none that the
// roots verify.
func served(ip, name string, roots *x509.CertPool) *x509.Certificate {
	dialer := &net.Dialer{Timeout: testkit.Patience}
	c, err := tls.DialWithDialer(dialer, "tcp", net.JoinHostPort(ip, acmeTLSPort), &tls.Config{ServerName: name, RootCAs: roots})
	if err != nil {
		return nil
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

// waitServed waits until every node serves the same certificate for a name, and
// returns it.
func (f *cluster) waitServed(name string, roots *x509.CertPool) *x509.Certificate {
	f.t.Helper()
	var leaf *x509.Certificate
	testkit.WaitFor(f.t, "all nodes to serve one certificate for "+name, func() bool {
		leaf = nil
		for _, m := range f.up() {
			next := served(m.ip, name, roots)
			if next == nil || leaf != nil && !leaf.Equal(next) {
				return false
			}
			leaf = next
		}
		return true
	})
	return leaf
}

// startACME starts a cluster and an authority that checks names at a node that does
// not lead.
func startACME(t *testing.T, cfg pebbleConfig) (*cluster, *pebble, *member) {
	t.Helper()
	cfg.tlsPort, cfg.httpPort = 9443, 9080
	p := startPebble(t, cfg)
	f := startCluster(t, 3)
	leader := f.waitLeader()
	follower := f.members[0]
	if follower == leader {
		follower = f.members[1]
	}
	p.zone.point(follower.ip)
	return f, p, follower
}

// An authority checks the names at any node, by both challenges, and every node
// serves what it issues. Nonces that it refuses are no failure.
func TestACMECertificatesAreIssuedToTheCluster(t *testing.T) {
	t.Parallel()
	f, p, follower := startACME(t, pebbleConfig{env: []string{"PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=20"}})
	follower.apply(acmeEdge(webServer(t, "shop"), "one, two") + p.spec("one", "one.example.com, www.example.com", "email: ops@example.com") +
		p.spec("two", "two.example.com", "challenge: http01", "keyType: rsa2048"))
	roots := p.root()
	one := f.waitServed("one.example.com", roots)
	if other := f.waitServed("www.example.com", roots); !other.Equal(one) {
		t.Error("two names of one certificate get different ones")
	}
	if two := f.waitServed("two.example.com", roots); two.PublicKeyAlgorithm != x509.RSA {
		t.Errorf("the key of two is %s", two.PublicKeyAlgorithm)
	}
	table := follower.must("get", "certificates")
	for _, name := range []string{"one", "two"} {
		if !strings.Contains(table, "issued") {
			t.Errorf("get certificates does not say that %s was issued:\n%s", name, table)
		}
		out := follower.must("get", "certificate", name, "-o", "yaml")
		if !strings.Contains(out, "state: issued") || !strings.Contains(out, "notAfter: ") || strings.Contains(out, "PRIVATE KEY") {
			t.Errorf("get of %s:\n%s", name, out)
		}
	}
	// Requests for other paths, hosts and tokens go their usual way.
	res, err := http.Get("http://" + follower.ip + ":" + acmeHTTPPort + "/.well-known/acme-challenge/other")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("a path that is no challenge gets %d instead of the service", res.StatusCode)
	}
	if n := f.members[0].metric("acme_expiry_timestamp_seconds", `certificate="one"`); n != float64(one.NotAfter.Unix()) {
		t.Errorf("the metric of the expiry is %v, want %v", n, one.NotAfter.Unix())
	}
}

// The leader is killed after it ordered and before the authority has checked. The
// next one goes on with the same order and account.
func TestACMEOrderOutlivesItsLeader(t *testing.T) {
	t.Parallel()
	f, p, follower := startACME(t, pebbleConfig{env: []string{"PEBBLE_VA_SLEEPTIME=8"}})
	leader := f.waitLeader()
	if leader == follower { // since startACME
		p.zone.point(f.members[2].ip)
	}
	leader.apply(acmeEdge(webServer(t, "shop"), "one") + p.spec("one", "one.example.com"))
	testkit.WaitFor(t, "the order to be in progress", func() bool {
		return strings.Contains(p.proc.Output(), "Pulled a task from the Tasks queue") // asked to check, and asleep
	})
	leader.kill()
	f.waitServed("one.example.com", p.root())
	log := p.proc.Output()
	if strings.Contains(log, "There are now 2 orders") || strings.Contains(log, "There are now 2 accounts") {
		t.Error("the next leader made another order or account")
	}
	if !strings.Contains(log, "There are now 1 orders") || !strings.Contains(log, "There are now 1 accounts") {
		t.Error("pebble's log says nothing of orders and accounts")
	}
}

// A name that cannot be checked is told in status, log and metrics, and the
// certificate is issued once it can be. An account outside of ACME is bound.
func TestACMEFailuresAreToldAndOvercome(t *testing.T) {
	t.Parallel()
	const secret = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
	f, p, follower := startACME(t, pebbleConfig{
		env: []string{"PEBBLE_VA_NOSLEEP=1"}, external: map[string]string{"kid-1": secret},
	})
	p.zone.point("127.0.0.9") // nobody listens there
	account := "externalAccount: {kid: kid-1, hmac: " + secret + "}"
	follower.apply(acmeEdge(webServer(t, "shop"), "one") + p.spec("one", "one.example.com", account))
	testkit.WaitFor(t, "status to tell of the failure", func() bool {
		return strings.Contains(follower.must("status"), "Certificate/one: failed, 1 attempts failed")
	})
	if !strings.Contains(follower.must("status"), "one.example.com by tls-alpn-01") {
		t.Errorf("status does not name the challenge:\n%s", follower.must("status"))
	}
	testkit.WaitFor(t, "another node to count the failure", func() bool {
		return f.members[0].metric("acme_failures", `certificate="one"`) == 1
	})
	p.zone.point(follower.ip)
	follower.apply(p.spec("one", "one.example.com", account, "email: ops@example.com")) // other settings: tried at once
	f.waitServed("one.example.com", p.root())
	testkit.WaitFor(t, "status to be calm", func() bool { return !strings.Contains(follower.must("status"), "Certificate/one") })
	for _, m := range f.members {
		if strings.Contains(m.log(), secret) || strings.Contains(m.must("get", "certificates", "-o", "yaml"), secret) {
			t.Errorf("the key of the external account is in the log of %s or shown", m.name)
		}
	}
}

// A certificate is renewed at two thirds of its life; connections stay.
func TestACMERenewsWithoutAReconnect(t *testing.T) {
	t.Parallel()
	// A busy machine has a third of this to renew in time.
	f, p, follower := startACME(t, pebbleConfig{env: []string{"PEBBLE_VA_NOSLEEP=1"}, life: 60})
	follower.apply(service("echo", []string{testkit.Serve(t, echo)}) + listenerAt("edge", ":"+acmeTLSPort, "protocol: tls", "service: echo",
		"tls: {mode: terminate, certificateRefs: [one]}") + p.spec("one", "one.example.com"))
	roots := p.root()
	first := f.waitServed("one.example.com", roots)
	held := dialTLS(t, net.JoinHostPort(follower.ip, acmeTLSPort), &tls.Config{ServerName: "one.example.com", RootCAs: roots})
	roundTrip(t, held, "before")
	var second *x509.Certificate
	testkit.WaitFor(t, "the renewal", func() bool {
		second = served(follower.ip, "one.example.com", roots)
		return second != nil && !second.Equal(first)
	})
	if !second.NotBefore.Before(first.NotAfter) {
		t.Errorf("renewed at %v, after the expiry at %v", second.NotBefore, first.NotAfter)
	}
	roundTrip(t, held, "after")
}

// On a passthrough listener only the check of a name that waits for it is answered
// here; everything else, an endpoint's own ACME too, reaches the endpoint.
func TestACMEAnswersOnPassthroughListeners(t *testing.T) {
	t.Parallel()
	f, p, follower := startACME(t, pebbleConfig{env: []string{"PEBBLE_VA_NOSLEEP=1"}})
	own := newAuthority(t, "endpoint").issue("one.example.com")
	config := own.server()
	config.NextProtos = []string{"acme-tls/1", "h2"}
	follower.apply(service("tls", []string{tlsNamed(t, "b", config)}) +
		listenerAt("pass", ":"+acmeTLSPort, "protocol: tls", "service: tls") + p.spec("one", "one.example.com"))
	testkit.WaitFor(t, "the certificate", func() bool {
		return strings.Contains(follower.must("get", "certificate", "one", "-o", "yaml"), "state: issued")
	})
	for _, m := range f.members {
		for _, protocol := range []string{"acme-tls/1", "h2"} {
			config := &tls.Config{ServerName: "one.example.com", InsecureSkipVerify: true, NextProtos: []string{protocol}}
			testkit.WaitFor(t, protocol+" at "+m.name+" to reach the endpoint", func() bool { // once that node has the certificate as well
				c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", net.JoinHostPort(m.ip, acmeTLSPort))
				if err != nil {
					return false
				}
				defer c.Close()
				leaf := c.(*tls.Conn).ConnectionState().PeerCertificates[0]
				return bytes.Equal(leaf.Raw, own.TLS.Certificate[0])
			})
		}
	}
}
