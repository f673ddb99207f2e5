package xds

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"penstock/routing/provider/providertest"
)

// listen returns a listener on a real network.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// serve serves the endpoint 10.0.0.1:80 of web to whoever may connect.
func serve(t *testing.T, l net.Listener, options ...grpc.ServerOption) {
	server := grpc.NewServer(append(options, grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		p := &peer{t: t, stream: s}
		p.hears("names=web")
		p.says(world("1", "n1", simple("web", "10.0.0.1:80")))
		return p.waits()
	}))...)
	go server.Serve(l)
	t.Cleanup(server.Stop)
}

func sourceFor(t *testing.T, l net.Listener, change func(*Config)) *Source {
	t.Helper()
	cfg := Config{Server: l.Addr().String(), Node: Node{ID: "edge-1"}}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// authority returns a certificate that signs itself, and a pool with it.
func authority(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

func TestTLS(t *testing.T) {
	certificate, pool := authority(t)
	stranger, strangers := authority(t)
	l := listen(t)
	serve(t, l, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})))
	for _, test := range []struct {
		name, want string
		config     *tls.Config
	}{
		{"client certificate", "", &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}}},
		{"no client certificate", "is not available", &tls.Config{RootCAs: pool}},
		{"another client certificate", "is not available", &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{stranger}}},
		{"another authority", "certificate signed by unknown authority", &tls.Config{RootCAs: strangers, Certificates: []tls.Certificate{certificate}}},
		{"plain text", "check the address, and whether it has TLS", nil},
	} {
		sink := providertest.NewSink(web)
		sink.Start(t, sourceFor(t, l, func(c *Config) { c.TLS = test.config }))
		if test.want == "" {
			sink.Await(t, web, "10.0.0.1:80")
		} else {
			sink.AwaitFailure(t, web, test.want)
		}
	}
}

// What listens at the address may not be a control plane.
func TestConnectionErrors(t *testing.T) {
	plain := listen(t)
	serve(t, plain)
	silent := listen(t)
	closed := listen(t)
	closed.Close()
	web1 := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web1.Close)
	web2 := httptest.NewUnstartedServer(http.NotFoundHandler())
	web2.EnableHTTP2 = true
	web2.StartTLS()
	t.Cleanup(web2.Close)
	for _, test := range []struct {
		name, want string
		listener   net.Listener
		config     *tls.Config
	}{
		{"TLS to plain text", "check the address, and whether it has TLS", plain, &tls.Config{InsecureSkipVerify: true}},
		{"nothing", "connection refused", closed, nil},
		{"a peer that never answers", "is not available", silent, nil},
		{"a web server", "is not available", web1.Listener, nil},
		{"a web server with HTTP/2", "404 (Not Found)", web2.Listener, &tls.Config{InsecureSkipVerify: true}},
	} {
		source := sourceFor(t, test.listener, func(c *Config) {
			c.TLS = test.config
			if test.listener == silent {
				c.Timeout = 50 * time.Millisecond
			}
		})
		if err := source.Run(t.Context(), providertest.NewSink(web)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// A connection that dies without a word is noticed by its keep-alive, and one that
// is checked too often tells so.
func TestKeepAlive(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		handler := grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return (&peer{stream: s}).waits() })
		n.start(grpc.NewServer(handler, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Minute})))
		err := n.source(func(c *Config) { c.KeepAlive = 10 * time.Second }).Run(t.Context(), providertest.NewSink(web))
		if err == nil || !strings.Contains(err.Error(), "wants fewer keep-alive pings than one in 10s: raise keepAlive") {
			t.Error(err)
		}
		n.start(grpc.NewServer(handler))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		if err := n.source(nil).Run(ctx, providertest.NewSink(web)); err != context.Canceled {
			t.Errorf("the defaults of both sides do not agree: %v", err)
		}
	})
}

func TestConfigs(t *testing.T) {
	ok := Config{Server: "control:18000", Node: Node{ID: "edge-1"}}
	for want, change := range map[string]func(*Config){
		"the server is missing":                               func(c *Config) { c.Server = "" },
		`server "control" is not host:port`:                   func(c *Config) { c.Server = "control" },
		"the node id is missing":                              func(c *Config) { c.Node.ID = "" },
		`node: "\xff" is not UTF-8`:                           func(c *Config) { c.Node.Zone = "\xff" },
		"invalid type: chan int":                              func(c *Config) { c.Node.Metadata = map[string]any{"x": make(chan int)} },
		"timeout is 1ms; it must be 10ms to 10m0s":            func(c *Config) { c.Timeout = time.Millisecond },
		"keepAlive is 1s; it must be 10s to 1h0m0s":           func(c *Config) { c.KeepAlive = time.Second },
		"maxBytes is 1; it must be 1024 to 1073741824":        func(c *Config) { c.MaxBytes = 1 },
		"maxEndpoints is 1000001; it must be 1 to 1000000":    func(c *Config) { c.MaxEndpoints = 1_000_001 },
		"the server is missing\nxds: timeout is 1ms; it must": func(c *Config) { c.Server, c.Timeout = "", time.Millisecond },
	} {
		cfg := ok
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := New(ok); err != nil {
		t.Error(err)
	}
}
