package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// mustIssueSVID issues an SVID for a new key, and returns it with the key as PEM.
func mustIssueSVID(t *testing.T, ca *CA, ttl time.Duration, now time.Time) (leaf *x509.Certificate, keyPEM []byte) {
	t.Helper()
	keyPEM, csr, err := NewWorkloadRequest()
	if err != nil {
		t.Fatal(err)
	}
	pub, err := CheckProxyRequest(csr)
	if err != nil {
		t.Fatal(err)
	}
	id := &url.URL{Scheme: "spiffe", Host: ca.ClusterID(), Path: "/ns/shop/web"}
	leaf, err = ca.IssueSVID(pub, SVID{ID: id, DNS: []string{"web.example"}, TTL: ttl}, now)
	if err != nil {
		t.Fatal(err)
	}
	return leaf, keyPEM
}

// go-spiffe, the reference implementation in Go, takes what is issued, also by a CA
// in rotation and with the previous bundle.
func TestSVIDConformsToTheStandard(t *testing.T) {
	t.Parallel()
	now := time.Now()
	first, err := NewCA(NewClusterID(), "", now)
	if err != nil {
		t.Fatal(err)
	}
	next, err := first.Next(now)
	if err != nil {
		t.Fatal(err)
	}
	domain := spiffeid.RequireTrustDomainFromString(first.ClusterID())
	for _, c := range []struct {
		name          string
		signer, peers *CA
	}{{"one CA", first, first}, {"the next CA", next, next}, {"the next CA, to peers with the previous bundle", next, first}} {
		leaf, keyPEM := mustIssueSVID(t, c.signer, time.Hour, now)
		chain := CertificatesPEM(append([][]byte{leaf.Raw}, c.signer.Intermediates()...)...)
		svid, err := x509svid.Parse(chain, keyPEM)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		bundle, err := x509bundle.Parse(domain, CertificatesPEM(c.peers.Roots()...))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		id, _, err := x509svid.Verify(svid.Certificates, bundle)
		if err != nil || id.String() != "spiffe://"+first.ClusterID()+"/ns/shop/web" {
			t.Errorf("%s: %v, %v", c.name, id, err)
		}
	}
}

// go-spiffe reads the bundle as that of the trust domain, while the CA is replaced too.
func TestTrustBundleConformsToTheStandard(t *testing.T) {
	t.Parallel()
	now := time.Now()
	first, err := NewCA(NewClusterID(), "", now)
	if err != nil {
		t.Fatal(err)
	}
	next, err := first.Next(now)
	if err != nil {
		t.Fatal(err)
	}
	domain := spiffeid.RequireTrustDomainFromString(first.ClusterID())
	for _, ca := range []*CA{first, next} {
		text, err := SPIFFEBundle(ca.Roots(), 7)
		if err != nil {
			t.Fatal(err)
		}
		bundle, err := spiffebundle.Parse(domain, text)
		if err != nil {
			t.Fatal(err)
		}
		leaf, _ := mustIssueSVID(t, ca, time.Hour, now)
		if id, _, err := x509svid.Verify([]*x509.Certificate{leaf}, bundle); err != nil || id.TrustDomain() != domain {
			t.Errorf("%v, %v", id, err)
		}
		sequence, _ := bundle.SequenceNumber()
		refresh, _ := bundle.RefreshHint()
		if n := len(bundle.X509Authorities()); n != len(ca.Roots()) || sequence != 7 || refresh != BundleRefresh {
			t.Errorf("%d authorities, sequence %d, refresh %v", n, sequence, refresh)
		}
	}
	if _, err := SPIFFEBundle([][]byte{{1}}, 1); !errors.Is(err, ErrCertificate) {
		t.Errorf("no certificate: %v", err)
	}
}

func TestSVIDIsForALeafOfOneCluster(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca, err := NewCA(NewClusterID(), "", now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewCA(NewClusterID(), "", now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ := mustIssueSVID(t, ca, time.Hour, now)
	if leaf.IsCA || !leaf.BasicConstraintsValid || len(leaf.URIs) != 1 || len(leaf.DNSNames) != 1 ||
		leaf.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("%+v", leaf)
	}
	if err := checkProxyCert(leaf, ca.ClusterID()); !errors.Is(err, ErrProxy) {
		t.Errorf("a workload passes for a proxy: %v", err)
	}
	domain := spiffeid.RequireTrustDomainFromString(ca.ClusterID())
	foreign := x509bundle.FromX509Authorities(domain, []*x509.Certificate{other.Certificate()})
	if _, _, err := x509svid.Verify([]*x509.Certificate{leaf}, foreign); err == nil {
		t.Error("another cluster's CA signs it")
	}
}

// Clocks an hour apart agree on a certificate, and it ends when it says.
func TestSVIDIsValidUnderSkewedClocks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca, err := NewCA(NewClusterID(), "", now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ := mustIssueSVID(t, ca, 90*time.Minute, now)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	for shift, valid := range map[time.Duration]bool{
		-3 * time.Hour: false, -time.Hour: true, 0: true, time.Hour: true, 91 * time.Minute: false,
	} {
		_, err := leaf.Verify(x509.VerifyOptions{
			Roots: roots, CurrentTime: now.Add(shift), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if (err == nil) != valid {
			t.Errorf("a clock %v off: %v", shift, err)
		}
	}
}

func TestSVIDLifetimeIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca, err := NewCA(NewClusterID(), "", now)
	if err != nil {
		t.Fatal(err)
	}
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	pub := key.Public().(*ecdsa.PublicKey)
	id := &url.URL{Scheme: "spiffe", Host: ca.ClusterID(), Path: "/a"}
	for _, ttl := range []time.Duration{0, -time.Hour, MinSVIDLifetime - 1, MaxSVIDLifetime + 1} {
		if _, err := ca.IssueSVID(pub, SVID{ID: id, TTL: ttl}, now); !errors.Is(err, ErrCertificate) {
			t.Errorf("%v: %v", ttl, err)
		}
	}
	late := ca.Certificate().NotAfter.Add(-MinSVIDLifetime)
	leaf, err := ca.IssueSVID(pub, SVID{ID: id, TTL: time.Hour}, late)
	if err != nil || leaf.NotAfter.After(ca.Certificate().NotAfter) {
		t.Errorf("it outlives the CA: %v", err)
	}
	if !bytes.Equal(leaf.AuthorityKeyId, ca.Certificate().SubjectKeyId) {
		t.Error("it does not name its CA")
	}
}
