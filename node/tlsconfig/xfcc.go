package tlsconfig

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// maxXFCC bounds ForwardedClientCert's result, in bytes: many servers refuse a
// header line beyond 8 KiB.
const maxXFCC = 4 << 10

// ForwardedClientCert describes a verified certificate as one element of
// X-Forwarded-Client-Cert (Envoy, "HTTP header manipulation"): Hash, Subject, URI and
// DNS, in this order and separated by semicolons.
//
//	Hash=4c3f...;Subject="CN=web,O=Shop";URI=spiffe://prod.example/web;DNS=web.example
//
// Subject is RFC 2253 text and always quoted. A URI is quoted if it has a comma, a
// semicolon, an equals sign or a quote; a quote is written as \". No other
// backslash precedes a quote, so a reader that only knows \" finds the end of each
// value. DNS names that are no host names are left out, and so is whatever would
// exceed 4 KiB.
func ForwardedClientCert(leaf *x509.Certificate) string {
	sum := sha256.Sum256(leaf.Raw)
	b := &strings.Builder{}
	b.WriteString("Hash=" + hex.EncodeToString(sum[:]))
	put := func(key, value string) {
		if b.Len()+len(key)+len(value)+2 <= maxXFCC {
			b.WriteString(";" + key + "=" + value)
		}
	}
	put("Subject", `"`+Subject(leaf)+`"`)
	if len(leaf.URIs) == 0 {
		put("URI", "") // as Envoy does
	}
	for _, u := range leaf.URIs {
		put("URI", quoteURI(u.String()))
	}
	for _, name := range leaf.DNSNames {
		if isHostName(name) {
			put("DNS", name)
		}
	}
	return b.String()
}

// ForwardedSPIFFEID returns the header for a client of which no more is known than the
// SPIFFE ID that it has proven to another node.
func ForwardedSPIFFEID(id string) string { return "URI=" + quoteURI(id) }

// quoteURI returns a URI as a value of the header.
func quoteURI(uri string) string {
	var b strings.Builder
	quote := false
	for i := range len(uri) {
		switch c := uri[i]; {
		case c == '"':
			b.WriteString(`\"`)
			quote = true
		case c <= ' ' || c >= 0x7f || c == '\\':
			b.WriteByte('%')
			writeHex(&b, c)
		default:
			quote = quote || strings.IndexByte(",;=", c) >= 0
			b.WriteByte(c)
		}
	}
	if quote {
		return `"` + b.String() + `"`
	}
	return b.String()
}

// isHostName reports whether a DNS name can stand in the header as it is.
func isHostName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("-._*", c) < 0 {
			return false
		}
	}
	return name != ""
}

// attributeNames are OpenSSL's short names of the attributes of a subject.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST",
	"2.5.4.9": "street", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "title", "2.5.4.17": "postalCode",
	"2.5.4.42": "GN", "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
	"1.2.840.113549.1.9.1": "emailAddress",
}

// Subject returns a certificate's subject as text (RFC 2253), such as "CN=web,O=Shop":
// the last RDN first, bytes outside of printable ASCII as hexadecimal pairs.
func Subject(leaf *x509.Certificate) string {
	var rdns pkix.RDNSequence
	if rest, err := asn1.Unmarshal(leaf.RawSubject, &rdns); err != nil || len(rest) > 0 {
		return ""
	}
	var b strings.Builder
	for i := len(rdns) - 1; i >= 0; i-- {
		for j, attribute := range rdns[i] {
			switch {
			case j > 0:
				b.WriteByte('+')
			case b.Len() > 0:
				b.WriteByte(',')
			}
			writeAttribute(&b, attribute)
		}
	}
	return b.String()
}

// writeAttribute writes one attribute. Its value is the hexadecimal form of its DER
// if it has no name or is no text (RFC 2253, section 2.4).
func writeAttribute(b *strings.Builder, a pkix.AttributeTypeAndValue) {
	oid := a.Type.String()
	text, isText := a.Value.(string)
	if name, ok := attributeNames[oid]; ok && isText {
		b.WriteString(name + "=")
		writeEscaped(b, text)
		return
	}
	b.WriteString(oid + "=#")
	if der, err := asn1.Marshal(a.Value); err == nil {
		b.WriteString(strings.ToUpper(hex.EncodeToString(der)))
	}
}

// writeEscaped writes the value of an attribute. A backslash is written as a
// hexadecimal pair, which the RFC permits too, so that none can precede the quote that
// ends the header's value.
func writeEscaped(b *strings.Builder, text string) {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c >= 0x7f || c == '\\':
			b.WriteByte('\\')
			writeHex(b, c)
		case strings.IndexByte(`,+"<>;`, c) >= 0 || c == '#' && i == 0 || c == ' ' && (i == 0 || i == len(text)-1):
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
}

func writeHex(b *strings.Builder, c byte) {
	const digits = "0123456789ABCDEF"
	b.WriteByte(digits[c>>4])
	b.WriteByte(digits[c&0xf])
}
