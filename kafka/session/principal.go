package session

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"penstock/kafka/filter"
)

// saslExchange is what a client claims in the SASL exchange under way. Its name counts
// once the broker has accepted it.
type saslExchange struct {
	tokens  int    // that the client has sent
	name    string // of the first; "": not to be told from it
	waiting int    // SASL requests that are not answered
	// mixed: the client has sent a SASL request before the one before it was
	// answered. Which of them an answer accepts could be told by counting, but no
	// client does that, and whoever does must not be taken for another.
	mixed bool
}

func (e *saslExchange) request() {
	e.mixed = e.mixed || e.waiting > 0
	e.waiting++
}

func (e *saslExchange) handshake() {
	e.request()
	e.tokens, e.name = 0, ""
}

func (e *saslExchange) token(mechanism string, token []byte) {
	e.request()
	if e.tokens++; e.tokens == 1 {
		e.name = provenName(mechanism, token)
	}
}

// errPrincipal ends the connection of a client that authenticates again as another
// (KIP-368 forbids it, and Kafka's brokers refuse it).
var errPrincipal = errors.New("the principal has changed")

// confirm sets the principal of an exchange that the broker has accepted.
func (e *saslExchange) confirm(c *filter.Client) error {
	if c == nil {
		return nil
	}
	now := ""
	if e.name != "" && !e.mixed {
		now = principalPrefix + e.name
	}
	if before := c.Principal; before != filter.AnonymousPrincipal && before != now {
		return fmt.Errorf("%w: %w from %q to %q in a repeated authentication", filter.ErrDenied, errPrincipal, before, now)
	}
	c.Principal = now
	return nil
}

const principalPrefix = "User:"

// provenName returns the name that a client has if the broker accepts the exchange
// that begins with a token, or "" if that cannot be told. It is Kafka's: the
// authentication id of PLAIN, the user name of SCRAM, the claim "sub" of OAUTHBEARER.
// A different authorization id and delegation tokens stand for somebody else.
func provenName(mechanism string, token []byte) string {
	if !utf8.Valid(token) {
		return ""
	}
	switch {
	case mechanism == "PLAIN": // RFC 4616
		parts := strings.Split(string(token), "\x00")
		if len(parts) != 3 || parts[0] != "" && parts[0] != parts[1] {
			return ""
		}
		return parts[1]
	case strings.HasPrefix(mechanism, "SCRAM-"):
		return scramName(string(token))
	case mechanism == "OAUTHBEARER":
		return bearerName(token)
	}
	return ""
}

// scramName reads a client's first message (RFC 5802, section 7). One with extensions
// is not understood: tokenauth=true says that the name is that of a token (KIP-48).
func scramName(token string) string {
	parts := strings.Split(token, ",")
	if len(parts) != 4 || parts[0] != "n" || !strings.HasPrefix(parts[3], "r=") {
		return ""
	}
	encoded, ok := strings.CutPrefix(parts[2], "n=")
	if !ok || parts[1] != "" && parts[1] != "a="+encoded {
		return ""
	}
	name, ok := decodeSASLName(encoded)
	if !ok {
		return ""
	}
	return name
}

// decodeSASLName decodes a saslname, in which "," is "=2C" and "=" is "=3D".
func decodeSASLName(s string) (string, bool) {
	var b strings.Builder
	for {
		at := strings.IndexByte(s, '=')
		if at < 0 {
			b.WriteString(s)
			return b.String(), true
		}
		b.WriteString(s[:at])
		switch {
		case strings.HasPrefix(s[at:], "=2C"):
			b.WriteByte(',')
		case strings.HasPrefix(s[at:], "=3D"):
			b.WriteByte('=')
		default:
			return "", false
		}
		s = s[at+3:]
	}
}

// bearerName reads the claim "sub" of a JSON Web Token (RFC 7628, RFC 7519). The broker
// has verified the token when this counts; a broker that takes the name from
// another claim needs other rules than principals.
func bearerName(token []byte) string {
	header, pairs, ok := bytes.Cut(token, []byte{1})
	gs2 := strings.Split(string(header), ",")
	if !ok || len(gs2) != 3 || gs2[0] != "n" || gs2[2] != "" {
		return ""
	}
	authorization, jwt, found := strings.TrimPrefix(gs2[1], "a="), "", 0
	for pair := range bytes.SplitSeq(pairs, []byte{1}) {
		if value, ok := bytes.CutPrefix(pair, []byte("auth=")); ok {
			found++
			scheme, rest, _ := strings.Cut(string(value), " ")
			if jwt = strings.TrimSpace(rest); !strings.EqualFold(scheme, "bearer") {
				return ""
			}
		}
	}
	parts := strings.Split(jwt, ".")
	if found != 1 || len(parts) != 3 {
		return ""
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	name := subject(claims)
	if authorization != "" && authorization != name {
		return ""
	}
	return name
}

// subject returns the claim "sub" if it is there once and a text. Readers differ about
// which of two counts.
func subject(claims []byte) (name string) {
	d := json.NewDecoder(bytes.NewReader(claims))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	found := 0
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return ""
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return ""
		}
		if key == "sub" {
			found++
			name, _ = value.(string)
		}
	}
	if found != 1 {
		return ""
	}
	return name
}
