package xds

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"penstock/node/xds/snapshot"
)

// The bounds of the SPIFFE ID specification, in bytes.
const (
	maxSPIFFE      = 2048
	maxTrustDomain = 255
)

var (
	errNoCertificate = errors.New("a verified client certificate is required")
	errNoIdentity    = errors.New("the client certificate has neither a SPIFFE ID nor a common name")
)

// identityOf returns the identity in a verified client certificate: its only URI,
// which must be a SPIFFE ID (X509-SVID specification, section 2), or the common
// name of a certificate without a URI.
func identityOf(state *tls.ConnectionState) (snapshot.Identity, error) {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return snapshot.Identity{}, errNoCertificate
	}
	leaf := state.VerifiedChains[0][0]
	id := snapshot.Identity{CommonName: leaf.Subject.CommonName}
	switch len(leaf.URIs) {
	case 0:
		if id.CommonName == "" {
			return snapshot.Identity{}, errNoIdentity
		}
		return id, nil
	case 1:
		if err := checkSPIFFE(leaf.URIs[0]); err != nil {
			return snapshot.Identity{}, fmt.Errorf("the client certificate's URI is no SPIFFE ID: %w", err)
		}
		id.SPIFFE = leaf.URIs[0].String()
		return id, nil
	}
	return snapshot.Identity{}, fmt.Errorf("the client certificate has %d URIs: want one SPIFFE ID", len(leaf.URIs))
}

var (
	trustDomain = regexp.MustCompile(`^[a-z0-9._-]+$`)
	pathSegment = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
)

// checkSPIFFE checks a SPIFFE ID (SPIFFE-ID specification, section 2).
func checkSPIFFE(u *url.URL) error {
	switch {
	case len(u.String()) > maxSPIFFE:
		return fmt.Errorf("it has more than %d bytes", maxSPIFFE)
	case u.Scheme != "spiffe":
		return fmt.Errorf("its scheme is %q", u.Scheme)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "":
		return errors.New("it may have a trust domain and a path alone")
	case len(u.Host) > maxTrustDomain || !trustDomain.MatchString(u.Host):
		return fmt.Errorf("its trust domain is %q", u.Host)
	case u.Path == "":
		return nil
	}
	for _, segment := range strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/") {
		if segment == "." || segment == ".." || !pathSegment.MatchString(segment) {
			return fmt.Errorf("its path has the segment %q", segment)
		}
	}
	return nil
}
