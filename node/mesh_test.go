package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/netio/proxyproto"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/node/tlsconfig"
)

// meshPair is two nodes of a cluster: clients come to near, and the service is beside
// far, which has the only mesh listener.
type meshPair struct{ near, far *testNode }

// newMeshPair starts the pair with a backend behind it.
func newMeshPair(t *testing.T, b *nodetest.Backend) meshPair {
	t.Helper()
	var p meshPair
	p.near = founder(t, Config{Name: "near", Tags: map[string]string{"side": "near"}})
	made, err := rpc.Call[api.TokenCreated](t.Context(), p.near.client, api.MethodTokenNew,
		&api.TokenCreateRequest{Name: "join", Role: api.RoleJoin, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	lines := &testkit.Log{}
	p.far = member(t, Config{
		Name: "far", Join: []string{p.near.AdminAddr()}, Token: made.Token, Tags: map[string]string{"side": "far"},
		AccessLog: AccessClosed, AccessOut: lines,
	})
	p.far.lines = lines
	p.near.mustApply(t, fmt.Sprintf(`
kind: Listener
name: inside
spec:
  address: "127.0.0.1:0"
  protocol: mesh
  nodes: {side: far}
  hosts: [{names: [shop], service: shop-local}]
---
kind: Service
name: shop-local
spec: {endpoints: [{address: %q}]}
`, b.At()))
	testkit.WaitFor(t, "the mesh listener", func() bool { return p.inside() != "" })
	p.near.mustApply(t, fmt.Sprintf(`
kind: Service
name: shop
spec: {mesh: true, endpoints: [{address: %q}]}
---
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: shop, nodes: {side: near}, sources: [{from: [127.0.0.0/8], tags: {service: web}}]}
---
kind: Listener
name: other
spec: {address: "127.0.0.1:0", service: shop, nodes: {side: near}}
`, p.inside()))
	p.near.settle(t)
	p.far.settle(t)
	return p
}

// inside returns the address of the mesh listener; "" while it does not listen.
func (p meshPair) inside() string {
	for _, l := range p.far.data.Engine.Listeners() {
		if l.Name == "inside" && l.Err == nil {
			return l.Address
		}
	}
	return ""
}

// apply applies resources and waits until they are in effect on both nodes.
func (p meshPair) apply(t *testing.T, text string) {
	t.Helper()
	p.near.mustApply(t, text)
	p.near.settle(t)
	at := p.near.store.Snapshot().Index()
	testkit.WaitFor(t, "the change on the other node", func() bool { return p.far.store.Snapshot().Index() >= at })
	p.far.settle(t)
}

// settle waits until what the node's store has is in effect.
func (n *testNode) settle(t *testing.T) {
	t.Helper()
	if err := n.catalog.Await(t.Context(), n.store.Snapshot().Index()); err != nil {
		t.Fatal(err)
	}
}

// reaches reports whether the backend answers a client of that address.
func reaches(address string) bool { return nodetest.Attempt(address) == "b\n" }

// The other node decides by the tags and the network of the client, and both logs
// name the connection alike.
func TestMeshCarriesTheClient(t *testing.T) {
	t.Parallel()
	p := newMeshPair(t, nodetest.NewBackend(t, "b"))
	p.apply(t, `
kind: TrafficPermission
name: web
spec: {to: [{services: [shop-local]}], from: [{networks: [127.0.0.0/8], tags: {service: web}}], action: allow}
`)
	conn, name := nodetest.Dial(t, p.near.at(t, "edge"))
	nodetest.Echo(t, conn)
	client := conn.LocalAddr().String()
	conn.Close()
	if name != "b" {
		t.Errorf("got %q", name)
	}
	line := func(n *testNode, with string) string {
		var found string
		testkit.WaitFor(t, "the access log of "+n.cfg.Name, func() bool {
			for l := range strings.Lines(n.lines.String()) {
				if strings.Contains(l, with) {
					found = l
				}
			}
			return found != ""
		})
		return found
	}
	near, far := line(p.near, "client="+client+" "), line(p.far, "client="+client+" ")
	hop := regexp.MustCompile(` hop=[0-9a-f]{32} `)
	if h := hop.FindString(near); h == "" || h != hop.FindString(far) {
		t.Errorf("the lines do not join:\n%s%s", near, far)
	}
	if !strings.Contains(far, "service=shop-local") || !strings.Contains(far, "via="+p.near.id+"/edge/shop ") {
		t.Errorf("the far line is %s", far)
	}
	if reaches(p.near.at(t, "other")) {
		t.Error("a client without the tag came through")
	}
	testkit.WaitFor(t, "a session to be resumed", func() bool {
		if got := p.far.metric(t, `penstock_mesh_handshakes_total{resumed="true",side="server"}`); got != "" && got != "0" {
			return true
		}
		if reaches(p.near.at(t, "other")) { // one more, should the first one's ticket have been of another key
			t.Error("a client without the tag came through")
		}
		return false
	})
	if denied := line(p.far, "reason=permission_denied"); !strings.Contains(denied, "via="+p.near.id+"/other/shop ") {
		t.Errorf("the denial is %s", denied)
	}
}

// The lines join also if a balancer before the first node has an ID of its own for the
// connection, even one that it gives to two connections.
func TestMeshLinesJoinBehindABalancer(t *testing.T) {
	t.Parallel()
	p := newMeshPair(t, nodetest.NewBackend(t, "b"))
	p.apply(t, `
kind: Listener
name: balanced
spec: {address: "127.0.0.1:0", service: shop, nodes: {side: near}, proxyProtocol: {accept: [127.0.0.0/8]}}
`)
	hops := map[string]bool{}
	for _, client := range []string{"192.0.2.1:4711", "192.0.2.2:4712"} {
		conn, err := net.Dial("tcp", p.near.at(t, "balanced"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write(proxyproto.Append(nil, proxyproto.V2, proxyproto.Header{
			Source: netip.MustParseAddrPort(client), Destination: netip.MustParseAddrPort("192.0.2.9:80"), UniqueID: []byte("of the balancer"),
		}))
		_, _ = io.WriteString(conn, "hello\n")
		if _, err := io.ReadFull(conn, make([]byte, len("b\nhello\n"))); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		line := regexp.MustCompile(` client=` + regexp.QuoteMeta(client) + ` .* hop=([0-9a-f]+) `)
		var near, far []string
		testkit.WaitFor(t, "the line of "+client+" in both logs", func() bool {
			near, far = line.FindStringSubmatch(p.near.lines.String()), line.FindStringSubmatch(p.far.lines.String())
			return near != nil && far != nil
		})
		if near[1] != far[1] {
			t.Errorf("%s has %s in one log and %s in the other", client, near[1], far[1])
		}
		hops[near[1]] = true
	}
	if len(hops) != 2 {
		t.Errorf("two connections share %v", hops)
	}
}

// A client that the other node refuses ends as if the endpoint had closed it: a reset
// would count as a failure of the endpoint, and eject it for all.
func TestMeshRefusalIsNoFailureOfTheEndpoint(t *testing.T) {
	t.Parallel()
	p := newMeshPair(t, nodetest.NewBackend(t, "b"))
	p.apply(t, `
kind: TrafficPermission
name: web
spec: {to: [{services: [shop-local]}], from: [{tags: {service: web}}], action: allow}
`)
	refused := func(ended string) {
		t.Helper()
		if conn, err := net.Dial("tcp", p.near.at(t, "other")); err == nil { // a reset may come before Dial returns
			_, _ = io.WriteString(conn, "hello\n")
			_, _ = io.ReadAll(conn)
			conn.Close()
		}
		testkit.WaitFor(t, "how it ended", func() bool {
			return strings.Contains(p.near.lines.String(), "listener=other") && strings.Contains(p.near.lines.String(), ended)
		})
	}
	refused("reason=upstream_fin")
	p.apply(t, `
kind: Service
name: shop-local
spec: {endpoints: [{address: "127.0.0.1:1"}]}
---
kind: TrafficPermission
name: web
spec: {to: [{services: [shop-local]}], action: allow}
`)
	refused("reason=upstream_reset") // nobody is behind the other node
}

// A client's proven SPIFFE ID is what the other node's permissions see, and a tag of
// that name from a listener is not.
func TestMeshCarriesTheIdentity(t *testing.T) {
	t.Parallel()
	p := newMeshPair(t, nodetest.NewBackend(t, "b"))
	web, ca := issue(t.Context(), t, p.near.client, "/ns/shop/web")
	batch, _ := issue(t.Context(), t, p.near.client, "/ns/shop/batch")
	id := "spiffe://" + p.near.cluster.Identity().ClusterID + "/ns/shop/web"
	edge := certs.NewCA("test CA")
	p.apply(t, nodetest.Certificate("edge", edge.Issue("edge.example"))+fmt.Sprintf(`---
kind: Listener
name: secured
spec:
  address: "127.0.0.1:0"
  protocol: tls
  service: shop
  nodes: {side: near}
  tls: {mode: terminate, certificateRefs: [edge], clientAuth: {mode: require, ca: %q}}
---
kind: Listener
name: pretends
spec: {address: "127.0.0.1:0", service: shop, nodes: {side: near}, tags: {spiffe: %q}}
---
kind: TrafficPermission
name: web
spec: {to: [{services: [shop-local]}], from: [{identities: [%q]}], action: allow}
`, ca, id, id))
	dial := func(cert tls.Certificate) (*tls.Conn, error) {
		c, _, err := nodetest.DialTLS(t, p.near.at(t, "secured"), &tls.Config{
			RootCAs: edge.Pool, ServerName: "edge.example", Certificates: []tls.Certificate{cert},
		})
		return c, err
	}
	c, err := dial(web)
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Echo(t, c)
	if _, err := dial(batch); err == nil {
		t.Error("another identity came through")
	}
	if reaches(p.near.at(t, "pretends")) {
		t.Error("a listener's tag counts as an identity")
	}
	// A change of permissions finds the connection by the identity of its client.
	p.apply(t, fmt.Sprintf(`
kind: TrafficPermission
name: web
spec: {to: [{services: [shop-local]}], from: [{identities: [%q]}], action: deny, onChange: close}
`, id))
	if _, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") && !strings.Contains(err.Error(), "EOF") {
		t.Error(err)
	}
	testkit.WaitFor(t, "the revocation", func() bool { return strings.Contains(p.far.lines.String(), "reason=permission_revoked") })
}

// The node beside the service routes requests one by one, and decides about each by the
// client of the other node.
func TestMeshListenerReadsRequests(t *testing.T) {
	t.Parallel()
	p := newMeshPair(t, nodetest.NewBackend(t, "b"))
	p.apply(t, nodetest.WebService("shop-local", "", nodetest.NamedServer(t, "shop"))+
		nodetest.WebService("cart", "", nodetest.NamedServer(t, "cart"))+`---
kind: MeshHTTPRoute
name: local
spec:
  to:
  - targetRef: {kind: MeshService, name: shop-local}
    rules:
    - `+nodetest.Rule("/cart", nodetest.To("cart"))+`
---
kind: Listener
name: web
spec: {address: "127.0.0.1:0", service: shop, nodes: {side: near}, tags: {protocol: http, team: a}}
---
kind: TrafficPermission
name: admin
spec: {to: [{services: [shop-local], http: [{paths: [/admin]}]}], from: [{tags: {team: a}}], action: deny}
`)
	c := nodetest.NewWebClient(t, p.near.at(t, "web"), false)
	for path, want := range map[string]string{"/": "shop GET ", "/cart": "cart GET "} {
		if got := c.Do("GET", path, ""); !strings.HasPrefix(got.Text, want) {
			t.Errorf("%s: %d %q", path, got.StatusCode, got.Text)
		}
	}
	if got := c.Do("GET", "/admin", ""); got.StatusCode != http.StatusForbidden {
		t.Errorf("/admin: %d %q", got.StatusCode, got.Text)
	}
}

// Only a node of the cluster gets in, and only by the protocol of the mesh; what
// someone else says about a client is believed nowhere.
func TestMeshListenerRefusesOthers(t *testing.T) {
	t.Parallel()
	p := newMeshPair(t, nodetest.NewBackend(t, "b"))
	header, err := proxyproto.AppendMesh(nil, proxyproto.Header{Mesh: &proxyproto.Mesh{Service: "shop", Tags: map[string]string{"service": "web"}}})
	if err != nil {
		t.Fatal(err)
	}
	workload, _ := issue(t.Context(), t, p.near.client, "/ns/shop/web")
	node := p.near.cluster.Identity().Certificate()
	try := func(name, reason string, config *tls.Config) {
		t.Helper()
		config.InsecureSkipVerify = true
		raw, err := net.Dial("tcp", p.inside())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		raw.SetDeadline(time.Now().Add(testkit.Patience))
		c := tls.Client(raw, config)
		_, _ = c.Write(header) // the handshake may fail
		if got, _ := io.ReadAll(c); len(got) > 0 {
			t.Errorf("%s: got %q", name, got)
		}
		testkit.WaitFor(t, name+": "+reason, func() bool {
			for l := range strings.Lines(p.far.lines.String()) {
				if strings.Contains(l, "client="+raw.LocalAddr().String()+" ") && strings.Contains(l, " reason="+reason+" ") {
					return true
				}
			}
			return false
		})
	}
	mesh := []string{tlsconfig.MeshProtocol}
	try("no certificate", "handshake_no_certificate", &tls.Config{NextProtos: mesh})
	try("a workload of the cluster", "handshake_bad_certificate", &tls.Config{NextProtos: mesh, Certificates: []tls.Certificate{workload}})
	try("a foreign certificate", "handshake_bad_certificate",
		&tls.Config{NextProtos: mesh, Certificates: []tls.Certificate{certs.NewCA("x").Issue("n").TLS}})
	try("a node without the protocol", "handshake_bad_certificate", &tls.Config{Certificates: []tls.Certificate{node}})
	try("a node with the cluster's protocol", "handshake_failed",
		&tls.Config{NextProtos: []string{"penstock"}, Certificates: []tls.Certificate{node}})
	try("TLS 1.2", "handshake_failed", &tls.Config{NextProtos: mesh, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{node}})
	header = []byte("PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n")
	try("a node with another header", "mesh_bad_header", &tls.Config{NextProtos: mesh, Certificates: []tls.Certificate{node}})
}

// Rotation of the CA breaks no connection, and new ones are made while it runs and
// after it.
func TestMeshOutlivesTheCA(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	p := newMeshPair(t, nodetest.NewBackend(t, "b"))
	before := p.far.cluster.Identity()
	conn, _ := nodetest.Dial(t, p.near.at(t, "edge"))
	if _, err := rpc.Call[api.Empty](ctx, p.near.client, api.MethodRotate, api.RotateRequest{What: "ca"}); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "a new certificate on both nodes", func() bool {
		second, _ := nodetest.Dial(t, p.near.at(t, "edge"))
		nodetest.Echo(t, second)
		second.Close()
		now := p.far.cluster.Identity()
		return now.CADigests()[0] != before.CADigests()[0] && now.Leaf().SerialNumber.Cmp(before.Leaf().SerialNumber) != 0
	})
	nodetest.Echo(t, conn)
	second, _ := nodetest.Dial(t, p.near.at(t, "edge"))
	nodetest.Echo(t, second)
}

// Without a cluster nothing goes in the clear instead.
func TestMeshNeedsACluster(t *testing.T) {
	t.Parallel()
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, fmt.Sprintf(`
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: shop}
---
kind: Listener
name: inside
spec: {address: "127.0.0.1:0", protocol: mesh, service: shop}
---
kind: Service
name: shop
spec: {mesh: true, endpoints: [{address: %q}]}
`, b.At()))
	if reaches(n.at(t, "edge")) {
		t.Error("it went in the clear")
	}
	testkit.WaitFor(t, "the reason", func() bool { return strings.Contains(n.lines.String(), "reason=mesh_unavailable") })
	if w := n.mustStatus(t).Warnings; !strings.Contains(strings.Join(w, "\n"), "mesh") {
		t.Errorf("status warns of %q", w)
	}
}
