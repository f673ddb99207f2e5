package tlsconfig

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"penstock/node/trust"
	"penstock/routing/resource"
)

// Why a peer is not of a trust domain that it may be of.
var (
	errNoCertificate = errors.New("the peer showed no certificate")
	errForeign       = errors.New("is of a trust domain that is not accepted here")
	errNotItsOwn     = errors.New("the certificate is not signed by an authority of the trust domain of its SPIFFE ID")
)

// domains are the trust domains whose workloads a peer may be, by the names of their
// bundles. What a bundle contains is looked up at each handshake.
//
// A certificate is verified by the bundle of the trust domain of its own ID alone
// (SPIFFE Federation, section 7.3): with one pool of all authorities, each of them
// could sign the IDs of the others.
type domains struct {
	bundles *trust.Bundles // nil: there are none, so nobody is accepted
	names   []string
}

// current returns the bundles in force.
func (d *domains) current() *trust.BundleSet {
	if d.bundles == nil {
		return nil
	}
	set, _ := d.bundles.Current()
	return set
}

// accepted returns those of the bundles that are accepted here and exist.
func (d *domains) accepted(set *trust.BundleSet) (list []*trust.Bundle) {
	if set == nil {
		return nil
	}
	for _, name := range d.names {
		if b := set.Get(name); b != nil {
			list = append(list, b)
		}
	}
	return list
}

// bundleOf returns the bundle by which a certificate must be verified, and its ID.
func (d *domains) bundleOf(leaf *x509.Certificate) (*trust.Bundle, resource.SPIFFEID, error) {
	id, err := strictID(leaf)
	if err != nil {
		return nil, id, err
	}
	for _, b := range d.accepted(d.current()) {
		if b.TrustDomain == id.TrustDomain {
			return b, id, nil
		}
	}
	return nil, id, fmt.Errorf("the SPIFFE ID %s %w", id, errForeign)
}

// strictID returns the SPIFFE ID of an X509-SVID, whose only URI SAN it is. SPIFFEID
// takes Kuma's certificates too, which have others.
func strictID(leaf *x509.Certificate) (resource.SPIFFEID, error) {
	id, err := SPIFFEID(leaf)
	if err == nil && len(leaf.URIs) != 1 {
		err = errSeveralURI
	}
	return id, err
}

// checkChains verifies a client's certificate by the chains that crypto/tls has found,
// to all authorities that are accepted here: one of them must end at an authority of
// the trust domain of its own ID.
func (d *domains) checkChains(state *tls.ConnectionState) error {
	bundle, _, err := d.bundleOf(state.PeerCertificates[0])
	if err != nil {
		return err
	}
	if !endsAt(state.VerifiedChains, bundle.Has) {
		return errNotItsOwn
	}
	return nil
}

// endsAt reports whether a chain ends at a certificate for which is holds.
func endsAt(chains [][]*x509.Certificate, is func(*x509.Certificate) bool) bool {
	return slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
		return len(chain) > 0 && is(chain[len(chain)-1])
	})
}

// VerifySVID verifies the certificate of a server, an X509-SVID with its chain, by
// the bundle of the trust domain of its own ID, which bundleOf returns or refuses.
func VerifySVID(
	certs []*x509.Certificate, bundleOf func(*x509.Certificate) (*trust.Bundle, resource.SPIFFEID, error),
) (resource.SPIFFEID, error) {
	if len(certs) == 0 {
		return resource.SPIFFEID{}, errNoCertificate
	}
	bundle, id, err := bundleOf(certs[0])
	if err != nil {
		return id, err
	}
	return id, verifyServer(certs, bundle.Pool)
}

// BundleOf returns what VerifySVID takes, for a server with one ID.
func BundleOf(want resource.SPIFFEID, bundle *trust.Bundle) func(*x509.Certificate) (*trust.Bundle, resource.SPIFFEID, error) {
	return func(leaf *x509.Certificate) (*trust.Bundle, resource.SPIFFEID, error) {
		id, err := strictID(leaf)
		if err == nil && id != want {
			err = fmt.Errorf("the SPIFFE ID is %s, want %s", id, want)
		}
		return bundle, id, err
	}
}

// checkMember returns the check of an endpoint by its trust domain and its ID, in
// place of that of crypto/tls, which calls it in resumed handshakes too.
func checkMember(d *domains, patterns []string) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		id, err := VerifySVID(state.PeerCertificates, d.bundleOf)
		if err == nil && !matchesAny(patterns, id) {
			err = notAllowed(id)
		}
		if err != nil {
			return refused(state.PeerCertificates, err)
		}
		return nil
	}
}

// trusted is what clients' certificates are verified against at a moment.
type trusted struct {
	set  *trust.BundleSet
	pool *x509.CertPool // of all trust domains, and of ca
	// scope is what sessions are bound to: one is not resumed after a bundle changed.
	scope string
}

// trustCache keeps the last trusted. The zero value is empty.
type trustCache struct{ last atomic.Pointer[trusted] }

// get returns what is trusted now. others are trusted as well.
func (c *trustCache) get(d *domains, others []*x509.Certificate) *trusted {
	set := d.current()
	last := c.last.Load()
	if last != nil && last.set == set {
		return last
	}
	h, pool := sha256.New(), x509.NewCertPool()
	for _, b := range d.accepted(set) {
		_, _ = h.Write([]byte(b.Digest()))
		for _, cert := range b.Authorities {
			pool.AddCert(cert)
		}
	}
	for _, cert := range others {
		pool.AddCert(cert)
	}
	now := &trusted{set, pool, hex.EncodeToString(h.Sum(nil))}
	if last != nil && last.scope == now.scope { // a bundle of others has changed
		now.pool = last.pool
	}
	c.last.Store(now)
	return now
}
