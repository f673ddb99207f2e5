package node

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// httpDoor gives the listener of HTTP TLS where the settings say so. Without
// it, an address that others reach wants a word that this is meant.
func (c *Config) httpDoor(l net.Listener) (net.Listener, error) {
	if c.HTTPCert == "" {
		return l, nil
	}
	files := &certFiles{cert: c.HTTPCert, key: c.HTTPKey}
	if _, err := files.get(nil); err != nil {
		return nil, err
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: files.get,
	}), nil
}

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

	mu    sync.Mutex
	last  *tls.Certificate
	stamp time.Time // of the newer file when it was read
	asked time.Time // when the files were last looked at
}

// lookEvery is the least time between two looks at the files.
const lookEvery = 10 * time.Second

// get gives the certificate. Files that cannot be read any more leave the
// last one in use.
func (f *certFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && time.Since(f.asked) < lookEvery {
		return f.last, nil
	}
	f.asked = time.Now()
	stamp := f.changed()
	if f.last != nil && stamp.Equal(f.stamp) {
		return f.last, nil
	}
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	switch {
	case err == nil:
		f.last, f.stamp = &c, stamp
	case f.last == nil:
		return nil, fmt.Errorf("--http-cert: %w", err)
	}
	return f.last, nil
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
