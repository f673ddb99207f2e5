package routing

import (
	"fmt"
	"slices"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// anyName stands for all server names among those of a certificate. It is no pattern.
const anyName = "*"

// putCertificate records a certificate's new resource; a nil spec removes it.
func (c *compiler) putCertificate(name string, spec resource.Spec) error {
	c.dirtyCertificates[name] = true
	c.certificates.Delete(name)
	key := resource.Key{Kind: "Certificate", Name: name}
	change := resource.Delete(key)
	defer func() { c.gatewayChanges = append(c.gatewayChanges, change) }() // a Delete unless the certificate parses
	cert, ok := spec.(*resource.Certificate)
	if !ok {
		if spec != nil {
			return fmt.Errorf("spec has type %T", spec)
		}
		return nil
	}
	if (cert.ACME != nil || cert.HasBundle()) && cert.Cert == "" {
		return nil // not issued yet: the listener has no certificate for these names
	}
	leaf, err := cert.Leaf()
	if err != nil {
		return err
	}
	names := make([]string, 0, len(leaf.DNSNames))
	if cert.ForAnyName(leaf) {
		names = append(names, anyName)
	}
	for _, s := range leaf.DNSNames {
		if pattern, err := hostname.ParsePattern(s); err == nil { // a name that is no valid pattern never matches an SNI
			names = append(names, pattern)
		}
	}
	c.certificates.Set(name, names)
	change = resource.Put(resource.Object{Key: key, Spec: cert})
	return nil
}

// certificateUsers returns the listeners that refer to a changed certificate.
func (c *compiler) certificateUsers() (names []string) {
	if len(c.dirtyCertificates) == 0 {
		return nil
	}
	for l := range c.old.Listeners() {
		if l.spec.TLS != nil && slices.ContainsFunc(l.spec.TLS.CertificateRefs, func(ref string) bool { return c.dirtyCertificates[ref] }) {
			names = append(names, l.name)
		}
	}
	return names
}

// hasOtherCertificates reports whether a listener's certificates may have
// changed.
func (c *compiler) hasOtherCertificates(l *Listener) bool {
	old, ok := c.old.listeners.Get(l.name)
	if !ok || old.spec.TLS == nil || l.spec.TLS == nil {
		return l.spec.TLS != nil
	}
	return !slices.Equal(old.spec.TLS.CertificateRefs, l.spec.TLS.CertificateRefs) ||
		slices.ContainsFunc(l.spec.TLS.CertificateRefs, func(ref string) bool { return c.dirtyCertificates[ref] })
}

// withCertificates returns the listener with its certificates indexed by name.
// A name that several certificates cover has them all, in the order of the
// references, so that each client gets one that it supports.
func (c *compiler) withCertificates(l *Listener) *Listener {
	edit := hostname.Matcher[[]string]{}.Edit()
	var forAny []string
	for _, ref := range l.spec.TLS.CertificateRefs {
		names, _ := c.certificates.Get(ref)
		for _, name := range names {
			if name == anyName {
				forAny = append(forAny, ref)
				continue
			}
			before, _ := edit.Get(name)
			if !slices.Contains(before, ref) {
				edit.Set(name, append(slices.Clip(before), ref))
			}
		}
	}
	next := *l
	next.certificates, next.certificatesForAny = edit.Matcher(), forAny
	return &next
}

// Certificates returns the names of the Certificates to offer a client, the
// best first, or the reason to refuse it. The rules are those of routing: a
// name without a certificate does not get another name's, only one that has no
// names but a SPIFFE ID. Without a name the listener's noServerName applies.
//
// A mysql listener presents its first certificate where none covers the name, or there
// is no name: its clients rarely send one, and many verify the CA alone.
func (l *Listener) Certificates(serverName string, hasServerName bool) ([]string, Reason) {
	if !hasServerName {
		if l.spec.NoServerName != "service" && !l.speaksMySQL() {
			return nil, NoServerName
		}
		if l.spec.TLS == nil || len(l.spec.TLS.CertificateRefs) == 0 {
			return nil, NoCertificate
		}
		return l.spec.TLS.CertificateRefs[:1], OK
	}
	name, ok := hostname.CheckSNI(serverName)
	if !ok {
		return nil, BadServerName
	}
	if m, ok := l.certificates.Match(name); ok {
		return m.Value, OK
	}
	if len(l.certificatesForAny) > 0 {
		return l.certificatesForAny, OK
	}
	if l.speaksMySQL() && l.spec.TLS != nil && len(l.spec.TLS.CertificateRefs) > 0 {
		return l.spec.TLS.CertificateRefs[:1], OK
	}
	return nil, NoCertificate
}
