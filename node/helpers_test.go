package node

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/node/admin"
	"penstock/routing/resource"
)

func TestMain(m *testing.M) {
	// Those that are parallel wait for time to pass, so more of them run at once
	// than there are processors.
	flag.Parse()
	if set := flag.Lookup("test.parallel"); set.Value.String() == set.DefValue {
		_ = flag.Set("test.parallel", "5")
	}
	goleak.VerifyTestMain(m)
}

// testNode is a running node with a client of its admin port.
type testNode struct {
	*Node
	client *admin.Client
	lines  *lines // of the access log
}

// startNode starts a node with these resources. It is stopped at once at the
// end of the test.
func startNode(t *testing.T, resources string, change ...func(*Config)) *testNode {
	t.Helper()
	n := &testNode{lines: &lines{}}
	cfg := Config{
		Name: "n1", Dev: true, Cluster: "127.0.0.1:0", HTTP: "127.0.0.1:0", Loops: 2, Version: "test",
		Resources: objects(t, resources), AccessLog: AccessClosed, AccessOut: n.lines,
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if n.Node, err = Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.halt)
	if n.client, err = admin.Dial(t.Context(), n.AdminAddr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.client.Close() })
	return n
}

// halt stops the node without a wait for its connections.
func (n *testNode) halt() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n.Stop(ctx)
}

// deadAddress is an address where nobody listens. Its IP is of these alone: a
// port of 127.0.0.1 would soon be given to somebody else.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.16.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func objects(t testing.TB, text string) []resource.Object {
	t.Helper()
	list, faults := resource.Decode("test.yaml", []byte(text), Kinds())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return list
}

func (n *testNode) apply(t *testing.T, text string) error {
	t.Helper()
	var req admin.ApplyRequest
	for _, o := range objects(t, text) {
		req.Documents = append(req.Documents, resource.EncodeWithSecrets(o))
	}
	_, err := admin.Call[admin.ApplyResult](t.Context(), n.client, admin.MethodApply, req)
	return err
}

func (n *testNode) mustApply(t *testing.T, text string) {
	t.Helper()
	if err := n.apply(t, text); err != nil {
		t.Fatal(err)
	}
}

func (n *testNode) mustDelete(t *testing.T, kind, name string) {
	t.Helper()
	if _, err := admin.Call[admin.DeleteResult](t.Context(), n.client, admin.MethodDelete, admin.DeleteRequest{Kind: kind, Name: name}); err != nil {
		t.Fatal(err)
	}
}

func (n *testNode) mustStatus(t *testing.T) *admin.Status {
	t.Helper()
	s, err := admin.Call[admin.Status](t.Context(), n.client, admin.MethodStatus, admin.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// at is where a listener listens.
func (n *testNode) at(t *testing.T, listener string) string {
	t.Helper()
	for _, l := range n.mustStatus(t).Listeners {
		if l.Name == listener && l.Error == "" {
			return l.Address
		}
	}
	t.Fatalf("listener %s does not listen", listener)
	return ""
}

// get asks over HTTP.
func (n *testNode) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	return n.getAs(t, path, n.HTTPAddr())
}

func (n *testNode) getAs(t *testing.T, path, host string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.HTTPAddr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// metric is the value of a series, "" where there is none.
func (n *testNode) metric(t *testing.T, series string) string {
	t.Helper()
	_, body := n.get(t, "/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	return ""
}

// lines collects what a log writes.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// backend is an echo server that says its name first.
type backend struct {
	net.Listener
	name string
}

func newBackend(t *testing.T, name string) *backend {
	t.Helper()
	return serveBackend(t, name, nil)
}

func serveBackend(t *testing.T, name string, config *tls.Config) *backend {
	t.Helper()
	return serveBackendAt(t, name, "127.0.0.1:0", config)
}

func serveBackendAt(t *testing.T, name, address string, config *tls.Config) *backend {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				io.WriteString(conn, name+"\n")
				io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return &backend{ln, name}
}

func (b *backend) at() string { return b.Addr().String() }

// dial connects and reads the backend's name.
func dial(t *testing.T, addr string) (net.Conn, string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn, readLine(t, conn)
}

// attempt connects, which may fail, and gives the first two bytes that come.
func attempt(addr string) string {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	got, _ := io.ReadAll(io.LimitReader(conn, 2))
	return string(got)
}

func readLine(t *testing.T, r io.Reader) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := r.Read(b); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}

// echo makes a round trip.
func echo(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, "ping\n"); err != nil {
		t.Fatal(err)
	}
	if got := readLine(t, conn); got != "ping" {
		t.Fatalf("echo gave %q", got)
	}
}

// waitFor polls for a condition.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
	pool *x509.CertPool
	last int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool(), last: 1}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

// issue makes a certificate for these names, as PEM and ready for use.
func (a *authority) issue(t *testing.T, names ...string) (cert, key string, pair tls.Certificate) {
	t.Helper()
	a.last++
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.last), Subject: pkix.Name{CommonName: names[0]},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	if pair, err = tls.X509KeyPair([]byte(cert), []byte(key)); err != nil {
		t.Fatal(err)
	}
	return cert, key, pair
}

// certificate is the resource of a certificate.
func certificate(name, cert, key string) string {
	return "\n---\nkind: Certificate\nname: " + name + "\nspec:\n  cert: |\n" + indent(cert, 4) + "  key: |\n" + indent(key, 4)
}

func indent(text string, n int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.Repeat(" ", n) + line)
	}
	return b.String()
}
