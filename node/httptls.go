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
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// checkHTTP returns the fault in the settings of HTTP; "": none.
func (c *Config) checkHTTP(at netip.AddrPort) string {
	switch {
	case (c.HTTPCert == "") != (c.HTTPKey == ""):
		return "--http-cert and --http-key: give both"
	case c.HTTPCA != "" && c.HTTPCert == "":
		return "--http-ca: requires --http-cert and --http-key, since clients show certificates by TLS"
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

// listener wraps l in TLS with the certificate. With clients it demands a certificate of
// their CAs; nil: of none. It returns an error if the files cannot be used.
func (f *certFiles) listener(l net.Listener, clients *clientCAFile) (net.Listener, error) {
	if _, err := f.check(false); err != nil {
		return l, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current.Load(), nil },
	}
	if clients == nil {
		return tls.NewListener(l, config), nil
	}
	if _, err := clients.check(false); err != nil {
		return l, err
	}
	// A resumed session would keep a client that the CAs in use now do not admit.
	config.SessionTicketsDisabled = true
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.ClientCAs = x509.NewCertPool() // GetConfigForClient has the CAs; without it nobody is admitted
	base := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = clients.current.Load().pool
		return now, nil
	}
	return tls.NewListener(l, config), nil
}

// clientCAFile has the CAs of clients from a file and reads it again when it changes.
type clientCAFile struct {
	path    string
	current atomic.Pointer[clientCAs]

	mu   sync.Mutex
	file *files.Followed
}

type clientCAs struct {
	list []*x509.Certificate
	pool *x509.CertPool
}

func newClientCAFile(path string) *clientCAFile {
	f := &clientCAFile{path: path}
	f.file = files.Follow([]string{path}, codec.MaxPEMFile, func(content [][]byte) error {
		list, err := resource.ParseCertificates(string(content[0]))
		if err != nil {
			return err
		}
		made := &clientCAs{list, x509.NewCertPool()}
		for _, c := range list {
			made.pool.AddCert(c)
		}
		f.current.Store(made)
		return nil
	})
	return f
}

// trusted returns the CAs.
func (f *clientCAFile) trusted() []*x509.Certificate { return f.current.Load().list }

// check is that of certFiles.
func (f *clientCAFile) check(force bool) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if changed, err = f.file.Check(force); err != nil {
		err = fmt.Errorf("--http-ca %s: %w", f.path, err)
	}
	return changed, err
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
