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
	"penstock/routing/resource"
)

// checkHTTP says what is wrong with the settings of HTTP; "": nothing.
func (c *Config) checkHTTP(at netip.AddrPort) string {
	switch {
	case (c.HTTPCert == "") != (c.HTTPKey == ""):
		return "--http-cert and --http-key: give both"
	case c.HTTPCert == "" && !c.HTTPInsecure && !c.Dev && !at.Addr().IsLoopback():
		return fmt.Sprintf("--http %s: others reach this address, so give --http-cert and --http-key; "+
			"or --http-insecure, which serves /healthz, /readyz and /metrics there in the clear", at)
	}
	return ""
}

// certFiles is a certificate in two files, read again when they change.
type certFiles struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	last   *tls.Certificate
	stamp  time.Time // of the newer file when it was read
	asked  time.Time // when the files were last looked at
	failed bool      // the files cannot be used; last serves on
}

// listener gives a listener TLS with the certificate, if that can be read.
func (f *certFiles) listener(l net.Listener) (net.Listener, error) {
	if _, err := f.get(nil); err != nil {
		return l, err
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: f.get,
	}), nil
}

// lookEvery is the least time between two looks at the files.
const lookEvery = 10 * time.Second

// get gives the certificate. Files that cannot be read any more leave the
// last one in use, and a line says so.
func (f *certFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && time.Since(f.asked) < lookEvery {
		return f.last, nil
	}
	f.asked = time.Now()
	if f.last != nil && f.changed().Equal(f.stamp) {
		return f.last, nil
	}
	_, err := f.read()
	switch {
	case f.last == nil:
		return nil, err
	case err != nil && !f.failed:
		f.log.Error("the certificate of --http cannot be read; the last one stays in use", "error", err)
	}
	f.failed = err != nil
	return f.last, nil
}

// reread reads the files now, and tells whether another certificate serves
// from now on.
func (f *certFiles) reread() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, err = f.read()
	f.asked, f.failed = time.Now(), err != nil
	return changed, err
}

// read reads the files; mu is held.
func (f *certFiles) read() (changed bool, err error) {
	stamp := f.changed() // before the content: what is written meanwhile is read the next time
	var pem [2][]byte
	for i, path := range []string{f.cert, f.key} {
		if pem[i], err = files.Read(path, resource.MaxPEMFile); err != nil {
			return false, fmt.Errorf("%s: %w", []string{"--http-cert", "--http-key"}[i], err)
		}
	}
	c, err := tls.X509KeyPair(pem[0], pem[1])
	if err != nil {
		return false, fmt.Errorf("--http-cert %s, --http-key %s: %w", f.cert, f.key, err)
	}
	changed = f.last == nil || !slices.EqualFunc(f.last.Certificate, c.Certificate, bytes.Equal)
	f.last, f.stamp = &c, stamp
	return changed, nil
}

// changed is when the files were last changed.
func (f *certFiles) changed() (at time.Time) {
	for _, path := range []string{f.cert, f.key} {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at
}
