package node

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

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
	log       *slog.Logger

	mu        sync.Mutex
	current   *tls.Certificate
	stamp     time.Time // modification time of the newer file when current was read
	checkedAt time.Time // when the files were last checked
	failed    bool      // the files cannot be used; current stays in use
}

// listener wraps l in TLS with the certificate. It returns an error if the files
// cannot be read.
func (f *certFiles) listener(l net.Listener) (net.Listener, error) {
	if _, err := f.get(nil); err != nil {
		return l, err
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: f.get,
	}), nil
}

// certCheckInterval is the minimum time between two checks of the files.
const certCheckInterval = 10 * time.Second

// get returns the certificate, and reads the files again if they have changed. If
// that fails, the last certificate stays in use; get logs the error once.
func (f *certFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil && time.Since(f.checkedAt) < certCheckInterval {
		return f.current, nil
	}
	f.checkedAt = time.Now()
	if f.current != nil && f.modTime().Equal(f.stamp) {
		return f.current, nil
	}
	_, err := f.read()
	switch {
	case f.current == nil:
		return nil, err
	case err != nil && !f.failed:
		f.log.Error("the certificate of --http cannot be read; the last one stays in use", "error", err)
	}
	f.failed = err != nil
	return f.current, nil
}

// reread reads the files now and reports whether the certificate changed.
func (f *certFiles) reread() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, err = f.read()
	f.checkedAt, f.failed = time.Now(), err != nil
	return changed, err
}

// read reads the files and reports whether the certificate changed. mu is held.
func (f *certFiles) read() (changed bool, err error) {
	stamp := f.modTime() // before the content: a concurrent write is then seen the next time
	var pem [2][]byte
	for i, path := range []string{f.cert, f.key} {
		if pem[i], err = files.Read(path, codec.MaxPEMFile); err != nil {
			return false, fmt.Errorf("%s: %w", []string{"--http-cert", "--http-key"}[i], err)
		}
	}
	c, err := tls.X509KeyPair(pem[0], pem[1])
	if err != nil {
		return false, fmt.Errorf("--http-cert %s, --http-key %s: %w", f.cert, f.key, err)
	}
	changed = f.current == nil || !slices.EqualFunc(f.current.Certificate, c.Certificate, bytes.Equal)
	f.current, f.stamp = &c, stamp
	return changed, nil
}

// modTime returns the modification time of the newer file.
func (f *certFiles) modTime() (at time.Time) {
	for _, path := range []string{f.cert, f.key} {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at
}
