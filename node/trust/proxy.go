package trust

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrProxy means that the peer's certificate is not that of a proxy of this
// cluster.
var ErrProxy = errors.New("the peer is not a proxy of this cluster")

// The lifetimes of a proxy's certificate.
const (
	ProxyLifetime    = 30 * 24 * time.Hour // default
	MinProxyLifetime = time.Hour
	MaxProxyLifetime = 90 * 24 * time.Hour
)

// maxCommonName is the length of the longest common name (RFC 5280, appendix A.1).
const maxCommonName = 64

// ProxyID returns the SPIFFE ID of the proxies of a service.
func ProxyID(trustDomain, service string) string {
	return spiffeURI(trustDomain, "service/"+service).String()
}

// ServerID returns the SPIFFE ID of the cluster's discovery servers, which is the
// same for all nodes.
func ServerID(trustDomain string) string { return spiffeURI(trustDomain, "xds").String() }

func spiffeURI(trustDomain, path string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/" + path}
}

// NewProxyRequest returns a proxy's certificate request (PKCS #10, DER). It says
// nothing but the key: who asks says for which service.
func NewProxyRequest(key crypto.Signer) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// CheckProxyRequest returns the key of a certificate request and verifies its
// signature. It ignores the names in it.
func CheckProxyRequest(der []byte) (*ecdsa.PublicKey, error) {
	_, key, err := parseRequest(der)
	return key, err
}

// IssueProxy signs a certificate for a proxy of a service, for connections to the
// discovery server and between proxies. It never outlives the CA.
func (c *CA) IssueProxy(pub *ecdsa.PublicKey, service string, ttl time.Duration, now time.Time) (*x509.Certificate, error) {
	if !isPathSegment(service) {
		return nil, fmt.Errorf("service %.80q: %w", service, ErrID)
	}
	if ttl < MinProxyLifetime || ttl > MaxProxyLifetime {
		return nil, fmt.Errorf("%w: a lifetime of %v: want %v to %v", ErrCertificate, ttl, MinProxyLifetime, MaxProxyLifetime)
	}
	name := pkix.Name{CommonName: service, Organization: []string{c.clusterID}}
	if len(service) > maxCommonName {
		name.CommonName = ""
	}
	return sign(&x509.Certificate{
		SerialNumber:          serial(),
		Subject:               name,
		NotBefore:             now.Add(-clockSkew).UTC(),
		NotAfter:              c.until(now.Add(ttl)),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:                  []*url.URL{spiffeURI(c.trustDomain, "service/"+service)},
	}, c.cert, pub, c.key)
}

// until returns the earlier of end and the CA's own end.
func (c *CA) until(end time.Time) time.Time {
	if end.After(c.cert.NotAfter) {
		end = c.cert.NotAfter
	}
	return end.UTC()
}

// isPathSegment reports whether s is a segment of a SPIFFE ID's path (SPIFFE-ID,
// section 2.2) with the length of a service's name.
func isPathSegment(s string) bool {
	const marks = "-._"
	ok := s != "" && s != "." && s != ".." && len(s) <= maxName
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(marks, c) >= 0
	}
	return ok
}

// checkProxyCert checks the name in a proxy's certificate whose chain and dates are
// verified.
func checkProxyCert(cert *x509.Certificate, trustDomain string) error {
	if cert.IsCA || len(cert.URIs) != 1 {
		return fmt.Errorf("%w: its certificate has no SPIFFE ID", ErrProxy)
	}
	uri := cert.URIs[0]
	service := strings.TrimPrefix(uri.Path, "/service/")
	// Only the canonical spelling is valid, so that no two parsers read it as
	// different services.
	if !isPathSegment(service) || checkTrustDomain(uri.Host) != nil || ProxyID(uri.Host, service) != uri.String() {
		return fmt.Errorf("%w: its certificate names no service: %.120q", ErrProxy, uri.String())
	}
	if uri.Host != trustDomain {
		return fmt.Errorf("%w: its trust domain is %.80s, not %s", ErrProxy, uri.Host, trustDomain)
	}
	return nil
}

// ProxyProtocol is the ALPN protocol of proxies: gRPC, and so xDS, is HTTP/2.
const ProxyProtocol = "h2"

// ProxyServer makes the TLS configuration for proxies that connect to a node's
// discovery server. A proxy knows nodes by name, so each name and address at which
// the node is reached, that of a load balancer included, has a server certificate
// of its own, which the node signs when it is first needed. Any name is safe: only
// proxies of this cluster accept such a certificate, and any node may serve them.
// The key never leaves the process.
type ProxyServer struct {
	Identity func() *Identity
	Signer   func() (*CA, error) // the current CA, with its key
	Host     string              // where proxies reach this node: a host name or an IP address

	mu    sync.Mutex
	key   *ecdsa.PrivateKey
	certs map[serverAddress]tls.Certificate
}

// serverAddress is where a connection came in.
type serverAddress struct {
	name string     // the server name of the ClientHello; "": none
	ip   netip.Addr // the local address of the socket
}

const (
	serverLifetime = 7 * 24 * time.Hour
	// maxServerCerts bounds the certificates kept. More addresses are served too,
	// at the cost of a signature each time.
	maxServerCerts = 64
)

// Config returns the configuration. It applies renewals and rotations at each
// handshake. A client must offer ALPN "h2" and present a certificate of IssueProxy
// that is valid under the CAs in force.
func (s *ProxyServer) Config() *tls.Config {
	server := baseConfig()
	server.NextProtos = []string{ProxyProtocol}
	server.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		id := s.Identity()
		if !id.Joined() {
			return nil, ErrNoCluster
		}
		cert, err := s.certificate(id, reachedAt(hello), time.Now())
		if err != nil {
			return nil, err
		}
		config := baseConfig()
		config.NextProtos = []string{ProxyProtocol}
		config.Certificates = []tls.Certificate{cert}
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, id.roots
		config.VerifyConnection = func(cs tls.ConnectionState) error {
			if cs.NegotiatedProtocol != ProxyProtocol {
				return fmt.Errorf("%w: it does not offer ALPN %q", ErrProxy, ProxyProtocol)
			}
			return checkProxyCert(cs.PeerCertificates[0], id.TrustDomain())
		}
		return config, nil
	}
	return server
}

// WithProxies returns a server configuration that serves clients which offer ALPN
// "h2", and not Protocol, by proxies, and all others by nodes. Both must have
// GetConfigForClient.
func WithProxies(nodes, proxies *tls.Config) *tls.Config {
	both := baseConfig()
	both.NextProtos = []string{Protocol, ProxyProtocol}
	both.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, ProxyProtocol) && !slices.Contains(hello.SupportedProtos, Protocol) {
			return proxies.GetConfigForClient(hello)
		}
		return nodes.GetConfigForClient(hello)
	}
	return both
}

// reachedAt returns where a connection came in.
func reachedAt(hello *tls.ClientHelloInfo) (at serverAddress) {
	if tcp, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok {
		at.ip = tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	if isPathSegment(hello.ServerName) { // no bytes but those of host names
		at.name = strings.ToLower(hello.ServerName)
	}
	return at
}

// certificate returns the server certificate for connections that came in at an
// address.
func (s *ProxyServer) certificate(id *Identity, at serverAddress, now time.Time) (tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cert, ok := s.certs[at]; ok && usable(cert.Leaf, id, now) {
		return cert, nil
	}
	ca, err := s.Signer()
	if err != nil {
		return tls.Certificate{}, err
	}
	if s.key == nil {
		if s.key, err = newKey(); err != nil {
			return tls.Certificate{}, err
		}
	}
	leaf, err := ca.issueServer(&s.key.PublicKey, s.Host, at, now)
	if err != nil {
		return tls.Certificate{}, err
	}
	// The whole bundle goes with it: a proxy that knows only the last CA verifies the
	// next one by its cross-signed certificate.
	cert := tls.Certificate{Certificate: append([][]byte{leaf.Raw}, ca.Bundle()...), PrivateKey: s.key, Leaf: leaf}
	if len(s.certs) >= maxServerCerts {
		s.certs = nil
	}
	if s.certs == nil {
		s.certs = map[serverAddress]tls.Certificate{}
	}
	s.certs[at] = cert
	return cert, nil
}

// usable reports whether a server certificate has a third of its lifetime left and
// is from the newest CA.
func usable(leaf *x509.Certificate, id *Identity, now time.Time) bool {
	return !now.Before(leaf.NotBefore) && now.Before(leaf.NotAfter.Add(-serverLifetime/3)) &&
		bytes.Equal(leaf.AuthorityKeyId, id.cas[0].SubjectKeyId)
}

// issueServer signs a discovery server's certificate for its host and for the
// address at which a connection came in.
func (c *CA) issueServer(pub *ecdsa.PublicKey, host string, at serverAddress, now time.Time) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "Penstock xDS", Organization: []string{c.clusterID}},
		NotBefore:             now.Add(-clockSkew).UTC(),
		NotAfter:              c.until(now.Add(serverLifetime)),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		URIs:                  []*url.URL{spiffeURI(c.trustDomain, "xds")},
	}
	names := []string{host, at.name}
	if at.ip.IsLoopback() {
		names = append(names, "localhost")
	}
	ips := []netip.Addr{at.ip}
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			ips = append(ips, ip.Unmap().WithZone(""))
		} else if name != "" && !slices.Contains(template.DNSNames, name) {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	for _, ip := range ips {
		if ip.IsValid() && !ip.IsUnspecified() && !slices.ContainsFunc(template.IPAddresses, net.IP(ip.AsSlice()).Equal) {
			template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
		}
	}
	return sign(template, c.cert, pub, c.key)
}
