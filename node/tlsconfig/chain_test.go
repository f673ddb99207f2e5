package tlsconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"penstock/netio/tlsstream"
	"penstock/routing/resource"
)

// authority is a CA of a chain.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue signs a template; a nil authority signs by the new key itself.
func (a *authority) issue(t *testing.T, template *x509.Certificate) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent := &authority{template, key}
	if a != nil {
		parent = a
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

// authorityNamed returns the template of a CA below which there may be pathLen
// others; -1: any number.
func authorityNamed(name string, pathLen int) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		MaxPathLen: pathLen, MaxPathLenZero: pathLen == 0,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(2 * time.Hour),
	}
}

// Chains are followed as far as their CAs allow, and clocks that are an hour apart
// agree on a certificate that begins two hours before its issuance.
func TestClientChainsAndClocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what          string
		intermediates int
		pathLen       int // of the root
		clock         time.Duration
		why           string // "": admitted
	}{
		{"no CA between", 0, 0, 0, ""},
		{"a CA below one that allows none", 1, 0, 0, "too many intermediates"},
		{"30 CAs", 30, -1, 0, ""},
		{"30 CAs below one that allows 29", 30, 29, 0, "too many intermediates"},
		{"a clock an hour behind", 0, 0, -time.Hour, ""},
		{"a clock half an hour ahead", 0, 0, 30 * time.Minute, ""},
		{"a clock three hours behind", 0, 0, -3 * time.Hour, "not yet valid"},
		{"a clock three hours ahead", 0, 0, 3 * time.Hour, "expired"},
	} {
		root := (*authority)(nil).issue(t, authorityNamed("root", c.pathLen))
		signer, chain := root, [][]byte{}
		for i := range c.intermediates {
			signer = signer.issue(t, authorityNamed(fmt.Sprintf("CA %d", i), -1))
			chain = append([][]byte{signer.cert.Raw}, chain...)
		}
		template := workload(t, "spiffe://prod.example/web")
		template.NotBefore, template.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(time.Hour)
		leaf := signer.issue(t, template)
		shown := &tls.Certificate{Certificate: append([][]byte{leaf.cert.Raw}, chain...), PrivateKey: leaf.key}
		text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.cert.Raw}))
		auth := &resource.ClientAuth{Mode: "require", CA: text, SPIFFE: []string{"spiffe://prod.example/*"}}
		server := served(t, auth, tlsstream.NewTickets())
		server.Time = func() time.Time { return time.Now().Add(c.clock) }
		_, serverErr, clientErr := connect(t, server, &tls.Config{
			InsecureSkipVerify:   true,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil },
		})
		switch {
		case c.why == "" && (serverErr != nil || clientErr != nil):
			t.Errorf("%s: refused: %v, %v", c.what, serverErr, clientErr)
		case c.why != "" && (serverErr == nil || clientErr == nil || !strings.Contains(serverErr.Error(), c.why)):
			t.Errorf("%s: the server says %v, want %q; the client %v", c.what, serverErr, c.why, clientErr)
		}
	}
}
