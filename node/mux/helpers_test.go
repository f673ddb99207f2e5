package mux_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/node/api"
	"penstock/node/mux"
	"penstock/node/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ca is the CA of a cluster.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newCA(t testing.TB) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &ca{cert: cert, key: key, pool: pool}
}

// node makes the certificate of a node.
func (c *ca) node(t testing.TB, id string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: id}, DNSNames: []string{"node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// client returns the TLS configuration of a node, or of a command if id is empty.
func (c *ca) client(t testing.TB, id string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.pool, ServerName: "node"}
	if id != "" {
		config.Certificates = []tls.Certificate{c.node(t, id)}
	}
	return config
}

// logLines is a log that can be read while it is written.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testMux is a Mux with an admin server, as in a node.
type testMux struct {
	*mux.Mux
	addr  string
	ca    *ca
	admin *rpc.Server
	log   *logLines
}

type echo struct {
	Text string `json:"text"`
}

const token = "pst1.dG9rZW4"

// newTestMux starts a testMux. Its admin server has the method echo, for readers, and
// accepts the token.
func newTestMux(t testing.TB, cfg mux.Config) *testMux {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &testMux{addr: ln.Addr().String(), ca: newCA(t), log: new(logLines)}
	p.admin = rpc.NewServer(rpc.Config{Authenticate: func(_ context.Context, shown string) (api.Principal, error) {
		if shown != token {
			return api.Principal{}, errors.New("no such token")
		}
		return api.Principal{Name: "ci", Role: api.RoleReader, TokenID: "t1"}, nil
	}})
	rpc.Handle(p.admin, "echo", api.RoleReader, func(_ context.Context, r *echo) (*echo, error) { return r, nil })
	cfg.Listener = ln
	cfg.Log = slog.New(slog.NewTextHandler(p.log, nil))
	plain := cfg.TLS == noTLS
	cfg.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{p.ca.node(t, "n1")},
		ClientCAs: p.ca.pool, ClientAuth: tls.VerifyClientCertIfGiven,
	}
	if plain {
		cfg.TLS = nil
	}
	cfg.Peer = func(cs tls.ConnectionState) (string, bool) {
		if len(cs.VerifiedChains) == 0 {
			return "", false
		}
		return cs.VerifiedChains[0][0].Subject.CommonName, true
	}
	cfg.Admin = func(conn net.Conn, node string) {
		switch {
		case plain:
			p.admin.ServeConn(conn, api.Principal{Name: "dev", Role: api.RoleAdmin})
		case node != "":
			p.admin.ServeConn(conn, api.Principal{Name: node, Role: api.RoleNode, Node: node})
		default:
			p.admin.ServeConn(conn, api.Principal{})
		}
	}
	p.Mux = mux.New(cfg)
	t.Cleanup(func() {
		p.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.admin.Shutdown(ctx)
	})
	return p
}

// noTLS makes newTestMux start a Mux without TLS.
var noTLS = new(tls.Config)

// mustCall makes a call on a new connection.
func (p *testMux) mustCall(t testing.TB, d rpc.DialConfig) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := d.Dial(ctx, p.addr)
	if err != nil {
		t.Errorf("dial: %v", err)
		return
	}
	defer c.Close()
	if got, err := rpc.Call[echo](ctx, c, "echo", echo{Text: "x"}); err != nil || got.Text != "x" {
		t.Errorf("call: %v, %v", got, err)
	}
}

// raft opens a Raft connection as the node with an ID, and accepts it.
func (p *testMux) raft(t testing.TB, id string) (client, server net.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := mux.Dial(ctx, p.addr, p.ca.client(t, id), mux.Raft)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err = p.Raft().Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// dialFrom connects from a loopback address, without TLS.
func (p *testMux) dialFrom(t testing.TB, ip string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	conn, err := d.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// mustEnd expects the other side to close the connection, and to send want or a
// prefix of it before.
func mustEnd(t testing.TB, conn net.Conn, want string) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is kept")
	}
	if !strings.HasPrefix(want, string(got)) {
		t.Errorf("answered %q, want %q", got, want)
	}
}

func waitFor(t testing.TB, what string, cond func() bool) {
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
