package dataplane

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"strings"
)

// The tags that a verified client certificate gives.
const (
	tagService = "service"
	tagSPIFFE  = "spiffe"
	// kumaScheme is that of the URIs by which Kuma's certificates carry tags:
	// kuma://version/v2.
	kumaScheme = "kuma"
)

// maxIdentityTags bounds the tags of one certificate.
const maxIdentityTags = 32

// identity is what a client has proven to be, as tags of the source of its
// connections; nil: nothing. A certificate counts when it leads to the CA that
// the listener asks for.
//
// Of a SPIFFE ID the last segment of the path names the service, as in Kuma's
// spiffe://mesh/web and Istio's spiffe://domain/ns/shop/sa/web; the whole ID is
// the tag spiffe. Without one, the first DNS name that is no wildcard is the
// service. A certificate with several SPIFFE IDs is against that standard, and
// names nobody.
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
			// The tag's own name may have slashes, as kuma.io/service; its value none.
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

// spiffeID is a certificate's SPIFFE ID, and how many it has.
func spiffeID(leaf *x509.Certificate) (id *url.URL, ids int) {
	for _, u := range leaf.URIs {
		if u.Scheme == "spiffe" && u.Host != "" {
			id = u
			ids++
		}
	}
	return id, ids
}

// fitsTag tells whether routes could be written for a name or value.
func fitsTag(s string) bool {
	const longest = 253
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == ',' || r == '=' || r == '"' }
	return s != "" && len(s) <= longest && strings.IndexFunc(s, odd) < 0
}
