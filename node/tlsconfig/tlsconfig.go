// Package tlsconfig makes crypto/tls configurations from resources: for the
// clients of a listener, and towards the endpoints of a service. Routing selects a
// client's certificate by name; this package turns the name into a configuration.
// A new version of a certificate takes effect at the next handshake; existing
// connections keep the old one.
//
//	store := tlsconfig.NewStore()
//	err := store.Set("tenant1-tls", certificate)
//	server, err := tlsconfig.NewServer("edge", listener.TLS, store, tickets)
//	config := server.For([]string{"tenant1-tls"})
package tlsconfig

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"penstock/netio/tlsstream"
	"penstock/node/trust"
	"penstock/routing/resource"
)

// errNoPEM says that a CA bundle contains no certificate.
var errNoPEM = errors.New("contains no PEM certificate")

// ErrRevoked says that the cluster has revoked the peer's certificate.
var ErrRevoked = errors.New("the certificate was revoked")

// Store holds the current certificates by name. Its methods are safe for
// concurrent use.
type Store struct {
	// Revoked reports whether the cluster has revoked a certificate, which is then
	// refused from clients and from endpoints; nil: none is. It is set before use.
	Revoked func(*x509.Certificate) bool
	// Bundles are those of the trust domains; nil: none. It is set before use.
	Bundles *trust.Bundles

	mu sync.RWMutex
	m  map[string]*tls.Certificate
}

// NewStore makes an empty store.
func NewStore() *Store { return &Store{m: map[string]*tls.Certificate{}} }

// checkRevoked is a tls.Config.VerifyConnection, which runs for resumed sessions too.
func (s *Store) checkRevoked(state tls.ConnectionState) error {
	if s.IsRevoked(&state) {
		return refused(state.PeerCertificates, revoked(state.PeerCertificates[0]))
	}
	return nil
}

// revoked names a revoked certificate as penstock identity list does. The cluster has
// issued it, so its names are true.
func revoked(leaf *x509.Certificate) error {
	id, err := SPIFFEID(leaf)
	if err != nil {
		return fmt.Errorf("%w: serial %x", ErrRevoked, leaf.SerialNumber)
	}
	return fmt.Errorf("%w: %s, serial %x", ErrRevoked, id, leaf.SerialNumber)
}

// IsRevoked reports whether the cluster has revoked the peer's certificate; nil is a
// connection without TLS.
func (s *Store) IsRevoked(state *tls.ConnectionState) bool {
	return state != nil && s.Revoked != nil && len(state.PeerCertificates) > 0 && s.Revoked(state.PeerCertificates[0])
}

// Set adds or replaces a certificate. If it is invalid, Set removes the name and
// returns an error, so that the previous version is not served for ever.
func (s *Store) Set(name string, c *resource.Certificate) error {
	pair, err := tls.X509KeyPair([]byte(c.Cert), []byte(c.Key))
	if err != nil {
		s.Delete(name)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m[name] = &pair
	return nil
}

// Delete removes a certificate.
func (s *Store) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, name)
}

// find returns the certificates with these names, without missing ones.
func (s *Store) find(names []string) []*tls.Certificate {
	found := make([]*tls.Certificate, 0, len(names))
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, name := range names {
		if c := s.m[name]; c != nil {
			found = append(found, c)
		}
	}
	return found
}

// cachedConfig is a configuration with the certificates and the trust bundles it was
// made from.
type cachedConfig struct {
	config *tls.Config
	certs  []*tls.Certificate
	scope  string // trusted.scope
}

// configs caches the variants of one configuration.
type configs struct {
	store *Store
	mu    sync.Mutex
	m     map[string]cachedConfig
}

// get returns the variant with that name. It calls make if the variant is missing,
// one of its certificates changed, or the trust did.
func (c *configs) get(name string, certs []string, scope string, make func([]tls.Certificate) *tls.Config) *tls.Config {
	now := c.store.find(certs)
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.m[name]; ok && old.scope == scope && slices.Equal(old.certs, now) {
		return old.config
	}
	list := []tls.Certificate{}
	for _, cert := range now {
		list = append(list, *cert)
	}
	if c.m == nil {
		c.m = map[string]cachedConfig{}
	}
	config := make(list)
	c.m[name] = cachedConfig{config, now, scope}
	return config
}

// Server holds the configurations of a terminating listener. Its methods are safe
// for concurrent use.
type Server struct {
	template *tls.Config
	tickets  *tlsstream.Tickets
	scope    string // scope of session tickets
	configs  configs
	store    *Store
	roots    map[string]bool     // the client CA's certificates (DER); nil: no client certificates
	cas      []*x509.Certificate // of roots
	spiffe   []string            // patterns of the clients' SPIFFE IDs; none: any certificate of the CA
	domains  *domains            // of clients with a SPIFFE ID; nil: roots verifies these too
	trusted  trustCache
}

// Accepts reports whether a client passes these settings, although its handshake may
// have used another version of them: a client certificate must have a chain to the
// CA, or to its own trust domain, and one of the SPIFFE IDs, and must be present if it
// is required.
func (s *Server) Accepts(state *tls.ConnectionState) bool {
	switch {
	case s.template.ClientAuth == tls.NoClientCert:
		return true
	case len(state.PeerCertificates) == 0:
		return s.template.ClientAuth == tls.VerifyClientCertIfGiven
	case s.checkIdentity(state) != nil:
		return false
	}
	return s.byDomain(state) || endsAt(state.VerifiedChains, s.isRoot)
}

func (s *Server) isRoot(cert *x509.Certificate) bool { return s.roots[string(cert.Raw)] }

// byDomain reports whether the trust domain of the client's ID decides, not the CA.
func (s *Server) byDomain(state *tls.ConnectionState) bool {
	return s.domains != nil && (len(s.roots) == 0 || ClaimsSPIFFE(state.PeerCertificates[0]))
}

// checkIdentity returns why a client's certificate, whose chain is verified, has the
// wrong identity.
func (s *Server) checkIdentity(state *tls.ConnectionState) error {
	switch {
	case s.domains == nil:
	case s.byDomain(state):
		if err := s.domains.checkChains(state); err != nil {
			return err
		}
	case !endsAt(state.VerifiedChains, s.isRoot):
		return errNoSPIFFE // an authority of a trust domain has signed it
	}
	if len(s.spiffe) > 0 {
		return matchSPIFFE(s.spiffe, state.PeerCertificates[0])
	}
	return nil
}

// verify is the tls.Config.VerifyConnection, which runs for resumed sessions too. A
// missing certificate has been refused before if one is required.
func (s *Server) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	if err := s.store.checkRevoked(state); err != nil {
		return err
	}
	if err := s.checkIdentity(&state); err != nil {
		return refused(state.PeerCertificates, err)
	}
	return nil
}

// NewServer makes a Server from settings with their defaults. If it returns an
// error, the Server is usable but accepts no client.
func NewServer(listener string, t *resource.ListenerTLS, store *Store, tickets *tlsstream.Tickets) (*Server, error) {
	s := &Server{tickets: tickets, scope: listener, configs: configs{store: store}, store: store}
	s.template = tlsstream.Defaults(&tls.Config{MinVersion: minVersion(t.MinVersion), NextProtos: t.ALPN})
	if t.StartTLS == "postgres" && len(t.ALPN) == 0 {
		s.template.NextProtos = []string{"postgresql"} // without it sslnegotiation=direct is refused by its client
	}
	s.template.VerifyConnection = store.checkRevoked
	if t.ClientAuth == nil || t.ClientAuth.Mode == "none" {
		return s, nil
	}
	s.template.VerifyConnection = s.verify
	s.template.ClientAuth = tls.RequireAndVerifyClientCert
	if t.ClientAuth.Mode == "request" {
		s.template.ClientAuth = tls.VerifyClientCertIfGiven
	}
	// A session must not be resumed under other client authentication settings.
	s.scope += fmt.Sprintf("\x00%d %x", s.template.ClientAuth, sha256.Sum256([]byte(t.ClientAuth.CA)))
	if s.spiffe = t.ClientAuth.SPIFFE; len(s.spiffe) > 0 {
		s.scope += fmt.Sprintf(" %x", sha256.Sum256([]byte(strings.Join(s.spiffe, "\x00"))))
	}
	if len(t.ClientAuth.TrustDomains) > 0 {
		s.domains = &domains{store.Bundles, t.ClientAuth.TrustDomains}
		if t.ClientAuth.CA == "" { // a caFile that was not read admits nobody either
			return s, nil
		}
	}
	var err error
	s.template.ClientCAs, err = certPool(t.ClientAuth.CA)
	s.roots, s.cas = roots(t.ClientAuth.CA)
	return s, err
}

// For returns the configuration with these certificates, of which crypto/tls shows
// the first that the client supports. It returns nil if the store has none of them.
func (s *Server) For(certs []string) *tls.Config {
	key := ""
	if len(certs) > 0 {
		key = certs[0]
	}
	if len(certs) > 1 {
		key = strings.Join(certs, "\x00")
	}
	now := &trusted{pool: s.template.ClientCAs}
	if s.domains != nil {
		now = s.trusted.get(s.domains, s.cas)
	}
	config := s.configs.get(key, certs, now.scope, func(list []tls.Certificate) *tls.Config {
		c := s.template.Clone()
		c.Certificates, c.ClientCAs = list, now.pool
		s.tickets.Share(c, s.scope+now.scope)
		return c
	})
	if len(config.Certificates) == 0 {
		return nil
	}
	return config
}

// Client holds the configurations towards the endpoints of a service. Its methods
// are safe for concurrent use.
type Client struct {
	base    *tls.Config
	ref     []string // name of the client certificate
	configs configs
	domains *domains // of the endpoints; nil: others verify them
	trusted trustCache
	mesh    *Mesh // instead of all others; nil: none
}

// NewClient makes a Client from settings with their defaults. If it returns an
// error, the Client is usable but trusts no endpoint.
func NewClient(t *resource.ServiceTLS, store *Store) (*Client, error) {
	c := &Client{configs: configs{store: store}, base: tlsstream.Defaults(&tls.Config{
		MinVersion: minVersion(t.MinVersion), NextProtos: t.ALPN,
		ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify, VerifyConnection: store.checkRevoked,
	})}
	if t.CertificateRef != "" {
		c.ref = []string{t.CertificateRef}
	}
	var err error
	if t.CA != "" || t.CAFile != "" || t.CARef != "" { // without CA it was not read: no endpoint is trusted
		c.base.RootCAs, err = certPool(t.CA)
	}
	var check func(tls.ConnectionState) error // of the chain and of the identity
	switch {
	case len(t.TrustDomains) > 0:
		c.domains = &domains{store.Bundles, t.TrustDomains}
		patterns := []string{}
		if t.Verify != nil {
			patterns = t.Verify.SPIFFE
		}
		check = checkMember(c.domains, patterns)
	case t.Verify != nil:
		check = checkEndpoint(c.base.RootCAs, t.Verify)
	}
	if check != nil {
		c.base.InsecureSkipVerify = true
		c.base.VerifyConnection = func(state tls.ConnectionState) error {
			if err := store.checkRevoked(state); err != nil {
				return err
			}
			return check(state)
		}
	}
	return c, err
}

// For returns the configuration towards an endpoint on that host. It verifies the
// identities of the service's Verify, or the host's name or address, or the
// service's ServerName if that is set.
func (c *Client) For(host string) *tls.Config {
	if c.mesh != nil {
		return c.mesh.client(host)
	}
	if c.base.ServerName != "" {
		host = c.base.ServerName
	}
	now := &trusted{}
	if c.domains != nil {
		now = c.trusted.get(c.domains, nil)
	}
	return c.configs.get(host, c.ref, now.scope, func(list []tls.Certificate) *tls.Config {
		config := c.base.Clone()
		config.ServerName = host
		config.Certificates = list
		if len(list) > 0 || c.domains != nil {
			// Resuming a session of the previous certificate would keep its identity, and one
			// of a previous bundle would be refused.
			config.ClientSessionCache = tls.NewLRUClientSessionCache(0)
		}
		return config
	})
}

func minVersion(s string) uint16 {
	if s == "1.3" {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// roots returns the certificates of a bundle that pool accepts, by their DER.
func roots(ca string) (ders map[string]bool, certs []*x509.Certificate) {
	ders = map[string]bool{}
	for block, rest := pem.Decode([]byte(ca)); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			ders[string(c.Raw)] = true
			certs = append(certs, c)
		}
	}
	return ders, certs
}

func certPool(ca string) (*x509.CertPool, error) {
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM([]byte(ca)) {
		return p, fmt.Errorf("ca: %w", errNoPEM) // with the empty pool, which verifies nothing
	}
	return p, nil
}
