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
	self Pair
}

// NewCA makes a CA with this common name.
func NewCA(name string) *CA {
	self := Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return &CA{PEM: self.Cert, Pool: self.Pool(), self: self}
}

// Issue makes a certificate for clients and servers. Names are DNS names or IP
// addresses; the first is the common name too.
func (ca *CA) Issue(names ...string) Pair { return sign(template(names), &ca.self) }

// IssueUntil is Issue with the end of the certificate's life.
func (ca *CA) IssueUntil(end time.Time, names ...string) Pair {
	c := template(names)
	c.NotAfter = end
	return sign(c, &ca.self)
}

// Sign makes a certificate from a template. It sets the serial number and, unless the
// template has them, the times.
func (ca *CA) Sign(template *x509.Certificate) Pair { return sign(template, &ca.self) }

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
	c := template(names)
	c.IsCA, c.KeyUsage = true, x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign
	return Sign(c)
}

// Sign makes a certificate from a template, signed by itself. It sets the
// serial number and, unless the template has them, the times.
func Sign(template *x509.Certificate) Pair { return sign(template, nil) }

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

func template(names []string) *x509.Certificate {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
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

// sign signs a template with the key of an issuer, or with its own if there is
// none.
func sign(template *x509.Certificate, issuer *Pair) Pair {
	now := time.Now()
	template.SerialNumber = big.NewInt(now.UnixNano())
	if template.NotBefore.IsZero() {
		template.NotBefore = now.Add(-lifetime)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = now.Add(lifetime)
	}
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	parent, signer := template, any(key)
	if issuer != nil {
		parent, signer = issuer.TLS.Leaf, issuer.TLS.PrivateKey
	}
	der := must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer))
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
