package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"

	"penstock/internal/testkit/certs"
	"penstock/internal/testkit/process"
)

// env is shared by all proxies: backends, a certificate, the options.
type env struct {
	o      *options
	dir    string
	pem    string // certificate and key in one file
	cert   string // certificate alone
	key    string
	roots  *x509.CertPool
	echo   *backend
	source *backend
	hello  *backend
	added  map[*process.Process][]string

	clientCA *certs.CA       // of clients that show a certificate; nil: not made yet
	client   tls.Certificate // theirs
}

func newEnv(o *options, dir string) (*env, error) {
	e := &env{o: o, dir: dir, added: map[*process.Process][]string{}}
	abs, err := filepath.Abs(o.penstock)
	if err != nil {
		return nil, err
	}
	o.penstock = abs
	if err := process.RaiseFiles(); err != nil {
		return nil, err
	}
	if err := e.makeCertificate(); err != nil {
		return nil, err
	}
	for _, b := range []struct {
		at    **backend
		serve serveFunc
	}{{&e.echo, serveEcho}, {&e.source, serveSource}, {&e.hello, serveHello}} {
		if *b.at, err = newBackend(b.serve); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *env) close() {
	for _, b := range []*backend{e.echo, e.source, e.hello} {
		if b != nil {
			b.close()
		}
	}
}

// path finds a peer's binary, including in sbin, which only root's PATH
// contains.
func (e *env) path(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	return "/usr/sbin/" + name
}

func (e *env) makeCertificate() error {
	own := certs.SelfSigned("bench.example.com")
	e.roots = own.Pool()
	for _, f := range []struct {
		at   *string
		name string
		text string
	}{{&e.cert, "bench.crt", own.Cert}, {&e.key, "bench.key", own.Key}, {&e.pem, "bench.pem", own.Cert + own.Key}} {
		*f.at = filepath.Join(e.dir, f.name)
		if err := os.WriteFile(*f.at, []byte(f.text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// clientTLS pins parameters that all proxies support: TLS 1.3 and X25519. The
// proxies select AES-128-GCM.
func (e *env) clientTLS(cache tls.ClientSessionCache) *tls.Config {
	return &tls.Config{
		RootCAs: e.roots, ServerName: "bench.example.com", MinVersion: tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519}, ClientSessionCache: cache,
	}
}

// launch starts the peer in its own folder, with the given number of names in
// its large listener.
func (e *env) launch(p peer, names int) (*process.Process, places, string, error) {
	dir, err := os.MkdirTemp(e.dir, p.name+"-")
	if err != nil {
		return nil, places{}, "", err
	}
	ports, err := process.FreePorts(5)
	if err != nil {
		return nil, places{}, "", err
	}
	at := places{ports[0], ports[1], ports[2], ports[3], ports[4], names}
	proc, err := p.start(e, dir, at)
	return proc, at, dir, err
}
