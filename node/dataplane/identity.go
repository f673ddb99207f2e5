package dataplane

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"

	"penstock/netio"
	"penstock/netio/proxyproto"
	"penstock/node/tlsconfig"
	"penstock/routing/resource"
)

// The tags from a verified client certificate.
const (
	tagService = "service"
	tagSPIFFE  = "spiffe"
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
// is the service. A certificate whose SPIFFE ID violates that standard, as one
// with a second URI SAN does, yields no tags at all.
func identity(state *tls.ConnectionState) map[string]string {
	leaf := verifiedLeaf(state)
	if leaf == nil {
		return nil
	}
	tags := map[string]string{}
	put := func(name, value string) {
		if fitsTag(name) && fitsTag(value) && len(tags) < maxIdentityTags {
			tags[name] = value
		}
	}
	if tlsconfig.ClaimsSPIFFE(leaf) {
		id, err := tlsconfig.SPIFFEID(leaf)
		if err != nil {
			return nil
		}
		put(tagService, id.Path[strings.LastIndexByte(id.Path, '/')+1:])
		put(tagSPIFFE, id.String())
	} else {
		for _, name := range leaf.DNSNames {
			if !strings.HasPrefix(name, "*.") {
				put(tagService, strings.ToLower(name))
				break
			}
		}
	}
	for _, u := range leaf.URIs {
		if name := strings.TrimPrefix(u.Host+u.Path, "/"); u.Scheme == tlsconfig.KumaScheme {
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

// fitsTag reports whether a route can match a tag with this name or value.
func fitsTag(s string) bool {
	const longest = 253
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == ',' || r == '=' || r == '"' }
	return s != "" && len(s) <= longest && strings.IndexFunc(s, odd) < 0
}

// verifiedLeaf returns the client's certificate if the listener has verified it, or
// nil.
func verifiedLeaf(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return nil
	}
	return state.PeerCertificates[0]
}

// forwardClientCert is the header that tells endpoints a client's certificate.
const forwardClientCert = "X-Forwarded-Client-Cert"

// forwardCert sets X-Forwarded-Client-Cert for a client with a verified certificate. With
// set, the client's own header has been removed before.
func (c *httpClient) forwardCert(h http.Header, mode string) {
	list := slices.DeleteFunc(slices.Clone(h[forwardClientCert]), func(text string) bool { return text == "" })
	if mode != resource.ClientCertForward {
		list = append(list, c.clientCert())
	}
	if len(list) == 0 {
		delete(h, forwardClientCert)
		return
	}
	h[forwardClientCert] = []string{strings.Join(list, ",")}
}

// clientCert returns the client's X-Forwarded-Client-Cert.
func (c *httpClient) clientCert() string {
	text := c.xfcc.Load()
	if text == nil { // two requests at once make the same text
		var made string
		if c.cert != nil {
			made = tlsconfig.ForwardedClientCert(c.cert)
		} else { // a client of another node, which has told no more of the certificate
			made = tlsconfig.ForwardedSPIFFEID(c.spiffe())
		}
		text = &made
		c.xfcc.Store(text)
	}
	return *text
}

// proven is what a client has shown of itself by TLS: to this node, or to the node of
// the mesh from which its connection comes.
type proven struct {
	tls  string            // version, such as "1.3"; "": no TLS
	alpn string            // the protocol that TLS negotiated
	cert *x509.Certificate // verified by this node; nil: none
	mesh *proxyproto.Mesh  // nil: the client is connected to this node
}

func provenBy(c *netio.Conn) proven {
	if m := c.Mesh(); m != nil { // TLS is that of the other node
		p := proven{mesh: m}
		if ssl, alpn := c.MeshTLS(); ssl != nil {
			p.tls, p.alpn = strings.TrimPrefix(ssl.Version, "TLSv"), alpn
		}
		return p
	}
	state := c.TLS()
	if state == nil {
		return proven{}
	}
	p := proven{alpn: state.NegotiatedProtocol, cert: verifiedLeaf(state)}
	if state.Version != 0 { // 0: the handshake failed
		p.tls = strings.TrimPrefix(tls.VersionName(state.Version), "TLS ")
	}
	return p
}

// spiffe returns the client's SPIFFE ID; "": none.
func (p *proven) spiffe() string {
	switch {
	case p.mesh != nil:
		return p.mesh.SPIFFEID
	case p.cert == nil:
		return ""
	}
	id, err := tlsconfig.SPIFFEID(p.cert)
	if err != nil {
		return ""
	}
	return id.String()
}

// name returns the client's SPIFFE ID, or else the subject of its certificate; ""
// without one.
func (p *proven) name() string {
	if id := p.spiffe(); id != "" || p.cert == nil {
		return id
	}
	return tlsconfig.Subject(p.cert)
}

// typeSPIFFE is the type of the TLV with a client's SPIFFE ID.
const typeSPIFFE = 0xE1

// tlvs returns the TLV with the client's SPIFFE ID, or none.
func (p *proven) tlvs() []proxyproto.TLV {
	id := p.spiffe()
	if id == "" {
		return nil
	}
	return []proxyproto.TLV{{Type: typeSPIFFE, Value: id}}
}
