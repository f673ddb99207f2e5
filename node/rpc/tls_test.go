package rpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"penstock/node/api"
)

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

// node issues a node's certificate.
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

func (c *ca) server(t testing.TB, id string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c.node(t, id)},
		ClientCAs: c.pool, ClientAuth: tls.VerifyClientCertIfGiven,
	}
}

// client returns the configuration of a node, or of a command if the ID is
// empty.
func (c *ca) client(t testing.TB, id string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.pool, ServerName: "node"}
	if id != "" {
		config.Certificates = []tls.Certificate{c.node(t, id)}
	}
	return config
}

// serveTLS serves s like a cluster port: a client with a node's certificate is
// that node.
func serveTLS(t testing.TB, s *Server, config *tls.Config) (addr string) {
	t.Helper()
	return listenTLS(t, config, func(conn net.Conn) {
		p := api.Principal{}
		if chains := conn.(*tls.Conn).ConnectionState().VerifiedChains; len(chains) > 0 {
			id := chains[0][0].Subject.CommonName
			p = api.Principal{Name: id, Role: api.RoleNode, Node: id}
		}
		s.ServeConn(conn, p)
	})
}

// listenTLS is listen with TLS.
func listenTLS(t testing.TB, config *tls.Config, answer func(net.Conn)) (addr string) {
	t.Helper()
	return listen(t, func(raw net.Conn) {
		conn := tls.Server(raw, config)
		if conn.HandshakeContext(t.Context()) == nil {
			answer(conn)
		}
	})
}
