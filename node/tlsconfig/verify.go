package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"penstock/routing/resource"
)

// KumaScheme is the scheme of the URIs by which Kuma's certificates carry tags,
// beside the SPIFFE ID: kuma://version/v2.
const KumaScheme = "kuma"

// What a certificate lacks that is to have a SPIFFE ID.
var (
	errNoSPIFFE   = errors.New("the certificate has no SPIFFE ID")
	errSeveralURI = errors.New("the certificate has several URI SANs; an X509-SVID has exactly one")
	errSigning    = errors.New("the certificate may sign others; the leaf of an X509-SVID may not")
)

// SPIFFEID returns the SPIFFE ID of a certificate whose chain is verified. It
// accepts what the X509-SVID standard does (section 5.2): exactly one URI SAN,
// which is a valid ID with a path, in a certificate that may not sign others. Only
// URIs of the scheme "kuma" may be beside it: Kuma's certificates carry tags so.
func SPIFFEID(leaf *x509.Certificate) (resource.SPIFFEID, error) {
	text, uris := "", 0
	for _, u := range leaf.URIs {
		if u.Scheme != KumaScheme {
			text = u.String()
			uris++
		}
	}
	switch {
	case !ClaimsSPIFFE(leaf):
		return resource.SPIFFEID{}, errNoSPIFFE
	case uris > 1:
		return resource.SPIFFEID{}, errSeveralURI
	case leaf.IsCA || leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
		return resource.SPIFFEID{}, errSigning
	}
	id, err := resource.ParseSPIFFEID(text)
	if err == nil && id.Path == "" {
		err = errors.New("names a trust domain, not a workload: it has no path")
	}
	if err != nil {
		return resource.SPIFFEID{}, fmt.Errorf("the certificate's SPIFFE ID %.100q: %w", text, err)
	}
	return id, nil
}

// ClaimsSPIFFE reports whether a certificate claims a SPIFFE ID, which SPIFFEID may
// refuse. Its other names say nothing then.
func ClaimsSPIFFE(leaf *x509.Certificate) bool {
	for _, u := range leaf.URIs {
		if u.Scheme == "spiffe" {
			return true
		}
	}
	return false
}

// matchSPIFFE returns why none of the patterns matches the ID of a certificate.
func matchSPIFFE(patterns []string, leaf *x509.Certificate) error {
	id, err := SPIFFEID(leaf)
	if err != nil {
		return err
	}
	if !matchesAny(patterns, id) {
		return notAllowed(id)
	}
	return nil
}

func matchesAny(patterns []string, id resource.SPIFFEID) bool {
	text := id.String()
	return slices.ContainsFunc(patterns, func(p string) bool { return resource.MatchSPIFFE(p, text) })
}

func notAllowed(id resource.SPIFFEID) error {
	return fmt.Errorf("the SPIFFE ID %s is not one of those allowed", id)
}

// refused is the error by which a handshake tells that a certificate whose chain is
// good has the wrong identity. Its type makes it a refused certificate, to which
// crypto/tls sends the alert bad_certificate.
func refused(certs []*x509.Certificate, why error) error {
	return &tls.CertificateVerificationError{UnverifiedCertificates: certs, Err: why}
}

// checkEndpoint returns the check of an endpoint's certificate that replaces that of
// crypto/tls: the chain, for servers, to these roots (nil: the system's), and then
// one of the identities. crypto/tls calls it in resumed handshakes too.
func checkEndpoint(roots *x509.CertPool, v *resource.Verify) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		certs := state.PeerCertificates
		if len(certs) == 0 {
			return refused(nil, errors.New("the endpoint showed no certificate"))
		}
		if err := verifyServer(certs, roots); err != nil {
			return refused(certs, err)
		}
		if err := matchEndpoint(v, certs[0]); err != nil {
			return refused(certs, err)
		}
		return nil
	}
}

// verifyServer verifies the chain of a server's certificate, the leaf first, to roots
// (nil: the system's).
func verifyServer(certs []*x509.Certificate, roots *x509.CertPool) error {
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range certs[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := certs[0].Verify(opts)
	return err
}

// matchEndpoint returns why a certificate has none of the identities.
func matchEndpoint(v *resource.Verify, leaf *x509.Certificate) error {
	for _, name := range v.DNS {
		if leaf.VerifyHostname(name) == nil {
			return nil
		}
	}
	for _, u := range leaf.URIs {
		if len(v.URI) > 0 && slices.Contains(v.URI, u.String()) {
			return nil
		}
	}
	if len(v.SPIFFE) > 0 {
		err := matchSPIFFE(v.SPIFFE, leaf)
		if err == nil || len(v.DNS)+len(v.URI) == 0 {
			return err
		}
	}
	const shown = 4 // names in an error, which the access log repeats
	names := slices.Clone(leaf.DNSNames)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	return fmt.Errorf("the certificate has none of the identities of tls.verify; it is for %.300q",
		strings.Join(names[:min(len(names), shown)], ", "))
}
