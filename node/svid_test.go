package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/node/workload"
)

// spiffeSocket returns the path of a socket; t.TempDir may be too long for one.
func spiffeSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "spiffe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "api.sock")
}

// spiffeClient dials listeners as a program with go-spiffe does. It does not use
// go-spiffe's X509Source, which reads its bundles without a lock (v2.8.1).
type spiffeClient struct {
	t    *testing.T
	held contexts
}

func newSPIFFEClient(t *testing.T, socket string) *spiffeClient {
	t.Helper()
	c, ended := &spiffeClient{t: t}, make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- workloadapi.WatchX509Context(ctx, &c.held, workloadapi.WithAddr("unix://"+socket)) }()
	t.Cleanup(func() { cancel(); <-ended })
	testkit.WaitFor(t, "an SVID", func() bool { return c.held.last.Load() != nil })
	return c
}

// dial connects to a listener that must have an ID, with that server name, and returns
// the serial number of what it presents.
func (c *spiffeClient) dial(addr, id, serverName string) (serial string, err error) {
	c.t.Helper()
	now := c.held.last.Load()
	config := tlsconfig.MTLSClientConfig(now.DefaultSVID(), now.Bundles, tlsconfig.AuthorizeID(spiffeid.RequireFromString(id)))
	config.ServerName = serverName
	conn, _, err := nodetest.DialTLS(c.t, addr, config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	nodetest.Echo(c.t, conn)
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// backendOf serves TLS with an identity of a node's cluster, for clients of the same.
func backendOf(t *testing.T, n *testNode, id string) *nodetest.Backend {
	t.Helper()
	hold, err := n.identities.Hold(workload.Identity{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hold.Release)
	current := func() (s *workload.SVID) {
		testkit.WaitFor(t, "the certificate of "+id, func() bool { s, _, err = hold.Get(); return err == nil })
		return s
	}
	current()
	return nodetest.ServeBackend(t, "b", &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		s, _, err := hold.Get()
		if err != nil {
			return nil, err
		}
		return &tls.Config{
			Certificates: []tls.Certificate{s.Cert}, ClientCAs: s.Roots, ClientAuth: tls.RequireAndVerifyClientCert,
			VerifyConnection: func(state tls.ConnectionState) error {
				if u := state.PeerCertificates[0].URIs; len(u) != 1 || !strings.HasSuffix(u[0].Path, "/edge") {
					return fmt.Errorf("the client is %v", u)
				}
				return nil
			},
		}, nil
	}})
}

func (n *testNode) documents(t *testing.T, kind string) string {
	t.Helper()
	got, err := rpc.Call[api.GetResult](t.Context(), n.client, api.MethodGet, api.GetRequest{Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s", got.Documents)
}

func (n *testNode) warns(t *testing.T, text string) bool {
	t.Helper()
	return strings.Contains(strings.Join(n.mustStatus(t).Warnings, "\n"), text)
}

// mutual returns a listener and a service whose certificates and CAs are those of the
// Certificate edge.
func mutual(certificate string, b *nodetest.Backend) string {
	return fmt.Sprintf(`
kind: Certificate
name: edge
spec: %s
---
kind: Listener
name: secured
spec:
  address: "127.0.0.1:0"
  protocol: tls
  noServerName: service
  service: apps
  tls: {mode: terminate, certificateRefs: [edge], clientAuth: {mode: require, caRef: edge, spiffe: ["spiffe://*/ns/shop/*"]}}
---
kind: Service
name: apps
spec:
  tls: {certificateRef: edge, caRef: edge, verify: {spiffe: ["spiffe://*/ns/shop/backend"]}}
  endpoints: [{address: %q}]
`, certificate, b.At())
}

// A node holds a workload identity of its cluster itself: clients know its listener by
// it, and endpoints know the node by it. A rotation of the CA and a revocation reach it.
func TestListenerAndServiceHaveAWorkloadIdentity(t *testing.T) {
	socket := spiffeSocket(t)
	n := founder(t, Config{Name: "n1", SPIFFESocket: socket, withClients: true})
	b := backendOf(t, n, "/ns/shop/backend")
	n.mustApply(t, mutual("{identity: /ns/shop/edge}", b)+"---\n"+workloadIdentity("deny"))
	client, addr := newSPIFFEClient(t, socket), n.at(t, "secured")
	id := "spiffe://" + n.cluster.ClusterID() + "/ns/shop/edge"
	var serial string
	testkit.WaitFor(t, "the certificate of the listener", func() (ok bool) {
		var err error
		serial, err = client.dial(addr, id, "")
		return err == nil
	})
	if _, err := client.dial(addr, id, "any.example"); err != nil {
		t.Errorf("with a server name: %v", err)
	}
	text := n.documents(t, "Certificate")
	if strings.Contains(text, "BEGIN") || !strings.Contains(text, `"source": "identity"`) || !strings.Contains(text, `"state": "valid"`) {
		t.Errorf("get has %s", text)
	}
	n.waitMetric(t, `penstock_certificate_source_usable{certificate="edge",source="identity"}`, "1")
	if n.warns(t, "edge") {
		t.Error(n.mustStatus(t).Warnings)
	}

	if _, err := rpc.Call[api.Empty](t.Context(), n.client, api.MethodRotate, api.RotateRequest{What: "ca"}); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "a certificate of the next CA", func() bool {
		next, err := client.dial(addr, id, "")
		return err == nil && next != serial
	})

	r, err := rpc.Call[api.IdentityRevoked](t.Context(), n.client, api.MethodIdentityRevoke, api.IdentityRevokeRequest{Identity: "/ns/shop/edge"})
	if err != nil || r.Count == 0 {
		t.Fatal(r, err)
	}
	testkit.WaitFor(t, "the end of the revoked certificate", func() bool { _, err := client.dial(addr, id, ""); return err != nil })
	testkit.WaitFor(t, "the warning", func() bool { return n.warns(t, "node n1: Certificate/edge: there is no certificate: ") })
	testkit.WaitFor(t, "get to show that it is missing", func() bool {
		return strings.Contains(n.documents(t, "Certificate"), `"state": "missing"`)
	})
}

// Only clients of the bundle's trust domain are admitted, and only with an ID that the
// listener lists.
func TestClientsOfOtherIdentitiesAreRefused(t *testing.T) {
	n := founder(t, Config{Name: "n1"})
	b := backendOf(t, n, "/ns/shop/backend")
	n.mustApply(t, mutual("{identity: /ns/shop/edge}", b))
	addr := n.at(t, "secured")
	dial := func(id string) error {
		hold, err := n.identities.Hold(workload.Identity{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		defer hold.Release()
		var s *workload.SVID
		testkit.WaitFor(t, "the certificate of "+id, func() bool { s, _, err = hold.Get(); return err == nil })
		conn, _, err := nodetest.DialTLS(t, addr, &tls.Config{
			Certificates: []tls.Certificate{s.Cert}, InsecureSkipVerify: true,
			VerifyConnection: func(state tls.ConnectionState) error {
				_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: s.Roots})
				return err
			},
		})
		if err == nil {
			conn.Close()
		}
		return err
	}
	testkit.WaitFor(t, "the client to be admitted", func() bool { return dial("/ns/shop/web") == nil })
	if err := dial("/ns/other/web"); err == nil {
		t.Error("an ID that is not listed is admitted")
	}
}

// A node takes its certificate and bundle from an agent, here the Workload API of
// another cluster's node, and goes on with them while the agent is away.
func TestCertificateComesFromAnAgent(t *testing.T) {
	socket := spiffeSocket(t)
	agent := founder(t, Config{Name: "n1", SPIFFESocket: socket, withClients: true})
	agent.mustApply(t, strings.Replace(workloadIdentity("deny"), "/ns/shop/web", "/ns/shop/edge", 1))
	b := backendOf(t, agent, "/ns/shop/backend")
	n := startNode(t, mutual(fmt.Sprintf("{workloadAPI: {socket: %q}}", "unix://"+socket), b)+
		"---\nkind: Certificate\nname: none\nspec: {identity: /ns/shop/none}\n", func(c *Config) { c.Name = "n2" })
	client, addr := newSPIFFEClient(t, socket), n.at(t, "secured")
	dial := func() error {
		_, err := client.dial(addr, "spiffe://"+agent.cluster.ClusterID()+"/ns/shop/edge", "")
		return err
	}
	testkit.WaitFor(t, "the agent's certificate", func() bool { return dial() == nil })
	if text := n.documents(t, "Certificate"); strings.Contains(text, "BEGIN") || !strings.Contains(text, `"source": "workloadAPI"`) {
		t.Errorf("get has %s", text)
	}
	if !n.warns(t, "node n2: Certificate/none: there is no certificate: this node is in no cluster (--dev)") {
		t.Errorf("without a CA: %q", n.mustStatus(t).Warnings)
	}
	agent.spiffe.Stop()
	testkit.WaitFor(t, "the warning", func() bool { return n.warns(t, "node n2: Certificate/edge: the previous one stays in use until ") })
	if err := dial(); err != nil {
		t.Errorf("without the agent: %v", err)
	}
	n.waitMetric(t, `penstock_certificate_source_usable{certificate="edge",source="workloadAPI"}`, "0")
}
