package mux_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/mux"
	"penstock/node/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testMux is a Mux with an admin server, as in a node.
type testMux struct {
	*mux.Mux
	addr  string
	ca    *certs.CA
	admin *rpc.Server
	log   *testkit.Log
}

type echo struct {
	Text string `json:"text"`
}

const token = "pst1.dG9rZW4"

// newTestMux starts a testMux. Its admin server has the method echo, for readers, and
// accepts the token.
func newTestMux(t testing.TB, cfg mux.Config) *testMux {
	t.Helper()
	ln := testkit.Listen(t)
	p := &testMux{addr: ln.Addr().String(), ca: certs.NewCA("ca"), log: new(testkit.Log)}
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
	cfg.TLS = p.ca.Server("n1", "node")
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
	client, err := mux.Dial(ctx, p.addr, p.ca.Client("node", id), mux.Raft)
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
