// Package certs makes certificates for tests and measurements.
//
//	ca := certs.NewCA("test CA")
//	server := &tls.Config{Certificates: []tls.Certificate{ca.Issue("api.example.com").TLS}}
//	client := &tls.Config{RootCAs: ca.Pool, ServerName: "api.example.com"}
//
// Its functions panic rather than return an error: keys come from the kernel's
// random numbers, which do not fail, so an error is a mistake of the caller.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime is how long certificates are valid before and after now. It allows
// for tests that shift a process's clock by a day.
const lifetime = 48 * time.Hour

// CA is an authority that signs certificates.
type CA struct {
	PEM  string
	Pool *x509.CertPool // trusts the CA
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a CA with this common name.
func NewCA(name string) *CA {
	template := template(name)
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	template.DNSNames, template.ExtKeyUsage = nil, nil
	key := newKey()
	pair := sign(template, template, key, key)
	return &CA{PEM: pair.Cert, Pool: pair.Pool(), cert: pair.TLS.Leaf, key: key}
}

// Issue makes a certificate for clients and servers. Names are DNS names or IP
// addresses; the first is the common name too.
func (ca *CA) Issue(names ...string) Pair { return ca.IssueUntil(time.Now().Add(lifetime), names...) }

// IssueUntil is Issue with the end of the certificate's life.
func (ca *CA) IssueUntil(end time.Time, names ...string) Pair {
	template := template(names...)
	template.NotAfter = end
	return sign(template, ca.cert, newKey(), ca.key)
}

// Server returns the configuration of a server with a certificate for these
// names. It verifies the certificates of clients that have one.
func (ca *CA) Server(names ...string) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(names...).TLS},
		ClientCAs:    ca.Pool, ClientAuth: tls.VerifyClientCertIfGiven,
	}
}

// Client returns the configuration of a client of a server. Without names it
// has no certificate.
func (ca *CA) Client(server string, names ...string) *tls.Config {
	config := &tls.Config{RootCAs: ca.Pool, ServerName: server}
	if len(names) > 0 {
		config.Certificates = []tls.Certificate{ca.Issue(names...).TLS}
	}
	return config
}

// SelfSigned makes a certificate that is its own CA.
func SelfSigned(names ...string) Pair {
	template := template(names...)
	template.IsCA, template.KeyUsage = true, x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign
	key := newKey()
	return sign(template, template, key, key)
}

// Pair is a certificate with its private key.
type Pair struct {
	Cert, Key string // PEM
	TLS       tls.Certificate
}

// Pool returns a pool that trusts the certificate.
func (p Pair) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.TLS.Leaf)
	return pool
}

// WriteFiles writes the certificate and the key as cert.pem and key.pem into a
// folder.
func (p Pair) WriteFiles(dir string) (cert, key string, err error) {
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := os.WriteFile(cert, []byte(p.Cert), 0o600); err != nil {
		return "", "", err
	}
	return cert, key, os.WriteFile(key, []byte(p.Key), 0o600)
}

func newKey() *ecdsa.PrivateKey {
	return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
}

func template(names ...string) *x509.Certificate {
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: names[0]},
		NotBefore: now.Add(-lifetime), NotAfter: now.Add(lifetime), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
	return c
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) Pair {
	der := must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey))
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))})
	return Pair{Cert: string(cert), Key: string(text), TLS: must(tls.X509KeyPair(cert, text))}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
