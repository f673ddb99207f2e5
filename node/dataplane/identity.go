package dataplane

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"strings"
)

// The tags from a verified client certificate.
const (
	tagService = "service"
	tagSPIFFE  = "spiffe"
	// kumaScheme is the scheme of the URIs by which Kuma's certificates carry
	// tags: kuma://version/v2.
	kumaScheme = "kuma"
)

// maxIdentityTags bounds the tags of one certificate.
const maxIdentityTags = 32

// identity returns a client's verified identity as tags for the source of its
// connections; nil: none. Only a certificate with a chain to the listener's client
// CA counts.
//
// The last path segment of a SPIFFE ID is the service, as in Kuma's
// spiffe://mesh/web and Istio's spiffe://domain/ns/shop/sa/web; the whole ID is
// the tag spiffe. Without a SPIFFE ID, the first DNS name that is not a wildcard
// is the service. A certificate with several SPIFFE IDs violates that standard
// and yields no tags.
func identity(state *tls.ConnectionState) map[string]string {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return nil
	}
	leaf := state.PeerCertificates[0]
	tags := map[string]string{}
	put := func(name, value string) {
		if fitsTag(name) && fitsTag(value) && len(tags) < maxIdentityTags {
			tags[name] = value
		}
	}
	id, ids := spiffeID(leaf)
	switch {
	case ids > 1:
		return nil
	case ids == 1:
		put(tagService, id.Path[strings.LastIndexByte(id.Path, '/')+1:])
		put(tagSPIFFE, id.String())
	default:
		for _, name := range leaf.DNSNames {
			if !strings.HasPrefix(name, "*.") {
				put(tagService, strings.ToLower(name))
				break
			}
		}
	}
	for _, u := range leaf.URIs {
		if name := strings.TrimPrefix(u.Host+u.Path, "/"); u.Scheme == kumaScheme {
			// The name of a tag may contain slashes (kuma.io/service), its value not.
			if cut := strings.LastIndexByte(name, '/'); cut > 0 && name[:cut] != tagService && name[:cut] != tagSPIFFE {
				put(name[:cut], name[cut+1:])
			}
		}
	}
	if len(tags) == 0 {
		return nil
	}
	return tags
}

// spiffeID returns a certificate's last SPIFFE ID and the number of them.
func spiffeID(leaf *x509.Certificate) (id *url.URL, ids int) {
	for _, u := range leaf.URIs {
		if u.Scheme == "spiffe" && u.Host != "" {
			id = u
			ids++
		}
	}
	return id, ids
}

// fitsTag reports whether a route can match a tag with this name or value.
func fitsTag(s string) bool {
	const longest = 253
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == ',' || r == '=' || r == '"' }
	return s != "" && len(s) <= longest && strings.IndexFunc(s, odd) < 0
}
