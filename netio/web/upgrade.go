package web

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"penstock/netio/web/strict"
)

// upgrade is the protocol that a message switches to, or asks for; "": none.
func upgrade(h http.Header) string {
	if !httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return ""
	}
	return h.Get("Upgrade")
}

// mayUpgrade tells whether a request may ask for a protocol: for one alone, that
// its Disposition allows. Its bytes are then the endpoint's alone to understand.
func mayUpgrade(r *http.Request, protocol string, allowed []string) bool {
	name, version, _ := strings.Cut(protocol, "/")
	if len(r.Header["Upgrade"]) != 1 || !r.ProtoAtLeast(1, 1) || !token(name) || version != "" && !token(version) {
		return false
	}
	return slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, name) })
}

// mayHide tells whether the client may send another protocol behind the request,
// so that the bytes there have not been looked at.
func mayHide(r *http.Request) bool {
	return r.ProtoMajor == 1 && slices.ContainsFunc(r.Header["Upgrade"], strict.Switches)
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
func limitUpgrade(in *http.Request, out http.Header, allowed []string) {
	if p := upgrade(out); p != "" && !mayUpgrade(in, p, allowed) {
		delete(out, "Upgrade")
		delete(out, "Connection")
	}
	delete(out, "Http2-Settings")
}
