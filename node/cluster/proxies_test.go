package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"penstock/node/api"
	"penstock/node/mux"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// proxyCertificate has the leader issue a certificate for a proxy of web.
func (m *machine) proxyCertificate() (cert tls.Certificate, roots *x509.CertPool) {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	csr, err := trust.NewProxyRequest(key)
	if err != nil {
		m.t.Fatal(err)
	}
	issued, err := m.c.IssueProxy(m.t.Context(), &api.ProxyCertificateRequest{Service: "web", CSR: csr, TTL: time.Hour})
	if err != nil {
		m.t.Fatal(err)
	}
	roots = x509.NewCertPool()
	for _, der := range issued.CAs {
		ca, err := x509.ParseCertificate(der)
		if err != nil {
			m.t.Fatal(err)
		}
		roots.AddCert(ca)
	}
	if issued.ID != "spiffe://"+m.c.ClusterID()+"/service/web" {
		m.t.Errorf("the proxy is %s", issued.ID)
	}
	return tls.Certificate{Certificate: [][]byte{issued.Certificate}, PrivateKey: key}, roots
}

// as returns the configuration of a connection to the cluster port with a
// certificate.
func as(cert tls.Certificate, roots *x509.CertPool, protocol string) *tls.Config {
	return &tls.Config{
		RootCAs: roots, NextProtos: []string{protocol}, InsecureSkipVerify: protocol == trust.Protocol,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	}
}

func TestProxiesConnectToTheClusterPort(t *testing.T) {
	t.Parallel()
	m := startSingle(t, "a")
	cert, roots := m.proxyCertificate()
	alone := m.listenXDS()
	for _, addr := range []string{m.addr(), alone.Addr().String()} {
		conn, err := mux.Connect(t.Context(), addr, as(cert, roots, trust.ProxyProtocol))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	for _, ln := range []net.Listener{m.c.XDS(), alone.XDS()} {
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if got := conn.(*mux.XDSConn).ConnectionState().PeerCertificates[0].Subject.CommonName; got != "web" {
			t.Errorf("%s: the proxy is of %q", ln.Addr(), got)
		}
	}
}

// listenXDS serves xDS at a listener of its own.
func (m *machine) listenXDS() *mux.Mux {
	m.t.Helper()
	var config net.ListenConfig
	ln, err := config.Listen(m.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	p := m.c.ServeXDS(ln)
	m.t.Cleanup(func() { p.Close() })
	return p
}

// A proxy's certificate is good for xDS alone, whatever a client with it says.
func TestProxiesAreNoNodes(t *testing.T) {
	t.Parallel()
	m := startSingle(t, "a")
	cert, roots := m.proxyCertificate()
	node := as(cert, roots, trust.Protocol)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for _, addr := range []string{m.addr(), m.listenXDS().Addr().String()} {
		if client, err := (rpc.DialConfig{TLS: node}).Dial(ctx, addr); err == nil {
			_, err = rpc.Call[api.ReadResult](ctx, client, api.MethodRead, api.Empty{})
			client.Close()
			if err == nil {
				t.Errorf("%s: a proxy calls a method of nodes", addr)
			}
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
		if conn, err := mux.Dial(ctx, addr, node, mux.Raft); err == nil {
			// TLS 1.3: a client learns of the refusal when it reads.
			if _, err := conn.Read(make([]byte, 1)); err == nil || ctx.Err() != nil {
				t.Errorf("%s: a proxy speaks Raft", addr)
			}
			conn.Close()
		}
	}
	eventually(t, "both to be refused in the handshake", func() string { // the client reads the alert before they are counted
		if stats := m.c.PortStats(); stats.Nodes != 0 || stats.Refused["handshake"] != 2 {
			return fmt.Sprintf("%+v", stats)
		}
		return ""
	})
	// Nor may it renew itself a node's certificate, or join with it.
	for _, method := range []string{api.MethodRenew, api.MethodJoin, api.MethodIssueProxy} {
		client, err := (rpc.DialConfig{TLS: node}).Dial(ctx, m.addr())
		if err == nil {
			_, err = rpc.Call[api.Empty](ctx, client, method, api.Empty{})
			client.Close()
		}
		if err == nil {
			t.Errorf("a proxy calls %s", method)
		}
	}
}

func TestProxyCertificateRequestsAreChecked(t *testing.T) {
	t.Parallel()
	m := startSingle(t, "a")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := trust.NewProxyRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, req := range map[string]api.ProxyCertificateRequest{
		"no request": {Service: "web", TTL: time.Hour},
		"too short":  {Service: "web", CSR: csr, TTL: time.Minute},
		"too long":   {Service: "web", CSR: csr, TTL: 91 * 24 * time.Hour},
	} {
		var refused *api.Error
		if _, err := m.c.IssueProxy(t.Context(), &req); !errors.As(err, &refused) || refused.Code != api.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
