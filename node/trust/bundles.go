package trust

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"
)

// Bundle is the authorities of one trust domain: they verify X.509 SVIDs whose IDs
// are of that domain, and no others. It is immutable.
type Bundle struct {
	TrustDomain string
	// Authorities sign SVIDs, in the order of the bundle; none: no SVID is valid.
	Authorities []*x509.Certificate
	Pool        *x509.CertPool // of Authorities

	ders   map[string]bool
	digest string
}

// NewBundle makes a bundle.
func NewBundle(domain string, authorities []*x509.Certificate) *Bundle {
	b := &Bundle{TrustDomain: domain, Authorities: authorities, Pool: x509.NewCertPool(), ders: map[string]bool{}}
	h := sha256.New()
	_, _ = h.Write([]byte(domain))
	for _, cert := range authorities {
		b.Pool.AddCert(cert)
		b.ders[string(cert.Raw)] = true
		sum := sha256.Sum256(cert.Raw)
		_, _ = h.Write(sum[:])
	}
	b.digest = hex.EncodeToString(h.Sum(nil))
	return b
}

// ParseBundle makes a bundle of certificates as DER.
func ParseBundle(domain string, ders [][]byte) (*Bundle, error) {
	authorities, err := parseCerts(ders)
	if err != nil {
		return nil, err
	}
	return NewBundle(domain, authorities), nil
}

// Has reports whether a certificate is one of the authorities.
func (b *Bundle) Has(cert *x509.Certificate) bool { return b.ders[string(cert.Raw)] }

// Digest identifies the trust domain and the authorities.
func (b *Bundle) Digest() string { return b.digest }

// DER returns the authorities one after the other.
func (b *Bundle) DER() (text []byte) {
	for _, cert := range b.Authorities {
		text = append(text, cert.Raw...)
	}
	return text
}

// Expires returns when the last authority ends; zero: there is none.
func (b *Bundle) Expires() (last time.Time) {
	for _, cert := range b.Authorities {
		if cert.NotAfter.After(last) {
			last = cert.NotAfter
		}
	}
	return last
}

// BundleSet has the bundles in force, by the names that resources use. It is immutable.
type BundleSet struct{ byName map[string]*Bundle }

// Get returns a bundle by its name; nil: there is none.
func (s *BundleSet) Get(name string) *Bundle { return s.byName[name] }

// Of returns the bundle of a trust domain; nil: there is none.
func (s *BundleSet) Of(domain string) *Bundle {
	for _, b := range s.byName {
		if b.TrustDomain == domain {
			return b
		}
	}
	return nil
}

// Names lists the names, sorted.
func (s *BundleSet) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

// Bundles are the trust bundles in force on a node. The methods are safe for
// concurrent use.
type Bundles struct {
	mu      sync.Mutex
	set     *BundleSet
	changed chan struct{}
}

// NewBundles returns Bundles without any.
func NewBundles() *Bundles { return &Bundles{set: &BundleSet{}, changed: make(chan struct{})} }

// Current returns the bundles in force, and a channel that is closed when they change.
// Equal results are the same pointer.
func (b *Bundles) Current() (*BundleSet, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set, b.changed
}

// Set puts a bundle in force under a name; nil removes it. It reports whether that
// changes anything.
func (b *Bundles) Set(name string, bundle *Bundle) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.set.byName[name]
	if old == bundle || old != nil && bundle != nil && old.digest == bundle.digest {
		return false
	}
	next := &BundleSet{byName: maps.Clone(b.set.byName)}
	if next.byName == nil {
		next.byName = map[string]*Bundle{}
	}
	if next.byName[name] = bundle; bundle == nil {
		delete(next.byName, name)
	}
	close(b.changed)
	b.set, b.changed = next, make(chan struct{})
	return true
}
