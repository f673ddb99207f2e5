package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"penstock/internal/testkit/certs"
	"penstock/internal/testkit/figures"
	"penstock/internal/testkit/process"
)

// env holds the servers and the proxies in front of them.
type env struct {
	o         *options
	dir       string
	server    *server
	maria     *process.Process // nil: not measured
	mariaPort int
	cert, key string // files
	config    *tls.Config
	proxies   []*proxy
	goals     figures.Goals
}

// proxy is a process with the paths through it.
type proxy struct {
	*process.Process
	paths map[string]*path
}

// path is a way to a server.
type path struct {
	name    string
	address string
	tls     tlsKind
	config  *tls.Config
	proxy   *proxy
}

type tlsKind uint8

const (
	noTLS    tlsKind = iota
	tlsAsked         // after the greeting, as MySQL's clients begin it
	tlsFirst         // before everything else, which a proxy can terminate without knowing MySQL
)

// The names of the paths.
const (
	haproxyTCP    = "HAProxy tcp"
	penstockTCP   = "Penstock tcp"
	penstockMySQL = "Penstock mysql"
	haproxyTLS    = "HAProxy TLS"
	penstockTLS   = "Penstock mysql TLS"
	// With these suffixes they lead to MariaDB.
	toMariaDB = " to MariaDB"
)

const serverName = "bench.example.com"

func newEnv(o *options, dir string) (*env, error) {
	e := &env{o: o, dir: dir}
	own := certs.SelfSigned(serverName)
	// HAProxy and Penstock select AES-128-GCM.
	e.config = &tls.Config{RootCAs: own.Pool(), ServerName: serverName, MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519}}
	e.cert, e.key = filepath.Join(dir, "bench.crt"), filepath.Join(dir, "bench.key")
	err := errors.Join(os.WriteFile(e.cert, []byte(own.Cert), 0o600), os.WriteFile(e.key, []byte(own.Key), 0o600),
		os.WriteFile(filepath.Join(dir, "bench.pem"), []byte(own.Cert+own.Key), 0o600))
	if err != nil {
		return nil, err
	}
	if e.server, err = newServer(); err != nil {
		return nil, err
	}
	if o.only.MatchString(sysbenchName) {
		err = e.startMariaDB()
	}
	if err == nil {
		err = e.startProxies()
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *env) startProxies() error {
	for _, start := range []func() (*proxy, error){e.startHAProxy, e.startPenstock} {
		p, err := start()
		if err != nil {
			return err
		}
		e.proxies = append(e.proxies, p)
	}
	return nil
}

func (e *env) close() {
	for _, p := range e.proxies {
		p.Kill()
	}
	if e.maria != nil {
		e.maria.Kill()
	}
	e.server.close()
}

// path returns the path of that name.
func (e *env) path(name string) *path {
	for _, p := range e.proxies {
		if at := p.paths[name]; at != nil {
			return at
		}
	}
	return nil
}

// newProxy notes the paths of a process that has started.
func (e *env) newProxy(proc *process.Process, ports []int, paths ...path) *proxy {
	p := &proxy{Process: proc, paths: map[string]*path{}}
	for i, at := range paths {
		at.address, at.proxy, at.config = process.Loopback(ports[i]), p, e.config
		p.paths[at.name] = &at
	}
	return p
}

// mariaDB is the address of MariaDB, or where nobody listens.
func (e *env) mariaDB() string { return process.Loopback(max(e.mariaPort, 1)) }

func (e *env) startHAProxy() (*proxy, error) {
	dir, err := os.MkdirTemp(e.dir, "haproxy")
	if err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(3)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`global
  maxconn 7000
  nbthread %d
  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
  ssl-default-bind-curves X25519
defaults
  mode tcp
  option splice-auto
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen plain
  bind 127.0.0.1:%d
  server s %s
listen tls
  bind 127.0.0.1:%d ssl crt %s
  server s %s
listen maria
  bind 127.0.0.1:%d
  server s %s
`, e.o.workers, ports[0], e.server.addr(), ports[1], filepath.Join(e.dir, "bench.pem"), e.server.addr(), ports[2], e.mariaDB())
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	proc, err := process.Start("haproxy", dir, []string{"/usr/sbin/haproxy", "-db", "-f", file}, ports...)
	if err != nil {
		return nil, err
	}
	return e.newProxy(proc, ports, path{name: haproxyTCP}, path{name: haproxyTLS, tls: tlsFirst}, path{name: haproxyTCP + toMariaDB}), nil
}

func (e *env) startPenstock() (*proxy, error) {
	ports, err := process.FreePorts(5)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for i, l := range []string{"service: tcp", "protocol: mysql, service: tidb",
		"protocol: mysql, service: tidb, tls: {mode: terminate, certificateRefs: [bench]}",
		"service: mariatcp", "protocol: mysql, service: maria"} {
		fmt.Fprintf(&text, "kind: Listener\nname: l%d\nspec: {address: \"127.0.0.1:%d\", %s}\n---\n", i, ports[i], l)
	}
	fmt.Fprintf(&text, "kind: Certificate\nname: bench\nspec: {certFile: %s, keyFile: %s}\n", e.cert, e.key)
	for name, at := range map[string]string{"tcp": e.server.addr(), "tidb": e.server.addr(), "mariatcp": e.mariaDB(), "maria": e.mariaDB()} {
		protocol := "mysql"
		if strings.HasSuffix(name, "tcp") {
			protocol = "tcp"
		}
		fmt.Fprintf(&text, "---\nkind: Service\nname: %s\nspec: {protocol: %s, endpoints: [{address: %q}]}\n", name, protocol, at)
	}
	proc, _, err := e.runPenstock(text.String(), ports)
	if err != nil {
		return nil, err
	}
	return e.newProxy(proc, ports, path{name: penstockTCP}, path{name: penstockMySQL}, path{name: penstockTLS, tls: tlsAsked},
		path{name: penstockTCP + toMariaDB}, path{name: penstockMySQL + toMariaDB}), nil
}

// runPenstock starts Penstock with these resources. socket is where it takes changes.
func (e *env) runPenstock(resources string, ports []int) (proc *process.Process, socket string, err error) {
	dir, err := os.MkdirTemp(e.dir, "penstock")
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte(resources), 0o600); err != nil {
		return nil, "", err
	}
	own, err := process.FreePorts(2)
	if err != nil {
		return nil, "", err
	}
	args := []string{e.o.penstock, "start", "--dev", "--data-dir", dir, "--resources", file, "--loops", fmt.Sprint(e.o.workers),
		"--access-log", "off", "--cluster", process.Loopback(own[0]), "--http", process.Loopback(own[1])}
	if e.o.pprof {
		fmt.Fprintf(os.Stderr, "pprof at http://%s/debug/pprof/\n", process.Loopback(own[1]))
		args = append(args, "--pprof")
	}
	proc, err = process.Start("penstock", dir, args, ports...)
	return proc, filepath.Join(dir, "penstock.sock"), err
}
