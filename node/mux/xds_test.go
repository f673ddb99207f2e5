package mux_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/mux"
	"penstock/node/rpc"
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// xdsMux starts a Mux that negotiates ALPN; without TLS if plain.
func xdsMux(t *testing.T, cfg mux.Config, plain bool) (p *mux.Mux, ca *certs.CA) {
	t.Helper()
	ca = certs.NewCA("ca")
	cfg.Listener = testkit.Listen(t)
	if !plain {
		cfg.TLS = ca.Server("node")
		cfg.TLS.NextProtos = []string{"penstock", "h2"}
	}
	p = mux.New(cfg)
	t.Cleanup(func() { p.Close() })
	return p, ca
}

// dialXDS connects as a proxy and writes the connection preface. It fails if the
// Mux closes the connection.
func dialXDS(t *testing.T, p *mux.Mux, config *tls.Config) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if config != nil {
		config.NextProtos = []string{"h2"}
	}
	conn, err := mux.Connect(ctx, p.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	io.WriteString(conn, preface)
	return conn
}

func TestProxiesGoToXDS(t *testing.T) {
	for name, plain := range map[string]bool{"with TLS": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			p, ca := xdsMux(t, mux.Config{}, plain)
			var config *tls.Config
			if !plain {
				config = ca.Client("node", "web")
			}
			client := dialXDS(t, p, config)
			server, err := p.XDS().Accept()
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(preface))
			if _, err := io.ReadFull(server, got); err != nil || string(got) != preface {
				t.Errorf("the server reads %q, %v", got, err)
			}
			secure, ok := server.(interface{ ConnectionState() tls.ConnectionState })
			switch {
			case ok == plain:
				t.Errorf("a %T has a TLS state: %v", server, ok)
			case ok && secure.ConnectionState().PeerCertificates[0].Subject.CommonName != "web":
				t.Error("the server does not see the proxy's certificate")
			}
			if s := p.Stats(); s.Proxies != 1 || s.Pending != 0 {
				t.Errorf("%+v with one proxy", s)
			}
			server.Close()
			server.Close() // as gRPC does
			mustEnd(t, client, "")
			testkit.WaitFor(t, "the proxy's place to come free", func() bool { return p.Stats().Proxies == 0 })
		})
	}
}

func TestProxiesAreBounded(t *testing.T) {
	p, ca := xdsMux(t, mux.Config{MaxProxies: 2}, false)
	for range 2 {
		dialXDS(t, p, ca.Client("node", "web"))
	}
	testkit.WaitFor(t, "both proxies", func() bool { return p.Stats().Proxies == 2 })
	mustEnd(t, dialXDS(t, p, ca.Client("node", "web")), "")
	if s := p.Stats(); s.Proxies != 2 || s.Refused["limit"] != 1 {
		t.Errorf("%+v", s)
	}
	server, err := p.XDS().Accept()
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	dialXDS(t, p, ca.Client("node", "web"))
	testkit.WaitFor(t, "another one in its place", func() bool { s := p.Stats(); return s.Proxies == 2 && s.Refused["limit"] == 1 })
}

// A server that has ended accepts no more proxies; they go to another node.
func TestProxiesAreRefusedAfterTheServerEnded(t *testing.T) {
	p, ca := xdsMux(t, mux.Config{}, false)
	waiting := dialXDS(t, p, ca.Client("node", "web"))
	testkit.WaitFor(t, "the proxy", func() bool { return p.Stats().Proxies == 1 })
	p.XDS().Close()
	mustEnd(t, waiting, "")
	mustEnd(t, dialXDS(t, p, ca.Client("node", "web")), "")
	testkit.WaitFor(t, "no proxy", func() bool { return p.Stats().Proxies == 0 })
}

// A listener for xDS alone serves nothing else.
func TestListenerForXDSAloneRefusesCommands(t *testing.T) {
	p, ca := xdsMux(t, mux.Config{}, false)
	command := ca.Client("node")
	command.NextProtos = []string{"penstock"}
	if _, err := (rpc.DialConfig{TLS: command, Token: token}).Dial(t.Context(), p.Addr().String()); !errors.Is(err, rpc.ErrUnreachable) {
		t.Errorf("a command: %v", err)
	}
	plain, _ := xdsMux(t, mux.Config{}, true)
	if _, err := rpc.Dial(t.Context(), plain.Addr().String()); !errors.Is(err, rpc.ErrUnreachable) {
		t.Errorf("a plain command: %v", err)
	}
	for _, m := range []*mux.Mux{p, plain} {
		if m.Stats().Refused["first_byte"] == 0 {
			t.Errorf("%+v", m.Stats())
		}
	}
}

// Proxies wait in a pool that strangers cannot fill, like every client.
func TestProxiesConnectAmongIdleConnections(t *testing.T) {
	p, ca := xdsMux(t, mux.Config{MaxConns: 8, MaxPerSource: 4}, false)
	for range 32 {
		conn, err := net.Dial("tcp", p.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	dialXDS(t, p, ca.Client("node", "web"))
	if server, err := p.XDS().Accept(); err != nil {
		t.Error(err)
	} else {
		server.Close()
	}
}
