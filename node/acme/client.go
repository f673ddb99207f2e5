package acme

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/crypto/acme"

	"penstock/routing/resource"
)

const (
	// requestTimeout bounds one request to an authority.
	requestTimeout = 30 * time.Second
	// maxBody bounds the answer to a request. A chain of ten certificates has less
	// than 64 KiB.
	maxBody = 1 << 20
	// maxRequestRetries bounds the retries of one request, after a nonce that the
	// authority refused or a fault of its own (5xx).
	maxRequestRetries = 6
)

// errUnsafeURL means that a directory led to an address without TLS.
var errUnsafeURL = errors.New("the authority names a URL without https")

// newClient makes the client for a certificate's authority. close releases its
// connections.
func newClient(a *resource.ACME, key crypto.Signer, uri, userAgent string) (client *acme.Client, done func(), err error) {
	roots, err := rootsOf(a.CA)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: requestTimeout}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    requestTimeout,
		ResponseHeaderTimeout:  requestTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}
	client = &acme.Client{
		Key: key, KID: acme.KeyID(uri), DirectoryURL: a.Directory, UserAgent: userAgent, RetryBackoff: backoff,
		HTTPClient: &http.Client{Timeout: requestTimeout, Transport: guarded{transport, strings.HasPrefix(a.Directory, "http:")}},
	}
	return client, transport.CloseIdleConnections, nil
}

func rootsOf(ca string) (*x509.CertPool, error) {
	if ca == "" {
		return nil, nil // the system's
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(ca)) {
		return nil, errors.New("acme.ca has no PEM certificate")
	}
	return pool, nil
}

// backoff returns the pause before a request is repeated; 0: it is not. An
// authority that limits the rate is not asked again within the attempt: the next
// one comes when it allows it.
func backoff(n int, _ *http.Request, res *http.Response) time.Duration {
	if n > maxRequestRetries || res.StatusCode == http.StatusTooManyRequests {
		return 0
	}
	return min(100*time.Millisecond<<n, 5*time.Second)
}

// guarded refuses requests to URLs without TLS, wherever a directory or a redirect
// leads, except at a loopback address if the directory is at one; and it bounds answers.
type guarded struct {
	next  http.RoundTripper
	plain bool // the directory itself is at a loopback address, without TLS
}

// RoundTrip implements http.RoundTripper.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if !safeURL(r.URL, g.plain) {
		return nil, fmt.Errorf("%w: %.200s", errUnsafeURL, r.URL.Redacted())
	}
	res, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = boundedBody{io.LimitReader(res.Body, maxBody), res.Body}
	return res, nil
}

func safeURL(u *url.URL, plain bool) bool {
	if u.Scheme == "https" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return plain && u.Scheme == "http" && err == nil && ip.IsLoopback()
}

// boundedBody is a body that ends at maxBody.
type boundedBody struct {
	io.Reader
	io.Closer
}
