package xds

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/internal/testkit"
	"penstock/node/xds/snapshottest"
)

func stateOf(t *testing.T, commonName string, uris ...string) tls.ConnectionState {
	t.Helper()
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: commonName}}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		leaf.URIs = append(leaf.URIs, u)
	}
	return tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
}

func TestIdentityOfACertificate(t *testing.T) {
	for _, c := range []struct {
		name string
		uris []string
		want string // the identity, or a part of the error
		ok   bool
	}{
		{"web", nil, "web", true},
		{"web", []string{"spiffe://mesh/web"}, "spiffe://mesh/web", true},
		{"", []string{"spiffe://mesh.example/a/b-1/c_D"}, "spiffe://mesh.example/a/b-1/c_D", true},
		{"", []string{"spiffe://mesh"}, "spiffe://mesh", true},
		{"", nil, "neither", false},
		{"web", []string{"spiffe://mesh/web", "spiffe://mesh/shop"}, "2 URIs", false},
		{"web", []string{"https://mesh/web"}, "scheme", false},
		{"web", []string{"spiffe://"}, "trust domain", false},
		{"web", []string{"spiffe://Mesh/web"}, "trust domain", false},
		{"web", []string{"spiffe://mesh:80/web"}, "trust domain", false},
		{"web", []string{"spiffe://user@mesh/web"}, "alone", false},
		{"web", []string{"spiffe://mesh/web?x=1"}, "alone", false},
		{"web", []string{"spiffe://mesh/web#x"}, "alone", false},
		{"web", []string{"spiffe://mesh/web/"}, `segment ""`, false},
		{"web", []string{"spiffe://mesh//web"}, `segment ""`, false},
		{"web", []string{"spiffe://mesh/../web"}, `segment ".."`, false},
		{"web", []string{"spiffe://mesh/w%65b"}, `segment "w%65b"`, false},
		{"web", []string{"spiffe://mesh/" + strings.Repeat("x", maxSPIFFE)}, "2048 bytes", false},
	} {
		state := stateOf(t, c.name, c.uris...)
		id, err := identityOf(&state)
		if c.ok != (err == nil) || c.ok && id.String() != c.want || !c.ok && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, %v, want %q", c.name, c.uris, id, err, c.want)
		}
	}
	unverified := stateOf(t, "web")
	unverified.VerifiedChains = nil
	if _, err := identityOf(&unverified); err == nil {
		t.Error("an unverified certificate counts")
	}
}

// secured makes the connections of a listener such with a finished handshake.
type secured struct {
	net.Listener
	state tls.ConnectionState
}

type securedConn struct {
	net.Conn
	state tls.ConnectionState
}

func (c *securedConn) ConnectionState() tls.ConnectionState { return c.state }

func (l *secured) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &securedConn{c, l.state}, nil
}

// serveAs serves on another port, where all clients have a certificate.
func (ts *testServer) serveAs(state tls.ConnectionState) *testServer {
	ts.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		ts.t.Fatal(err)
	}
	go func() {
		if err := ts.Serve(&secured{l, state}); err != nil {
			ts.t.Error(err)
		}
	}()
	return &testServer{Server: ts.Server, t: ts.t, address: l.Addr().String(), world: ts.world}
}

func TestTheCertificateDecides(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.Plain = false })
	if err := ts.ask(ts.dial(), cdsRequest()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without TLS: %v", err)
	}
	web := ts.serveAs(stateOf(t, "web"))
	if err := web.ask(web.dial(), cdsRequest()); err != nil {
		t.Errorf("web: %v", err)
	}
	shop := ts.serveAs(stateOf(t, "shop"))
	if err := shop.ask(shop.dial(), cdsRequest()); status.Code(err) != codes.PermissionDenied ||
		!strings.Contains(err.Error(), "no service has the identity shop") {
		t.Errorf("shop: %v", err)
	}
	two := ts.serveAs(stateOf(t, "web", "spiffe://a/b", "spiffe://a/c"))
	if err := two.ask(two.dial(), cdsRequest()); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "2 URIs") {
		t.Errorf("two URIs: %v", err)
	}
	contradiction := cdsRequest()
	contradiction.Node.Cluster = "shop"
	if err := web.ask(web.dial(), contradiction); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), `"shop"`) {
		t.Errorf("another node.cluster: %v", err)
	}
	if ts.refused("identity") != 4 {
		t.Errorf("%+v", ts.Counts().Refused)
	}
}

func TestTheIdentityLosesItsService(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.Plain = false })
	s := ts.serveAs(stateOf(t, "web")).ads()
	if err := s.Send(cdsRequest()); err != nil {
		t.Fatal(err)
	}
	must[*discoveryv3.DiscoveryResponse](t)(s.Recv())
	ts.set(func(w *snapshottest.World) { w.Identity("") })
	if _, err := s.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}

func TestStopSendsClientsToAnotherNode(t *testing.T) {
	ts := newTestServer(t, nil)
	s := ts.ads()
	if err := s.Send(cdsRequest()); err != nil {
		t.Fatal(err)
	}
	must[*discoveryv3.DiscoveryResponse](t)(s.Recv())
	go ts.Stop(t.Context())
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "stopping") {
		t.Error(err)
	}
}

// A proxy may connect a moment after its service was applied.
func TestAnIdentityWaitsForTheChangeThatNamesIt(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.Plain, c.Window, c.MaxWindow = false, time.Hour, time.Hour })
	first := ts.serveAs(stateOf(t, "web"))
	if err := first.ask(first.dial(), cdsRequest()); err != nil {
		t.Fatal(err)
	}
	ts.set(func(w *snapshottest.World) { w.Identity("shop") }) // known in an hour
	s := ts.serveAs(stateOf(t, "shop")).ads()
	if err := s.Send(cdsRequest()); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "the second stream", func() bool { return ts.Counts().Streams == 2 })
	ts.Update(ts.cfg.Build())
	if _, err := s.Recv(); err != nil {
		t.Errorf("the proxy was refused: %v", err)
	}
}
