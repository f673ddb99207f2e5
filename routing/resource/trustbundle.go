package resource

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// KindTrustBundle is the kind of TrustBundle.
const KindTrustBundle = "TrustBundle"

// OwnTrustDomain is the name by which resources refer to the cluster's own trust
// domain. No TrustBundle has it.
const OwnTrustDomain = "cluster"

// The profiles of a bundle endpoint (SPIFFE Federation, section 5.2).
const (
	ProfileWeb    = "https_web"
	ProfileSPIFFE = "https_spiffe"
)

// TrustBundle has the certificate authorities of another SPIFFE trust domain. They
// verify certificates with SPIFFE IDs of that domain, and of no other.
type TrustBundle struct {
	// TrustDomain is the name of the trust domain, such as partner.example. No two
	// TrustBundles have the same one, and none that of the cluster. Required.
	TrustDomain string `yaml:"trustDomain"`
	// Bundle has the authorities: PEM certificates or a SPIFFE bundle (a JWK set), as
	// text or as the file that holds it, relative to the resource's file and read when
	// it is applied. With endpoint it is in use until a fetch succeeds, and again
	// after a change of this field. Required, unless endpoint is given; required with
	// profile https_spiffe where the endpoint's ID is of the same trust domain.
	Bundle string `yaml:"bundle"`
	// Endpoint is where the trust domain publishes its bundle. Left out: only bundle
	// is used.
	Endpoint *BundleEndpoint `yaml:"endpoint"`
}

// BundleEndpoint is where a trust domain publishes its bundle (SPIFFE Federation).
// The cluster's leader fetches it at the refresh hint of the bundle, or every 5 minutes
// without one, and stores it for all nodes. A bundle that cannot be fetched or used
// changes nothing.
type BundleEndpoint struct {
	// URL is an https URL without user and fragment. Required.
	URL string `yaml:"url"`
	// Profile says how the endpoint's own certificate is verified: https_web (by its
	// host name) or https_spiffe (by its SPIFFE ID). Required.
	Profile string `yaml:"profile" oneof:"https_web https_spiffe"`
	// SPIFFEID is the endpoint's SPIFFE ID, verified by the bundle in use of its trust
	// domain. Required with https_spiffe, and only for it.
	SPIFFEID string `yaml:"spiffeID"`
	// CA is a bundle of PEM certificates that verifies the endpoint, or the file that
	// holds it, relative to the resource's file and read when it is applied. Only with
	// https_web. Left out: the system's.
	CA string `yaml:"ca"`
}

// WithDefaults returns a copy with all defaults filled in.
func (b *TrustBundle) WithDefaults() *TrustBundle {
	out := *b
	fill(reflect.ValueOf(&out).Elem())
	return &out
}

// Refs returns nothing: a trust bundle refers to no other resource.
func (b *TrustBundle) Refs() []Ref { return nil }

// Files lists the files of a trust bundle.
func (b *TrustBundle) Files() []FileRef {
	var files []FileRef
	if !IsJWKSet(b.Bundle) {
		files = CAFile("spec.bundle", &b.Bundle)
	}
	if b.Endpoint != nil {
		files = append(files, CAFile("spec.endpoint.ca", &b.Endpoint.CA)...)
	}
	return files
}

// IsJWKSet reports whether text looks like a JWK set (JSON) rather than PEM or a file
// name.
func IsJWKSet(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "{") }

// IsBundle reports whether text is a bundle rather than a file name.
func IsBundle(text string) bool { return IsJWKSet(text) || IsPEM(text) }

// trustDomainRefs returns the references of a list of trust domains.
func trustDomainRefs(path string, names []string) (refs []Ref) {
	for i, name := range names {
		if name != OwnTrustDomain && name != "" {
			refs = append(refs, Ref{Key: Key{KindTrustBundle, name}, Path: Item(path, i)})
		}
	}
	return refs
}

// TrustDomainRefs returns the references of clients' trust domains; path is that of
// the ClientAuth.
func (c *ClientAuth) TrustDomainRefs(path string) []Ref {
	if c == nil {
		return nil
	}
	return trustDomainRefs(path+".trustDomains", c.TrustDomains)
}

const (
	// MaxBundle bounds a bundle as text, in bytes.
	MaxBundle = 256 << 10
	// maxAuthorities bounds the certificates of a bundle, which every node keeps.
	maxAuthorities = 100
)

// Bundle is a parsed trust bundle.
type Bundle struct {
	// Authorities sign X.509 SVIDs of the trust domain; none: no such SVID is valid.
	Authorities []*x509.Certificate
	// Sequence grows with each change; nil: the bundle has none.
	Sequence *uint64
	// RefreshHint is the interval at which the publisher wants it to be fetched; 0: none given.
	RefreshHint time.Duration
}

// ParseBundle parses PEM certificates, or a JWK set in SPIFFE's format (SPIFFE Trust
// Domain and Bundle, section 4). Keys for other uses than X.509 SVIDs are ignored, as
// the standard requires; a key for X.509 SVIDs that is not a CA certificate makes the
// whole bundle invalid. Errors never contain content.
func ParseBundle(text string) (*Bundle, error) {
	if len(text) > MaxBundle {
		return nil, fmt.Errorf("must have at most %d bytes", MaxBundle)
	}
	b := &Bundle{}
	var err error
	if IsJWKSet(text) {
		b, err = parseJWKSet(text)
	} else {
		b.Authorities, err = ParseCertificates(text)
	}
	if err != nil {
		return nil, err
	}
	if len(b.Authorities) > maxAuthorities {
		return nil, fmt.Errorf("has %d certificates; the limit is %d", len(b.Authorities), maxAuthorities)
	}
	for i, cert := range b.Authorities {
		if !cert.BasicConstraintsValid || !cert.IsCA {
			return nil, fmt.Errorf("certificate %d may not sign others, so it is not a CA", i+1)
		}
	}
	return b, nil
}

// jwkSet is a bundle as JSON.
type jwkSet struct {
	Keys     *[]jwk  `json:"keys"`
	Sequence *uint64 `json:"spiffe_sequence"`
	Refresh  *int64  `json:"spiffe_refresh_hint"` // seconds
}

type jwk struct {
	Type  string   `json:"kty"`
	Use   string   `json:"use"`
	Chain []string `json:"x5c"` // standard base64 of DER (RFC 7517, section 4.7)
}

// usesX509 is the use of keys that sign X.509 SVIDs.
const usesX509 = "x509-svid"

func parseJWKSet(text string) (*Bundle, error) {
	var set jwkSet
	if json.Unmarshal([]byte(text), &set) != nil { // its error may quote content
		return nil, errors.New("is not a SPIFFE bundle: want a JSON object with the list keys and, optionally, the integers spiffe_sequence and " +
			"spiffe_refresh_hint, not negative")
	}
	if set.Keys == nil {
		return nil, errors.New("has no keys: a SPIFFE bundle has a list of them, even if it is empty")
	}
	b := &Bundle{Sequence: set.Sequence}
	if set.Refresh != nil {
		const longest = 365 * 24 * 3600
		if *set.Refresh < 0 {
			return nil, errors.New("has a negative spiffe_refresh_hint")
		}
		b.RefreshHint = time.Duration(min(*set.Refresh, longest)) * time.Second
	}
	for i := range *set.Keys {
		k := &(*set.Keys)[i]
		if k.Use != usesX509 || k.Type == "" {
			continue
		}
		if len(k.Chain) != 1 {
			return nil, fmt.Errorf("keys[%d].x5c has %d certificates, want one", i, len(k.Chain))
		}
		der, err := base64.StdEncoding.DecodeString(k.Chain[0])
		if err != nil {
			return nil, fmt.Errorf("keys[%d].x5c is not base64", i)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("keys[%d].x5c cannot be read: %w", i, err)
		}
		b.Authorities = append(b.Authorities, cert)
	}
	return b, nil
}
