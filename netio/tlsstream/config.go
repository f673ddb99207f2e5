package tlsstream

import (
	"crypto/tls"
	"strings"
)

// Defaults fills in what a config leaves open and returns it: TLS 1.2 as the
// minimum, and for clients a cache of sessions. The choice of cipher suites
// and key shares (X25519 with ML-KEM first) stays with crypto/tls. So does
// the size of records: it keeps the first 128 KB of a connection in small
// ones, which spares a client behind a slow link a round trip before it sees
// the first byte and costs nothing measurable, as they are sent together.
func Defaults(c *tls.Config) *tls.Config {
	if c.MinVersion == 0 {
		c.MinVersion = tls.VersionTLS12
	}
	if c.ClientSessionCache == nil {
		c.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	}
	return c
}

// Tickets are the keys of session tickets, shared by configs and, when SetKeys
// is called with the same keys, by nodes. Its methods may be called from any
// goroutine.
type Tickets struct{ keys tls.Config }

// NewTickets makes keys of its own and renews them daily, until SetKeys.
func NewTickets() *Tickets { return new(Tickets) }

// SetKeys replaces all keys: the first one encrypts, all decrypt. There must
// be one at least.
func (t *Tickets) SetKeys(keys [][32]byte) { t.keys.SetSessionTicketKeys(keys) }

// Share makes c issue and take tickets under these keys. A session is resumed
// only for the server name and the scope that it began with; another one gets
// a full handshake. Name in scope whatever decides who is let in: two configs
// whose ClientAuth or ClientCAs differ must not have the same.
func (t *Tickets) Share(c *tls.Config, scope string) {
	c.WrapSession = func(cs tls.ConnectionState, ss *tls.SessionState) ([]byte, error) {
		ss.Extra = append(ss.Extra, bound(scope, cs.ServerName))
		return t.keys.EncryptTicket(cs, ss)
	}
	c.UnwrapSession = func(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
		ss, err := t.keys.DecryptTicket(ticket, cs)
		if ss == nil || err != nil {
			return nil, err
		}
		want := string(bound(scope, cs.ServerName))
		for _, extra := range ss.Extra {
			if string(extra) == want {
				return ss, nil
			}
		}
		return nil, nil
	}
}

// bound is what a ticket carries of where it is good. Applications may add
// entries of their own to a session, so it begins with a mark.
func bound(scope, serverName string) []byte {
	return []byte("penstock\x00" + scope + "\x00" + strings.ToLower(serverName))
}
