package dataplane

import (
	"crypto/tls"
	"net/http"
	"strings"

	"penstock/netio"
	"penstock/netio/clienthello"
	"penstock/netio/web"
)

// AuthorityChallenge is the end of a connection that was a certificate authority's
// check of a name, which this node has answered in the handshake.
const AuthorityChallenge netio.Reason = "acme_challenge"

// alpnChallenge is what a certificate authority negotiates to check a name
// (RFC 8737, section 6.2). No application protocol follows.
const alpnChallenge = "acme-tls/1"

// challengePath is where a certificate authority asks for an answer (RFC 8555,
// section 8.3); the token follows.
const challengePath = "/.well-known/acme-challenge/"

// Challenges answers the checks of certificate authorities for the names that this
// cluster has ordered a certificate for. TLS is called on the loops and must not
// block.
type Challenges interface {
	// TLS returns the configuration that answers a hello, or nil if it is no check
	// of such a name.
	TLS(h *clienthello.Hello) *tls.Config
	// HTTP returns the answer for a token on a host.
	HTTP(host, token string) (answer string, ok bool)
}

// withChallenges has a listener that reads hellos answer certificate authorities.
func (r *reconciler) withChallenges(l netio.Listener) netio.Listener {
	if r.challenges != nil && l.Mode != netio.ModePlain {
		l.Intercept = r.challenges.TLS
	}
	return l
}

// answeredChallenge reports whether a connection was a check that this node has
// answered in the handshake. Listeners may not offer the protocol themselves.
func answeredChallenge(c *netio.Conn) bool {
	state := c.TLS()
	return state != nil && state.NegotiatedProtocol == alpnChallenge
}

// answerChallenge answers a request that is the check of a certificate authority.
func (h *requests) answerChallenge(plan *web.Disposition, r *http.Request, path string) bool {
	token, ok := strings.CutPrefix(path, challengePath)
	if !ok || h.challenges == nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	answer, ok := h.challenges.HTTP(r.Host, token)
	if ok {
		plan.Answer = &web.Answer{Status: http.StatusOK, Body: answer, Header: http.Header{"Content-Type": {"application/octet-stream"}}}
	}
	return ok
}
