package node

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"penstock/node/files"
	"penstock/routing/resource/codec"
)

// checkHTTP returns the fault in the settings of HTTP; "": none.
func (c *Config) checkHTTP(at netip.AddrPort) string {
	switch {
	case (c.HTTPCert == "") != (c.HTTPKey == ""):
		return "--http-cert and --http-key: give both"
	case c.HTTPCert == "" && !c.HTTPInsecure && !c.Dev && !at.Addr().IsLoopback():
		return fmt.Sprintf("--http %s: not a loopback address: give --http-cert and --http-key, "+
			"or --http-insecure, which serves /healthz, /readyz and /metrics there in the clear", at)
	}
	return ""
}

// certFiles serves a certificate from two files and reads them again when they
// change.
type certFiles struct {
	cert, key string
	current   atomic.Pointer[tls.Certificate]

	mu    sync.Mutex
	files *files.Followed
}

func newCertFiles(cert, key string) *certFiles {
	f := &certFiles{cert: cert, key: key}
	f.files = files.Follow([]string{cert, key}, codec.MaxPEMFile, func(content [][]byte) error {
		c, err := tls.X509KeyPair(content[0], content[1])
		if err == nil {
			f.current.Store(&c)
		}
		return err
	})
	return f
}

// listener wraps l in TLS with the certificate. It returns an error if the files
// cannot be used.
func (f *certFiles) listener(l net.Listener) (net.Listener, error) {
	if _, err := f.check(false); err != nil {
		return l, err
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current.Load(), nil },
	}), nil
}

// chain returns the certificates that are served.
func (f *certFiles) chain() (chain []*x509.Certificate) {
	for _, der := range f.current.Load().Certificate {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, c)
		}
	}
	return chain
}

// check reads the files if they may have changed, or in any case with force, and
// reports whether there is another certificate. If they cannot be used, the last one
// stays in use.
func (f *certFiles) check(force bool) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if changed, err = f.files.Check(force); err != nil {
		err = fmt.Errorf("--http-cert %s, --http-key %s: %w", f.cert, f.key, err)
	}
	return changed, err
}
