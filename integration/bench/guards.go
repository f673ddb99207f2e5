package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"penstock/internal/testkit/certs"
	"penstock/internal/testkit/process"
)

// A guard is what decides who may connect, as whom, and how much. Each proxy runs
// twice, without it and with it, so that its cost is the ratio of two processes that
// are measured in the same rounds.
type guard struct {
	name string
	// goal is how much the guard may cost at Penstock: with it against without; 0: none.
	goal float64
	load func(e *env, at places, d time.Duration) (float64, error)
	// haproxy returns the lines of a frontend, penstock the resources beside the
	// Listener guarded on a port and the Service echo, without and with the guard.
	haproxy, penstock func(g *guarded, port int, with bool) (string, error)
}

// guarded is what the guards' configurations refer to.
type guarded struct {
	*env
	dir string
	ca  string // file of the CA of clients
}

// guardRules is how many permissions, and how many networks of HAProxy's ACL, are in
// force. One of them allows the clients of the benchmark.
const guardRules = 10_000

func guards() []guard {
	return []guard{
		{"permission: new connection, 10,000 rules", 1.05, newConnections, haproxyACL, penstockPermissions},
		{"rate limit: new connection, by network", 1.05, newConnections, haproxyTable, penstockLimit},
		{"mutual TLS: full handshake, SPIFFE IDs verified", 1.05, mutualHandshakes, haproxyMutual, penstockMutual},
	}
}

// subject is one proxy, without a guard or with it.
type subject struct {
	*process.Process
	at places
}

// runGuards measures every guard, round by round, and prints a table of the CPU time
// of a connection.
func runGuards(e *env) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)
	head := "what is decided for a connection\thaproxy without\twith / without\tpenstock without / haproxy without\twith / with\tpenstock with / without\tgoal\t"
	for _, g := range guards() {
		if !e.o.only.MatchString(g.name) {
			continue
		}
		if head != "" {
			fmt.Fprintln(w, head)
			head = ""
		}
		if err := g.measure(e, w); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	if head == "" {
		w.Flush()
		fmt.Println()
	}
	return nil
}

// measure measures one guard: haproxy and penstock, each without it and with it.
func (g *guard) measure(e *env, w *tabwriter.Writer) error {
	var subjects []subject
	for _, start := range []func(*env, *guard, bool) (subject, error){startGuardedHAProxy, startGuardedPenstock} {
		for _, with := range []bool{false, true} {
			s, err := start(e, g, with)
			if err != nil {
				return err
			}
			defer s.Kill()
			subjects = append(subjects, s)
		}
	}
	costs, err := measureInTurn(e, g.name, g.load, subjects)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\t%.3g us\t%.3f\t%.2f\t%.2f\t%.3f\t<= %.2f\t\n", g.name, median(costs[0]), ratio(costs[1], costs[0]),
		ratio(costs[2], costs[0]), ratio(costs[3], costs[1]), ratio(costs[3], costs[2]), g.goal)
	return nil
}

// measureInTurn measures subjects round by round, and returns the CPU time of each per unit of work,
// in microseconds, by round.
func measureInTurn(e *env, name string, load func(*env, places, time.Duration) (float64, error), subjects []subject) ([][]float64, error) {
	costs := make([][]float64, len(subjects))
	for round := -1; round < e.o.rounds; round++ { // round -1 warms up
		for i := range subjects {
			at := (i + max(round, 0)) % len(subjects)
			s, before := subjects[at], subjects[at].CPU()
			units, err := load(e, s.at, e.o.window)
			if err == nil && units == 0 {
				err = errors.New("no work was done")
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", s.Name, err, s.Output())
			}
			cost := float64(s.CPU()-before) / units / 1e3
			if e.o.verbose {
				fmt.Fprintf(os.Stderr, "%s\tround %d\t%s\t%.3f us (%.0f units)\n", name, round+1, s.Name, cost, units)
			}
			if round >= 0 {
				costs[at] = append(costs[at], cost)
			}
		}
	}
	return costs, nil
}

// ratio is the median of each round's own ratio.
func ratio(a, b []float64) float64 {
	each := make([]float64, len(a))
	for i := range a {
		each[i] = a[i] / b[i]
	}
	return median(each)
}

// guard prepares what a proxy's configuration refers to.
func (e *env) guard(name string, ports int) (*guarded, []int, error) {
	dir, err := os.MkdirTemp(e.dir, name+"-guard-")
	if err != nil {
		return nil, nil, err
	}
	free, err := process.FreePorts(ports)
	if err != nil {
		return nil, nil, err
	}
	g := &guarded{env: e, dir: dir}
	g.ca, err = write(dir, "clients.pem", e.clients().PEM)
	return g, free, err
}

func startGuardedHAProxy(e *env, of *guard, with bool) (subject, error) {
	g, ports, err := e.guard("haproxy", 1)
	if err != nil {
		return subject{}, err
	}
	lines, err := of.haproxy(g, ports[0], with)
	if err != nil {
		return subject{}, err
	}
	conf, err := write(g.dir, "haproxy.cfg", fmt.Sprintf(`global
  maxconn 5000
  nbthread %d
  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
  ssl-default-bind-curves X25519
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend in
%s
  default_backend echo
backend echo
  server e %s
`, e.o.workers, lines, e.echo.addr()))
	if err != nil {
		return subject{}, err
	}
	proc, err := process.Start(guardName("haproxy", with), g.dir, []string{e.path("haproxy"), "-f", conf}, ports[0])
	return subject{proc, places{tcp: ports[0], tls: ports[0]}}, err
}

func startGuardedPenstock(e *env, of *guard, with bool) (subject, error) {
	g, ports, err := e.guard("penstock", 3)
	if err != nil {
		return subject{}, err
	}
	resources, err := of.penstock(g, ports[0], with)
	if err != nil {
		return subject{}, err
	}
	file, err := write(g.dir, "penstock.yaml", fmt.Sprintf("kind: Service\nname: echo\nspec: {endpoints: [{address: %q}]}\n---\n%s",
		e.echo.addr(), resources))
	if err != nil {
		return subject{}, err
	}
	proc, err := process.Start(guardName("penstock", with), g.dir, []string{e.o.penstock, "start", "--dev", "--data-dir", filepath.Join(g.dir, "data"),
		"--resources", file, "--loops", fmt.Sprint(e.o.workers), "--access-log", "off",
		"--cluster", process.Loopback(ports[1]), "--http", process.Loopback(ports[2])}, ports[0])
	return subject{proc, places{tcp: ports[0], tls: ports[0]}}, err
}

func guardName(proxy string, with bool) string {
	if with {
		return proxy + "-with"
	}
	return proxy + "-without"
}

func plainBind(port int) string { return fmt.Sprintf("  bind 127.0.0.1:%d\n", port) }

func plainListener(port int) string {
	return fmt.Sprintf("kind: Listener\nname: in\nspec: {address: \"127.0.0.1:%d\", service: echo}\n", port)
}

// haproxyACL accepts clients of 10,000 networks.
func haproxyACL(g *guarded, port int, with bool) (string, error) {
	if !with {
		return plainBind(port), nil
	}
	var list strings.Builder
	list.WriteString("127.0.0.0/8\n")
	for i := range guardRules - 1 {
		fmt.Fprintf(&list, "10.%d.%d.0/24\n", i>>8, i&255)
	}
	file, err := write(g.dir, "networks.acl", list.String())
	return plainBind(port) + fmt.Sprintf("  tcp-request connection reject unless { src -f %s }\n", file), err
}

// penstockPermissions are 10,000 permissions of all kinds for the same service.
func penstockPermissions(_ *guarded, port int, with bool) (string, error) {
	if !with {
		return plainListener(port), nil
	}
	var list strings.Builder
	list.WriteString(plainListener(port))
	for i := range guardRules {
		from := "networks: [127.0.0.0/8]"
		switch {
		case i == guardRules/2:
		case i%4 == 0:
			from = fmt.Sprintf(`identities: ["spiffe://corp.example/ns/n%d/**"]`, i)
		case i%4 == 1:
			from = fmt.Sprintf("services: [client-%d]", i)
		case i%4 == 2:
			from = fmt.Sprintf("networks: [10.%d.%d.0/24]", i>>8, i&255)
		default:
			from = fmt.Sprintf("tags: {team: t%d}", i)
		}
		fmt.Fprintf(&list, "---\nkind: TrafficPermission\nname: p-%05d\nspec: {from: [{%s}], to: [{services: [echo]}], action: allow}\n", i, from)
	}
	return list.String(), nil
}

// haproxyTable counts each client's connections in a second, and refuses more than it
// will make.
func haproxyTable(_ *guarded, port int, with bool) (string, error) {
	lines := plainBind(port)
	if with {
		lines += "  stick-table type ip size 100k expire 10s store conn_rate(1s)\n  tcp-request connection track-sc0 src\n" +
			"  tcp-request connection reject if { sc0_conn_rate gt 1000000 }\n"
	}
	return lines, nil
}

func penstockLimit(_ *guarded, port int, with bool) (string, error) {
	text := plainListener(port)
	if with {
		text += "---\nkind: RateLimit\nname: l\nspec: {by: network, connections: {rate: 1000000, burst: 1000000}, maxKeys: 100000}\n"
	}
	return text, nil
}

// haproxyMutual asks for a certificate of the clients' CA, without and with the guard:
// HAProxy has nothing that would verify a SPIFFE ID.
func haproxyMutual(g *guarded, port int, _ bool) (string, error) {
	return fmt.Sprintf("  bind 127.0.0.1:%d ssl crt %s ca-file %s verify required ssl-min-ver TLSv1.3\n", port, g.pem, g.ca), nil
}

func penstockMutual(g *guarded, port int, with bool) (string, error) {
	spiffe := ""
	if with {
		spiffe = `, spiffe: ["spiffe://bench.example/ns/a/**", "spiffe://bench.example/ns/b/**", "spiffe://bench.example/ns/*/sa/web"]`
	}
	return fmt.Sprintf(`kind: Listener
name: in
spec:
  address: 127.0.0.1:%d
  protocol: tls
  tls: {mode: terminate, certificateRefs: [bench], clientAuth: {mode: require, caFile: %q%s}}
  service: echo
---
kind: Certificate
name: bench
spec: {certFile: %q, keyFile: %q}
`, port, g.ca, spiffe, g.cert, g.key), nil
}

// clients returns the CA of the clients, and makes it and their certificate first.
func (e *env) clients() *certs.CA {
	if e.clientCA == nil {
		e.clientCA = certs.NewCA("bench clients")
		pair := e.clientCA.Sign(&x509.Certificate{
			NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			URIs: []*url.URL{{Scheme: "spiffe", Host: "bench.example", Path: "/ns/shop/sa/web"}},
		})
		e.client = pair.TLS
	}
	return e.clientCA
}

// mutualHandshakes counts full handshakes in which the client shows a certificate.
func mutualHandshakes(e *env, at places, d time.Duration) (float64, error) {
	return each(connectors, d, func(_ int, over *atomic.Bool) (float64, error) {
		conf := e.clientTLS(nil)
		conf.Certificates = []tls.Certificate{e.client}
		return repeat(over, func(int) error {
			c, err := dialPlain(at.tls)
			if err != nil {
				return err
			}
			return exchange(tls.Client(c, conf), []byte("x"))
		})
	})
}
