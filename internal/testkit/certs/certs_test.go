package certs

import (
	"crypto/x509"
	"testing"
	"time"
)

func TestCertificatesVerify(t *testing.T) {
	ca, other := NewCA("test CA"), NewCA("test CA")
	own := SelfSigned("a.example", "127.0.0.1")
	for name, c := range map[string]struct {
		pair  Pair
		roots *x509.CertPool
		host  string
		ok    bool
	}{
		"its CA":       {ca.Issue("n1", "a.example"), ca.Pool, "a.example", true},
		"another CA":   {ca.Issue("a.example"), other.Pool, "a.example", false},
		"another name": {ca.Issue("a.example"), ca.Pool, "b.example", false},
		"expired":      {ca.IssueUntil(time.Now().Add(-time.Hour), "a.example"), ca.Pool, "a.example", false},
		"self-signed":  {own, own.Pool(), "127.0.0.1", true},
	} {
		_, err := c.pair.TLS.Leaf.Verify(x509.VerifyOptions{Roots: c.roots, DNSName: c.host})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
