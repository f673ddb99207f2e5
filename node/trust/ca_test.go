package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestCARoundTrip(t *testing.T) {
	one := newCA(t, "c1")
	for _, ca := range []*CA{one, must(one.Next(time.Now()))(t)} {
		text := must(ca.Marshal())(t)
		got := must(ParseCA(text))(t)
		if !got.key.Equal(ca.key) || got.ClusterID() != "c1" || got.Digest() != ca.Digest() ||
			!bytes.Equal(bytes.Join(got.Bundle(), nil), bytes.Join(ca.Bundle(), nil)) || got.Rotating() != ca.Rotating() {
			t.Error("another CA came back")
		}
		id := must(NewIdentity("a"))(t)
		if _, err := id.Join("c1", issue(t, got, id, time.Now()), got.Bundle(), newRing(t)); err != nil {
			t.Errorf("issuing afterwards: %v", err)
		}
		for i := range text {
			if _, err := ParseCA(text[:i]); i < len(text)-1 && !errors.Is(err, ErrCertificate) {
				t.Fatalf("cut at %d: %v", i, err)
			}
		}
	}
}

func TestParseCARejectsInvalidInput(t *testing.T) {
	ca, other := newCA(t, "c1"), newCA(t, "c2")
	id := join(t, ca, "a", time.Now())
	key, otherKey := must(marshalKey(ca.key))(t), must(marshalKey(other.key))(t)
	cert, leaf := pemOf(ca.cert.Raw), pemOf(id.leaf.Raw)
	cross := pemOf(must(ca.Next(time.Now()))(t).previous[0].Raw)
	for name, text := range map[string][]byte{
		"empty": nil, "no key": cert, "no certificate": key, "another key": append(bytes.Clone(cert), otherKey...),
		"two keys":              bytes.Join([][]byte{cert, key, otherKey}, nil),
		"a node":                append(bytes.Clone(leaf), must(marshalKey(id.key))(t)...),
		"a cross certificate":   append(bytes.Clone(cross), key...),
		"two clusters":          bytes.Join([][]byte{cert, pemOf(other.cert.Raw), key}, nil),
		"too many certificates": append(bytes.Repeat(cert, maxBundle+1), key...),
		"too large":             bytes.Repeat([]byte("\n"), maxCA+1),
		"something else":        []byte("-----BEGIN X-----\nAAAA\n-----END X-----\n"),
		"text behind":           append(must(ca.Marshal())(t), "x"...),
	} {
		if _, err := ParseCA(text); !errors.Is(err, ErrCertificate) {
			t.Errorf("%s: %v, want ErrCertificate", name, err)
		}
	}
}

func TestCertificatesOfNodes(t *testing.T) {
	now := time.Now()
	ca := newCA(t, "c1")
	id := join(t, ca, "edge-1", now)
	leaf := id.Leaf()
	cluster, node, err := nodeFromCert(leaf)
	if err != nil || cluster != "c1" || node != id.NodeID || leaf.Subject.CommonName != "edge-1" ||
		leaf.URIs[0].String() != "penstock://c1/node/"+id.NodeID {
		t.Errorf("%s, %s, %v; %v", cluster, node, err, leaf.URIs)
	}
	if d := leaf.NotAfter.Sub(now); d < 90*day-time.Minute || d > 90*day || !leaf.NotBefore.Before(now.Add(-time.Hour)) {
		t.Errorf("valid from %s to %s", leaf.NotBefore, leaf.NotAfter)
	}
	if id.NeedsRenewal(now.Add(59*day)) || !id.NeedsRenewal(now.Add(61*day)) || !id.Expires().Equal(leaf.NotAfter) {
		t.Error("it is to be renewed when a third of its life is left")
	}
	if late := join(t, ca, "late", now.Add(caLifetime-day)); late.Leaf().NotAfter.After(ca.Certificate().NotAfter) {
		t.Error("a certificate outlives its CA")
	}
	if must(NewIdentity("x"))(t).NeedsRenewal(now) || !must(NewIdentity("x"))(t).Expires().IsZero() {
		t.Error("a node in no cluster has nothing to renew")
	}
	for name, err := range map[string]error{
		"node ID":   func() error { _, err := ca.Issue(&id.key.PublicKey, "a/b", "x", now); return err }(),
		"name":      func() error { _, err := ca.Issue(&id.key.PublicKey, "aa", "a\nb", now); return err }(),
		"long name": func() error { _, err := ca.Issue(&id.key.PublicKey, "aa", strings.Repeat("x", 256), now); return err }(),
		"cluster":   func() error { _, err := NewCA("a b", "", now); return err }(),
	} {
		if !errors.Is(err, ErrID) {
			t.Errorf("an invalid %s: %v, want ErrID", name, err)
		}
	}
	if _, err := ca.Issue(ed25519.PublicKey(randomBytes(32)), "aa", "x", now); !errors.Is(err, ErrCertificate) {
		t.Errorf("another kind of key: %v", err)
	}
}

func TestRequestProvesItsKey(t *testing.T) {
	id := must(NewIdentity("edge-1"))(t)
	der := must(id.Request())(t)
	r := must(CheckRequest(der))(t)
	if r.NodeID != id.NodeID || r.Name != "edge-1" || r.KeyDigest != id.KeyDigest() || !r.Public.Equal(&id.key.PublicKey) {
		t.Errorf("%+v", r)
	}
	request := func(curve elliptic.Curve, name string, uris ...string) []byte {
		t.Helper()
		template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}
		for _, s := range uris {
			template.URIs = append(template.URIs, must(url.Parse(s))(t))
		}
		return must(x509.CreateCertificateRequest(rand.Reader, template, must(ecdsa.GenerateKey(curve, rand.Reader))(t)))(t)
	}
	p256 := elliptic.P256()
	if _, err := CheckRequest(request(p256, "a", "penstock:///node/aa")); err != nil {
		t.Fatalf("the helper's own: %v", err)
	}
	for name, bad := range map[string][]byte{
		"empty": nil, "cut": der[:len(der)-1], "another signature": flip(der, len(der)-1), "too large": make([]byte, maxRequest+1),
		"another curve": request(elliptic.P384(), "a", "penstock:///node/aa"), "no node": request(p256, "a"),
		"two nodes": request(p256, "a", "penstock:///node/aa", "penstock:///node/bb"), "a cluster": request(p256, "a", "penstock://c1/node/aa"),
		"another path": request(p256, "a", "penstock:///user/aa"), "no ID": request(p256, "a", "penstock:///node/"),
		"a path": request(p256, "a", "penstock:///node/aa/bb"), "a name of two lines": request(p256, "a\nb", "penstock:///node/aa"),
	} {
		if _, err := CheckRequest(bad); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v, want ErrRequest", name, err)
		}
	}
}

func TestIdentityRejectsMismatches(t *testing.T) {
	now := time.Now()
	ca, other := newCA(t, "c1"), newCA(t, "c2")
	id, ring := must(NewIdentity("a"))(t), newRing(t)
	leaf := issue(t, ca, id, now)
	someone := must(NewIdentity("b"))(t)
	elsewhere := must(ca.Issue(&id.key.PublicKey, someone.NodeID, "a", now))(t)
	for name, err := range map[string]error{
		"another cluster's CA":  errOf(id.Join("c1", leaf, other.Bundle(), ring)),
		"another cluster's ID":  errOf(id.Join("c2", leaf, ca.Bundle(), ring)),
		"someone else's key":    errOf(id.Join("c1", issue(t, ca, someone, now), ca.Bundle(), ring)),
		"someone else's ID":     errOf(id.Join("c1", elsewhere, ca.Bundle(), ring)),
		"another CA's leaf":     errOf(id.Join("c1", issue(t, newCA(t, "c1"), id, now), ca.Bundle(), ring)),
		"no bundle":             errOf(id.Join("c1", leaf, nil, ring)),
		"a bundle without root": errOf(id.Join("c1", leaf, [][]byte{must(ca.Next(now))(t).previous[0].Raw}, ring)),
		"a large bundle":        errOf(id.Join("c1", leaf, make([][]byte, maxBundle+1), ring)),
		"no keyring":            errOf(id.Join("c1", leaf, ca.Bundle(), nil)),
		"garbage":               errOf(id.Join("c1", []byte("x"), ca.Bundle(), ring)),
		"a large certificate":   errOf(id.Join("c1", make([]byte, maxCert+1), ca.Bundle(), ring)),
		"renewal before it":     errOf(id.Renewed(nil, leaf, ca.Bundle())),
		"a bundle before it":    errOf(id.WithBundle(ca.Bundle())),
		"a keyring before it":   errOf(id.WithKeyring(ring)),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if id.Joined() || id.leaf != nil {
		t.Error("a refused Join changed the identity")
	}
	if _, err := id.Join("c1", leaf, ca.Bundle(), ring); err != nil {
		t.Errorf("its own: %v", err)
	}
}

func errOf(_ *Identity, err error) error { return err }

// The name of a trust domain is in the certificates of the CA, of all generations.
func TestCANamesItsTrustDomain(t *testing.T) {
	now := time.Now()
	first := must(NewCA("c1", "prod.example.com", now))(t)
	next := must(first.Next(now))(t)
	for what, ca := range map[string]*CA{"first": first, "next": next, "retired": next.Retire()} {
		parsed := must(ParseCA(must(ca.Marshal())(t)))(t)
		if ca.TrustDomain() != "prod.example.com" || parsed.TrustDomain() != "prod.example.com" {
			t.Errorf("%s: %q, %q when it is read", what, ca.TrustDomain(), parsed.TrustDomain())
		}
		if id := join(t, ca, "a", now); id.TrustDomain() != "prod.example.com" || id.ClusterID != "c1" {
			t.Errorf("%s: a node has %q", what, id.TrustDomain())
		}
	}
	unnamed := must(NewCA("c1", "", now))(t)
	if got := join(t, unnamed, "a", now).TrustDomain(); got != "c1" || len(unnamed.Certificate().URIs) > 0 {
		t.Errorf("without a name it is %q", got)
	}
	proxy := must(first.IssueProxy(&must(newKey())(t).PublicKey, "web", ProxyLifetime, now))(t)
	if err := checkProxyCert(proxy, "prod.example.com"); err != nil || proxy.URIs[0].String() != "spiffe://prod.example.com/service/web" {
		t.Errorf("a proxy: %v, %v", proxy.URIs, err)
	}
	if err := checkProxyCert(proxy, "c1"); !errors.Is(err, ErrProxy) {
		t.Errorf("a proxy of another trust domain: %v", err)
	}
	// A cluster's CA never gets another name.
	id := join(t, first, "a", now)
	mixed := append(first.Bundle(), unnamed.Bundle()...)
	if _, err := id.WithBundle(mixed); !errors.Is(err, ErrCertificate) || !strings.Contains(err.Error(), "mixes the trust domains") {
		t.Errorf("a bundle of two trust domains: %v", err)
	}
	for _, bad := range []string{"Prod.example", "a/b", "a b", "a:1", "bücher", strings.Repeat("a", 256)} {
		if _, err := NewCA("c1", bad, now); !errors.Is(err, ErrID) {
			t.Errorf("%.20q: %v, want ErrID", bad, err)
		}
	}
}
