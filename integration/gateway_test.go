package integration

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/routing/gateway"
)

// edgeGateway is a typical Gateway with a listener of each kind.
const edgeGateway = `---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: edge
spec:
  gatewayClassName: example
  listeners:
  - name: passthrough
    port: 9443
    protocol: TLS
    tls: {mode: Passthrough}
  - name: terminate
    port: 9444
    protocol: TLS
    hostname: "*.ended.example.com"
    tls:
      mode: Terminate
      certificateRefs: [{name: ended}]
  - name: mail
    port: 9025
    protocol: TCP
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: ended}
spec:
  parentRefs: [{name: edge, sectionName: terminate}]
  hostnames: [a.ended.example.com]
  rules: [{backendRefs: [{name: plain, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TCPRoute
metadata: {name: mail}
spec:
  parentRefs: [{name: edge, sectionName: mail}]
  rules: [{backendRefs: [{name: plain, port: 25}]}]
`

// appsRoute splits apps.example.com between two versions.
func appsRoute(one, two string, weightOne, weightTwo int) string {
	return fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1alpha3
kind: TLSRoute
metadata: {name: apps, labels: {team: shop}, creationTimestamp: "2026-01-31T12:00:00Z"}
spec:
  parentRefs: [{name: edge, sectionName: passthrough}]
  hostnames: [apps.example.com]
  rules:
  - backendRefs: [{name: %s, port: 443, weight: %d}, {name: %s, port: 443, weight: %d}]
`, one, weightOne, two, weightTwo)
}

// Gateway API files are accepted unchanged, serve clients, and can be exported.
func TestGatewayAPIFilesServeClientsAndRoundTrip(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "endpoints")
	apps := ca.issue("apps.example.com")
	ip := newNetwork() + "1"
	n := startNode(t, certificate("ended", ca.issue("*.ended.example.com"))+
		service("v1", []string{tlsNamed(t, "one", apps.server())})+
		service("v2", []string{tlsNamed(t, "two", apps.server())})+
		service("plain", []string{named(t, "plain")}), "--bind", ip)
	n.apply(edgeGateway + appsRoute("v1", "v2", 1, 0))

	r := sClient(t, ip+":9443", "one", "-servername", "apps.example.com", "-CAfile", ca.file, "-verify_return_error")
	if !strings.Contains(r, "Verification: OK") {
		t.Errorf("passthrough: %s", r)
	}
	r = sClient(t, ip+":9444", "plain", "-servername", "a.ended.example.com", "-CAfile", ca.file, "-verify_return_error")
	if !strings.Contains(r, "Verification: OK") || !strings.Contains(r, "subject=CN = *.ended.example.com") {
		t.Errorf("terminate: %s", r)
	}
	if r := peer(t, "hello\n", "nc", "-N", ip, "9025"); r.out != "plain\nhello\n" {
		t.Errorf("nc got %q: %s", r.out, r.err)
	}
	stranger := dial(t, ip+":9443")
	if err := tls.Client(stranger, ca.Client("other.example.com")).Handshake(); err == nil {
		t.Error("other.example.com: somebody answered")
	}
	n.wantEnd(stranger, "no_route")

	// Weights affect new connections; established ones stay, and so does the
	// listening socket.
	held := dialTLS(t, ip+":9443", ca.Client("apps.example.com"))
	mustRead(t, held, "one\n")
	socket := listenerInode(t, ip, 9443)
	n.apply(appsRoute("v1", "v2", 0, 1))
	mustRead(t, dialTLS(t, ip+":9443", ca.Client("apps.example.com")), "two\n")
	roundTrip(t, held, "still there")
	if now := listenerInode(t, ip, 9443); now != socket {
		t.Errorf("the socket was %s and is %s", socket, now)
	}

	// The export can be applied again without a change.
	for _, kind := range []string{"gateways", "tlsroutes", "tcproutes"} {
		text := n.must("get", kind, "-o", "yaml", "--as", "gateway")
		if r := n.pipe(text, "apply", "-f", "-"); r.code != 0 || strings.Contains(r.out, "configured") || strings.Contains(r.out, "created") {
			t.Errorf("%s given back and applied: %d\n%s%s\n%s", kind, r.code, r.out, r.err, text)
		}
		if own := n.must("get", kind, "-o", "yaml"); strings.Contains(n.pipe(own, "diff", "-f", "-").out, "diff") {
			t.Errorf("%s differs from what get says", kind)
		}
	}
	text := n.must("get", "tlsroute", "apps", "-o", "yaml", "--as", "gateway")
	for _, want := range []string{
		"apiVersion: gateway.networking.k8s.io/v1alpha3",
		"creationTimestamp: \"2026-01-31T12:00:00Z\"", "team: shop", "reason: Accepted", "generation: ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("--as gateway has no %s:\n%s", want, text)
		}
	}
	table := n.must("get", "gateways")
	if !strings.Contains(table, "PROGRAMMED") || strings.Count(table, "True") != 3 {
		t.Errorf("get gateways:\n%s", table)
	}

	// Without its Gateway a route has no effect, and the port is closed.
	n.must("delete", "gateway", "edge")
	testkit.WaitFor(t, "the port of the Gateway that is gone to be closed", func() bool {
		c, err := net.DialTimeout("tcp", ip+":9443", testkit.Patience)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	roundTrip(t, held, "still there")
	if text := n.must("status"); !strings.Contains(text, "TLSRoute/apps: at edge/passthrough it is not Accepted "+
		"(NoMatchingParent): there is no Gateway edge") {
		t.Errorf("status:\n%s", text)
	}
	if table := n.must("get", "tlsroutes"); !strings.Contains(table, "False (NoMatchingParent)") {
		t.Errorf("get tlsroutes:\n%s", table)
	}
}

// listenerInode returns the inode of the socket that listens on a port.
func listenerInode(t *testing.T, ip string, port int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	at := net.ParseIP(ip).To4()
	want := fmt.Sprintf("%02X%02X%02X%02X:%04X", at[3], at[2], at[1], at[0], port)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 9 && f[1] == want && f[3] == "0A" {
			return f[9]
		}
	}
	t.Fatalf("nobody listens at %s:%d", ip, port)
	return ""
}

// The weight test of the conformance suite, over real connections. An invalid
// backend has its share of them closed.
func TestGatewayAPIWeightsOverConnections(t *testing.T) {
	t.Parallel()
	ip := newNetwork() + "1"
	n := startNode(t, service("one", []string{named(t, "one")})+service("two", []string{named(t, "two")}), "--bind", ip)
	for _, c := range []struct {
		refs string
		n    int
		want map[string]int
	}{
		{"{name: one, weight: 70}, {name: two, weight: 30}", 500, map[string]int{"one": 350, "two": 150}},
		{"{name: one, weight: 20}, {name: missing, weight: 80}", 200, map[string]int{"one": 40, "": 160}},
	} {
		n.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {gatewayClassName: x, listeners: [{name: tcp, port: 9100, protocol: TCP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [` + c.refs + `]}]
`)
		got := map[string]int{}
		for range c.n {
			got[readGreeting(t, ip+":9100")]++
		}
		for name, want := range c.want {
			if off := got[name] - want; off > c.n/20 || -off > c.n/20 {
				t.Errorf("%s: %v, want about %v", c.refs, got, c.want)
			}
		}
	}
	n.wantRefusedCount("edge/9100", "no_backend", 160)
}

// readGreeting returns the endpoint's first line; "" if the connection is closed.
func readGreeting(t *testing.T, address string) string {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, testkit.Patience)
	if errors.Is(err, syscall.ECONNRESET) {
		return "" // before connect returned
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	line := make([]byte, 16)
	k, _ := c.Read(line)
	return strings.TrimSpace(string(line[:k]))
}

// wantRefusedCount waits until count connections of a listener have ended with
// reason.
func (n *node) wantRefusedCount(listener, reason string, count float64) {
	n.t.Helper()
	testkit.WaitFor(n.t, "the connections to be counted", func() bool {
		return n.metric("connections_total", fmt.Sprintf("listener=%q", listener), fmt.Sprintf("result=%q", reason)) == count
	})
}

// A Gateway whose port is taken is not programmed, with the reason; a Listener
// at the same address is refused.
func TestGatewayReportsTakenPort(t *testing.T) {
	t.Parallel()
	ip := newNetwork() + "1"
	taken := testkit.ListenOn(t, "tcp", ip+":0")
	port := taken.Addr().(*net.TCPAddr).Port
	n := startNode(t, service("one", []string{named(t, "one")}), "--bind", ip)
	text := fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {gatewayClassName: x, listeners: [{name: tcp, port: %d, protocol: TCP}]}
`, port)
	n.apply(text)
	var got struct {
		Status gateway.Status
	}
	if err := json.Unmarshal([]byte(n.must("get", "gateway", "edge", "-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.Status.Addresses) != "[{IPAddress "+ip+"}]" {
		t.Errorf("addresses: %v, want the node's", got.Status.Addresses)
	}
	for _, c := range got.Status.Conditions {
		if c.Type == "Programmed" &&
			(c.Status != "False" || c.Reason != "AddressNotUsable" || !strings.Contains(c.Message, "address already in use")) {
			t.Errorf("programmed: %+v", c)
		}
	}
	r := n.pipe(listenerAt("own", fmt.Sprintf(":%d", port), "service: one"), "apply", "-f", "-")
	if r.code != 1 || !strings.Contains(r.err, "overlaps with the address of Gateway/edge") {
		t.Errorf("a Listener at the same address: %d %s%s", r.code, r.out, r.err)
	}
	taken.Close()
	testkit.WaitFor(t, "the Gateway to listen", func() bool { return strings.Count(n.must("get", "gateways"), "True") == 3 })
}

// Three nodes serve a Gateway; a change at one node is active on all, and no
// connection breaks.
func TestGatewayOnThreeNodes(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	echoing := testkit.Serve(t, echo)
	f.members[0].apply(service("one", []string{echoing}) + service("two", []string{echoing}) + `---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {gatewayClassName: x, listeners: [{name: tcp, port: 9100, protocol: TCP}]}
` + tcpRoute("one"))
	tr := startTraffic(f, "9100", 20)
	for i, m := range []int{1, 2, 0, 1} {
		f.members[m].apply(tcpRoute([]string{"one", "two"}[i%2]))
	}
	for _, m := range f.members {
		if table := m.must("get", "gateways"); strings.Count(table, "True") != 3 {
			t.Errorf("%s: get gateways:\n%s", m.name, table)
		}
	}
	tr.mustBeUnbroken()
}

func tcpRoute(backend string) string {
	return `---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: ` + backend + `}]}]
`
}
