package resource

import "strings"

// Truster is a spec that may have CAs to verify peers by.
type Truster interface {
	// TrustedCAs lists the bundles, as PEM. Some may be empty, or the name of a file
	// that was not read.
	TrustedCAs() []string
}

var (
	_ Truster = (*Listener)(nil)
	_ Truster = (*Service)(nil)
	_ Truster = (*EndpointProvider)(nil)
	_ Truster = (*Certificate)(nil)
)

// originatePath is the path of a listener's TLS to the endpoints.
const originatePath = "spec.tls.originate"

// TrustedCAs implements Truster: what verifies clients, or endpoints.
func (l *Listener) TrustedCAs() []string {
	if l.TLS == nil {
		return nil
	}
	if t := l.Originates(); t != nil {
		return []string{t.CA}
	}
	return l.TLS.ClientAuth.TrustedCAs()
}

// TrustedCAs implements Truster; none if clients are not asked for certificates.
func (c *ClientAuth) TrustedCAs() []string {
	if c == nil || c.Mode == "none" {
		return nil
	}
	return []string{c.CA}
}

// TrustedCAs implements Truster: what verifies endpoints.
func (s *Service) TrustedCAs() []string {
	if s.TLS == nil {
		return nil
	}
	return []string{s.TLS.CA}
}

// TrustedCAs implements Truster: what verifies the servers that are asked.
func (p *EndpointProvider) TrustedCAs() (list []string) {
	for _, t := range p.tls() {
		list = append(list, t.CA)
	}
	return list
}

// TrustedCAs implements Truster: what verifies the authority's directory.
func (c *Certificate) TrustedCAs() []string {
	if c.ACME == nil {
		return nil
	}
	return []string{c.ACME.CA}
}

// CertificateBundle is the trust bundle that comes with a Certificate: the CAs of its
// trust domain, in the sense of SPIFFE.
type CertificateBundle struct {
	TrustDomain string
	PEM         string
}

// BundleUser is a spec that may verify peers by the trust bundle of a Certificate.
type BundleUser interface {
	Spec
	// BundleRef returns the name of the Certificate, and the path of the field; "":
	// there is none.
	BundleRef() (name, path string)
	// WithBundle returns a copy that verifies by a bundle; nil: it trusts nobody.
	WithBundle(b *CertificateBundle) Spec
}

var (
	_ BundleUser = (*Listener)(nil)
	_ BundleUser = (*Service)(nil)
)

// appendBundleRef appends the reference to a Certificate for its bundle, if there is one.
func appendBundleRef(refs []Ref, u BundleUser) []Ref {
	name, path := u.BundleRef()
	if name == "" {
		return refs
	}
	return append(refs, Ref{Key: Key{"Certificate", name}, Path: path})
}

// BundleRef implements BundleUser.
func (l *Listener) BundleRef() (name, path string) {
	if t := l.Originates(); t != nil {
		return t.CARef, originatePath + ".caRef"
	}
	if l.TLS == nil || l.TLS.ClientAuth == nil {
		return "", ""
	}
	return l.TLS.ClientAuth.CARef, "spec.tls.clientAuth.caRef"
}

// WithBundle implements BundleUser.
func (l *Listener) WithBundle(b *CertificateBundle) Spec {
	if t := l.Originates(); t != nil {
		return l.withOriginate(t.withBundle(b))
	}
	made, settings := *l, *l.TLS
	settings.ClientAuth, made.TLS = l.TLS.ClientAuth.WithBundle(b), &settings
	return &made
}

// WithBundle returns a copy that verifies clients by a bundle; nil: it admits nobody.
func (c *ClientAuth) WithBundle(b *CertificateBundle) *ClientAuth {
	made := *c
	made.CA = ""
	if b != nil {
		// A CA signs for the IDs of its own trust domain alone (X509-SVID, section 5).
		if made.SPIFFE = b.restrict(made.SPIFFE, true); len(made.SPIFFE) > 0 {
			made.CA = b.PEM
		}
	}
	return &made
}

// BundleRef implements BundleUser.
func (s *Service) BundleRef() (name, path string) {
	if s.TLS == nil {
		return "", ""
	}
	return s.TLS.CARef, "spec.tls.caRef"
}

// WithBundle implements BundleUser.
func (s *Service) WithBundle(b *CertificateBundle) Spec {
	made := *s
	made.TLS = s.TLS.withBundle(b)
	return &made
}

// withBundle returns a copy that verifies endpoints by a bundle; nil: it trusts nobody.
func (t *ServiceTLS) withBundle(b *CertificateBundle) *ServiceTLS {
	made := *t
	made.CA = ""
	if b != nil {
		made.CA = b.PEM
		if made.Verify != nil {
			verify := *made.Verify
			verify.SPIFFE = b.restrict(verify.SPIFFE, false)
			made.Verify = &verify
		}
	}
	return &made
}

// withOriginate returns a copy with other TLS to the endpoints.
func (l *Listener) withOriginate(t *ServiceTLS) *Listener {
	made, settings := *l, *l.TLS
	settings.Originate, made.TLS = t, &settings
	return &made
}

// restrict limits patterns to the trust domain, and leaves out those that match none of
// its IDs. With noneIsAll, no pattern means all: it returns one that matches every ID of
// the trust domain.
func (b *CertificateBundle) restrict(patterns []string, noneIsAll bool) (list []string) {
	if len(patterns) == 0 && noneIsAll {
		patterns = []string{spiffeScheme + "*/**"}
	}
	for _, p := range patterns {
		domain, path, _ := strings.Cut(strings.TrimPrefix(p, spiffeScheme), "/")
		if domain == "*" || domain == b.TrustDomain {
			list = append(list, spiffeScheme+b.TrustDomain+"/"+path)
		}
	}
	return list
}
