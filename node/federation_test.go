package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	gofederation "github.com/spiffe/go-spiffe/v2/federation"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/node/trust"
	"penstock/routing/resource"
)

// authoritiesOf returns the certificate of a CA.
func authoritiesOf(t *testing.T, ca *certs.CA) []*x509.Certificate {
	t.Helper()
	list, err := resource.ParseCertificates(ca.PEM)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// bundlePEM returns the cluster's own trust bundle.
func (n *testNode) bundlePEM(t *testing.T) string {
	t.Helper()
	roots, _, err := n.ownBundle()
	if err != nil {
		t.Fatal(err)
	}
	return string(trust.CertificatesPEM(roots...))
}

// rogue returns a certificate that the cluster's CA has signed for an ID of another
// trust domain, which no command of the cluster would.
func (n *testNode) rogue(t *testing.T, id string) tls.Certificate {
	t.Helper()
	secret, _, ok, err := record.Unseal[record.CASecret](n.cluster.Identity().Keyring(), n.store.Snapshot(), record.KeyCA)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	ca, err := trust.ParseCA(secret.CA)
	if err != nil {
		t.Fatal(err)
	}
	key, csr, err := trust.NewWorkloadRequest()
	if err != nil {
		t.Fatal(err)
	}
	public, err := trust.CheckProxyRequest(csr)
	if err != nil {
		t.Fatal(err)
	}
	uri, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.IssueSVID(public, trust.SVID{ID: uri, TTL: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(trust.CertificatesPEM(leaf.Raw), key)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// awaitBundle waits until a trust bundle is in force.
func (n *testNode) awaitBundle(t *testing.T, name string) {
	t.Helper()
	testkit.WaitFor(t, "the bundle of "+name, func() bool {
		set, _ := n.bundles.Current()
		return set.Get(name) != nil
	})
}

// Two clusters get each other's bundles, one by https_web and one by https_spiffe. A
// workload of one connects to a service behind the other, towards which that one acts
// in the name of its own; and nobody gets further by an ID that the wrong CA signed.
func TestTwoClustersFederate(t *testing.T) {
	t.Run("IDs", func(t *testing.T) { federate(t, "", "") })
	t.Run("names", func(t *testing.T) { federate(t, "prod.example.com", "partner_2.example") })
}

func federate(t *testing.T, nearDomain, farDomain string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	web := certs.NewCA("web")
	certFile, keyFile, err := web.Issue("127.0.0.1").WriteFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	near := founder(t, Config{Name: "near", TrustDomain: nearDomain, HTTPCert: certFile, HTTPKey: keyFile})
	far := founder(t, Config{Name: "far", TrustDomain: farDomain, BundleEndpoint: "127.0.0.1:0"})
	us, them := cmp.Or(nearDomain, near.cluster.ClusterID()), cmp.Or(farDomain, far.cluster.ClusterID())

	edge, apps := certs.NewCA("edge"), nodetest.NewBackend(t, "apps")
	near.mustApply(t, nodetest.Certificate("edge", edge.Issue("edge.example"))+"---\n"+nodetest.OneService(apps)+fmt.Sprintf(`---
kind: TrustBundle
name: far
spec:
  trustDomain: "%[1]s"
  bundle: %[2]q
  endpoint: {url: "https://%[3]s", profile: https_spiffe, spiffeID: "spiffe://%[1]s/penstock/bundle"}
---
kind: Listener
name: secured
spec:
  address: "127.0.0.1:0"
  protocol: tls
  service: apps
  tls: {mode: terminate, certificateRefs: [edge], clientAuth: {trustDomains: [cluster, far]}}
---
kind: TrafficPermission
name: web-of-far
spec: {from: [{identities: ["spiffe://%[1]s/web"]}], to: [{services: [apps]}], action: allow}
`, them, far.bundlePEM(t), far.BundleAddr()))
	testkit.WaitFor(t, "near to fetch the bundle by https_spiffe", func() bool {
		_, fetched := near.fetched("far")
		return fetched
	})
	dial := func(cert tls.Certificate) error {
		c, _, err := nodetest.DialTLS(t, near.at(t, "secured"), &tls.Config{
			RootCAs: edge.Pool, ServerName: "edge.example",
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
		})
		if err == nil {
			nodetest.Echo(t, c)
			c.Close()
		}
		return err
	}
	webOfFar, _ := issue(ctx, t, far.client, "/web")
	otherOfFar, _ := issue(ctx, t, far.client, "/other")
	webOfNear, _ := issue(ctx, t, near.client, "/web")
	if err := dial(webOfFar); err != nil {
		t.Errorf("a workload of the other cluster: %v", err)
	}
	for what, c := range map[string]struct {
		cert   tls.Certificate
		reason string
	}{
		"another workload of the other cluster":         {otherOfFar, "permission_denied"},
		"a workload of this cluster with the same path": {webOfNear, "permission_denied"},
		"an ID of this cluster by the other's CA":       {far.rogue(t, "spiffe://"+us+"/web"), "handshake_bad_certificate"},
		"an ID of the other cluster by this one's CA":   {near.rogue(t, "spiffe://"+them+"/web"), "handshake_bad_certificate"},
		"an ID of a third trust domain":                 {far.rogue(t, "spiffe://third.example/web"), "handshake_bad_certificate"},
	} {
		before := strings.Count(near.lines.String(), "reason="+c.reason)
		if err := dial(c.cert); err == nil {
			t.Errorf("%s is admitted", what)
			continue
		}
		testkit.WaitFor(t, what+" refused as "+c.reason, func() bool { return strings.Count(near.lines.String(), "reason="+c.reason) > before })
	}

	// The other way: far trusts near by https_web, and verifies an endpoint of near.
	server, _ := issue(ctx, t, near.client, "/db")
	db := tlsEndpoint(t, server)
	impostor := tlsEndpoint(t, far.rogue(t, "spiffe://"+us+"/db"))
	far.mustApply(t, fmt.Sprintf(`kind: TrustBundle
name: near
spec:
  trustDomain: "%[1]s"
  endpoint: {url: "https://%[2]s/v1/bundle", profile: https_web, ca: %[3]q}
---
kind: Service
name: db
spec:
  endpoints: [{address: "%[4]s"}]
  tls: {trustDomains: [near, cluster], verify: {spiffe: ["spiffe://%[1]s/db"]}}
---
kind: Service
name: impostor
spec:
  endpoints: [{address: "%[5]s"}]
  tls: {trustDomains: [near, cluster], verify: {spiffe: ["spiffe://%[1]s/db"]}}
---
kind: Listener
name: db
spec: {address: "127.0.0.1:0", service: db}
---
kind: Listener
name: impostor
spec: {address: "127.0.0.1:0", service: impostor}
`, us, near.HTTPAddr(), web.PEM, db, impostor))
	far.awaitBundle(t, "near")
	conn, name := nodetest.Dial(t, far.at(t, "db"))
	if name != "db" {
		t.Errorf("the endpoint is %q", name)
	}
	conn.Close()
	refusedConn, err := net.Dial("tcp", far.at(t, "impostor"))
	if err != nil {
		t.Fatal(err)
	}
	defer refusedConn.Close()
	testkit.WaitFor(t, "the refused endpoint", func() bool { return strings.Contains(far.lines.String(), "reason=upstream_tls") })

	if w := strings.Join(append(near.mustStatus(t).Warnings, far.mustStatus(t).Warnings...), "\n"); strings.Contains(w, "TrustBundle") {
		t.Errorf("warnings: %s", w)
	}
	far.waitMetric(t, `penstock_trust_bundle_authorities{bundle="near"}`, "1")
}

// fetched returns the authorities of a TrustBundle, and whether they come from its
// endpoint.
func (n *testNode) fetched(name string) (authorities int, fetched bool) {
	for _, s := range n.federation.Status() {
		if s.Name == name {
			return s.Authorities, strings.HasPrefix(s.Source, "https://")
		}
	}
	return 0, false
}

// tlsEndpoint starts a server that shows a certificate and says "db".
func tlsEndpoint(t *testing.T, cert tls.Certificate) string {
	t.Helper()
	return testkit.Serve(t, func(raw net.Conn) {
		defer raw.Close()
		raw.SetDeadline(time.Now().Add(testkit.Patience))
		c := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{cert}})
		if _, err := c.Write([]byte("db\n")); err == nil {
			_, _ = c.Read(make([]byte, 1))
		}
	})
}

// go-spiffe gets a cluster's bundle by both profiles, and the next CA in it.
func TestClusterServesItsBundle(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	web := certs.NewCA("web")
	certFile, keyFile, err := web.Issue("127.0.0.1").WriteFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := founder(t, Config{Name: "n1", HTTPCert: certFile, HTTPKey: keyFile, BundleEndpoint: "127.0.0.1:0"})
	td := spiffeid.RequireTrustDomainFromString(n.cluster.ClusterID())
	first, err := spiffebundle.Parse(td, mustBundle(t, n))
	if err != nil {
		t.Fatal(err)
	}
	known := x509bundle.FromX509Authorities(td, first.X509Authorities())
	id := spiffeid.RequireFromPath(td, "/penstock/bundle")
	fetch := func() (byName, byID *spiffebundle.Bundle) {
		byName, err := gofederation.FetchBundle(ctx, td, "https://"+n.HTTPAddr()+"/v1/bundle", gofederation.WithWebPKIRoots(web.Pool))
		if err != nil {
			t.Fatal(err)
		}
		testkit.WaitFor(t, "the bundle by https_spiffe", func() bool { // its certificate has to be issued first
			byID, err = gofederation.FetchBundle(ctx, td, "https://"+n.BundleAddr()+"/", gofederation.WithSPIFFEAuth(known, id))
			return err == nil
		})
		return byName, byID
	}
	byName, byID := fetch()
	if !byName.Equal(byID) || !byName.Equal(first) {
		t.Errorf("%v, %v, %v", byName, byID, first)
	}
	if _, err := rpc.Call[api.Empty](ctx, n.client, api.MethodRotate, api.RotateRequest{What: "ca"}); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "the next CA", func() bool {
		byName, byID = fetch() // who knows the previous bundle gets the next one
		before, _ := first.SequenceNumber()
		after, _ := byID.SequenceNumber()
		return len(byID.X509Authorities()) == 2 && after > before && byName.Equal(byID)
	})
	if got := n.metricTLS(t, web, "penstock_trust_bundle_served_total"); got == "0" || got == "" {
		t.Errorf("served %q", got)
	}
}

// metricTLS is metric by TLS.
func (n *testNode) metricTLS(t *testing.T, ca *certs.CA, series string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool}}}
	resp, err := client.Get("https://" + n.HTTPAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	return ""
}

// mustBundle returns the cluster's bundle as SPIFFE has it.
func mustBundle(t *testing.T, n *testNode) []byte {
	t.Helper()
	roots, sequence, err := n.ownBundle()
	if err != nil {
		t.Fatal(err)
	}
	text, err := trust.SPIFFEBundle(roots, sequence)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A program gets the bundles of the trust domains that its identity federates with, from
// an endpoint of go-spiffe, and each change of them.
func TestWorkloadGetsTheBundlesOfOtherTrustDomains(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	web, partner, next := certs.NewCA("web"), certs.NewCA("partner"), certs.NewCA("next")
	td := spiffeid.RequireTrustDomainFromString("partner.example")
	published := spiffebundle.FromX509Authorities(td, authoritiesOf(t, partner))
	published.SetSequenceNumber(1)
	handler, err := gofederation.NewHandler(td, published)
	if err != nil {
		t.Fatal(err)
	}
	outside := httptest.NewUnstartedServer(handler)
	outside.TLS = &tls.Config{Certificates: []tls.Certificate{web.Issue("127.0.0.1").TLS}}
	outside.StartTLS()
	defer outside.Close()

	socket := spiffeSocket(t)
	n := founder(t, Config{Name: "n1", SPIFFESocket: socket, withClients: true})
	bundle := func(label string) string {
		return fmt.Sprintf("kind: TrustBundle\nname: partner\nlabels: {n: %s}\nspec:\n  trustDomain: partner.example\n"+
			"  endpoint: {url: %q, profile: https_web, ca: %q}\n", label, outside.URL, web.PEM)
	}
	n.mustApply(t, bundle("a")+fmt.Sprintf("---\nkind: WorkloadIdentity\nname: web\n"+
		"spec: {spiffe: /web, federatesWith: [partner], selectors: {unix: {uid: [%d]}}}\n", os.Getuid()))
	address := workloadapi.WithAddr("unix://" + socket)
	watching, stop := context.WithCancel(ctx)
	pushed, ended := &contexts{}, make(chan error, 1)
	go func() { ended <- workloadapi.WatchX509Context(watching, pushed, address) }()
	defer func() { stop(); <-ended }()
	holds := func(ca *certs.CA) bool {
		bundles, err := workloadapi.FetchX509Bundles(ctx, address)
		if err != nil {
			t.Fatal(err)
		}
		return pushed.hold(td, authoritiesOf(t, ca)[0]) && has(bundles, td, authoritiesOf(t, ca)[0]) && bundles.Len() == 2
	}
	testkit.WaitFor(t, "the partner's bundle", func() bool { return holds(partner) })
	published.SetX509Authorities(authoritiesOf(t, next))
	published.SetSequenceNumber(2)
	n.mustApply(t, bundle("b")) // a change of the resource fetches at once
	testkit.WaitFor(t, "the partner's next bundle", func() bool { return holds(next) && !holds(partner) })

	// What is wrong is told, and the last bundle stays.
	published.SetSequenceNumber(1)
	n.mustApply(t, bundle("c"))
	testkit.WaitFor(t, "the warning", func() bool {
		return strings.Contains(strings.Join(n.mustStatus(t).Warnings, "\n"), "TrustBundle/partner: cannot fetch")
	})
	if !holds(next) {
		t.Error("the last bundle is not in use any more")
	}
}

// contexts keeps the last X509Context that a program was sent. (X509Source of go-spiffe
// v2.8.1 reads it without its lock.)
type contexts struct {
	last atomic.Pointer[workloadapi.X509Context]
}

func (c *contexts) OnX509ContextUpdate(next *workloadapi.X509Context) { c.last.Store(next) }

func (*contexts) OnX509ContextWatchError(error) {}

func (c *contexts) hold(td spiffeid.TrustDomain, authority *x509.Certificate) bool {
	last := c.last.Load()
	return last != nil && has(last.Bundles, td, authority)
}

func has(set *x509bundle.Set, td spiffeid.TrustDomain, authority *x509.Certificate) bool {
	b, err := set.GetX509BundleForTrustDomain(td)
	return err == nil && b.HasX509Authority(authority)
}

// A bundle cannot stand for the cluster's own trust domain.
func TestTrustBundleOfTheClusterItselfIsRefused(t *testing.T) {
	n := founder(t, Config{Name: "n1"})
	err := n.apply(t, fmt.Sprintf("kind: TrustBundle\nname: own\nspec: {trustDomain: %q, bundle: %q}\n", n.cluster.ClusterID(), certs.NewCA("ca").PEM))
	if err == nil || !strings.Contains(err.Error(), "refer to it as cluster") {
		t.Errorf("%v", err)
	}
}
