package web

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// upgrade is the protocol that a message switches to, or asks for; "": none.
func upgrade(h http.Header) string {
	if !httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return ""
	}
	return h.Get("Upgrade")
}

// mayUpgrade tells whether a request may ask for a protocol: one, whose bytes
// are then the endpoint's alone to understand. Of another HTTP, or TLS, the
// requests would go past routing.
func mayUpgrade(r *http.Request, protocol string) bool {
	name, version, _ := strings.Cut(protocol, "/")
	if len(r.Header["Upgrade"]) != 1 || !r.ProtoAtLeast(1, 1) || !token(name) || version != "" && !token(version) {
		return false
	}
	switch strings.ToLower(name) {
	case "h2c", "h2", "h3", "http", "tls":
		return false
	}
	return true
}

// switches tells whether an answer switches to what was asked for.
func switches(asked, answer http.Header) bool {
	p := upgrade(asked)
	return p != "" && strings.EqualFold(p, upgrade(answer))
}

// token tells whether s is one in the sense of RFC 9110, section 5.6.2.
func token(s string) bool { return httpguts.ValidHeaderFieldName(s) }

// limitUpgrade takes an upgrade that may not be off a request, which then is
// one like any other: whoever gets it may ignore it all the same.
func limitUpgrade(in *http.Request, out http.Header) {
	if p := upgrade(out); p != "" && !mayUpgrade(in, p) {
		delete(out, "Upgrade")
		delete(out, "Connection")
	}
	delete(out, "Http2-Settings")
}
