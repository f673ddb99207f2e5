package acme

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"penstock/netio/clienthello"
)

// The challenges that nodes answer.
const (
	typeHTTP = "http-01"     // RFC 8555, section 8.3
	typeTLS  = "tls-alpn-01" // RFC 8737
)

const (
	// ALPN is the protocol that an authority offers alone when it checks a name by
	// tls-alpn-01 (RFC 8737, section 6.2).
	ALPN = "acme-tls/1"
	// maxToken bounds a token, in bytes. RFC 8555 asks for at least 128 bits; no
	// authority gives more than 64 bytes.
	maxToken = 256
)

// idACMEIdentifier is the extension of a certificate that answers tls-alpn-01
// (RFC 8737, section 3).
var idACMEIdentifier = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 31}

// Challenges answers the checks of authorities on one node. Its methods are safe
// for concurrent use and take no lock. The zero value answers none.
type Challenges struct{ table atomic.Pointer[answers] }

// answers are those to the challenges of all orders in progress. They are
// immutable.
type answers struct {
	tls  map[string]tlsAnswer // by server name
	http map[httpQuestion]string
}

type tlsAnswer struct {
	answer string // the key authorization
	config *tls.Config
}

type httpQuestion struct{ host, token string }

// TLS returns the configuration that answers tls-alpn-01, if a client hello asks
// for that; nil: it does not, or no order waits for the name.
func (c *Challenges) TLS(h *clienthello.Hello) *tls.Config {
	if len(h.ALPN) != 1 || h.ALPN[0] != ALPN {
		return nil
	}
	all := c.table.Load()
	if all == nil {
		return nil
	}
	return all.tls[strings.ToLower(h.ServerName)].config
}

// HTTP returns the answer to http-01 for a token, on a host as the request names
// it. Everything else is not ok.
func (c *Challenges) HTTP(host, token string) (answer string, ok bool) {
	all := c.table.Load()
	if all == nil || len(all.http) == 0 || !validToken(token) {
		return "", false
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	answer, ok = all.http[httpQuestion{strings.ToLower(host), token}]
	return answer, ok
}

// set replaces the answers. A configuration whose answer is the same stays.
func (c *Challenges) set(list []Challenge) error {
	old := c.table.Load()
	next := &answers{tls: map[string]tlsAnswer{}, http: map[httpQuestion]string{}}
	for _, ch := range list {
		switch {
		case !validToken(ch.Token):
		case ch.Type == typeHTTP:
			next.http[httpQuestion{ch.Name, ch.Token}] = ch.Answer
		case ch.Type == typeTLS:
			if old != nil && old.tls[ch.Name].answer == ch.Answer {
				next.tls[ch.Name] = old.tls[ch.Name]
				continue
			}
			config, err := challengeConfig(ch.Name, ch.Answer)
			if err != nil {
				return err
			}
			next.tls[ch.Name] = tlsAnswer{ch.Answer, config}
		}
	}
	c.table.Store(next)
	return nil
}

// validToken reports whether a token is one, which is base64url (RFC 8555,
// section 8.3).
func validToken(s string) bool {
	for _, r := range []byte(s) {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return s != "" && len(s) <= maxToken
}

// challengeConfig makes the configuration that answers tls-alpn-01: a certificate
// that its own key has signed, with the digest of the key authorization.
func challengeConfig(name, answer string) (*tls.Config, error) {
	sum := sha256.Sum256([]byte(answer))
	value, err := asn1.Marshal(sum[:])
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(7 * 24 * time.Hour),
		DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		ExtraExtensions: []pkix.Extension{{Id: idACMEIdentifier, Critical: true, Value: value}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{ALPN}, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}, nil
}
