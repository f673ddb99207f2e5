package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/internal/testkit/process"
	"penstock/node/api"
	"penstock/node/rpc"
)

// A pair is two proxies in a row with mutual TLS between them: plain clients connect
// to the port, and the second proxy connects to the echo backend.
type pair struct {
	name  string
	both  [2]*process.Process
	plain int
}

func (p *pair) cpu() time.Duration { return p.both[0].CPU() + p.both[1].CPU() }

func (p *pair) kill() {
	for _, one := range p.both {
		if one != nil {
			one.Kill()
		}
	}
}

// meshMeasures are measured on pairs.
func meshMeasures() []measure {
	return []measure{
		{"mesh hop: 256 B round trip, 64 connections", "us", 1.3, roundTrips(64, nil)},
		{"mesh hop: new connection", "us", 1.3, newConnections},
	}
}

// runMesh measures both pairs round by round, and prints a table of the CPU time of
// both processes of a pair per unit.
func runMesh(e *env) error {
	var todo []measure
	for _, m := range meshMeasures() {
		if e.o.only.MatchString(m.name) {
			todo = append(todo, m)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	var pairs []*pair
	for _, start := range []func(*env, *pair) error{startHAProxyPair, startMeshPair, startClearPair} {
		p := new(pair)
		defer p.kill()
		if err := start(e, p); err != nil {
			return err
		}
		pairs = append(pairs, p)
	}
	fmt.Printf("%-45s %12s", "two proxies, mutual TLS 1.3 between them", pairs[0].name)
	for _, p := range pairs[1:] {
		fmt.Printf(" %14s", p.name)
	}
	fmt.Printf(" %7s\n", "goal")
	for _, m := range todo {
		if err := measurePairs(e, &m, pairs); err != nil {
			return err
		}
	}
	fmt.Println()
	return nil
}

// measurePairs prints a line: what the first pair costs, and the others as multiples of
// it. The goal is that of the second one.
func measurePairs(e *env, m *measure, pairs []*pair) error {
	var base []float64
	ratios := make([][]float64, len(pairs))
	for round := -1; round < e.o.rounds; round++ { // round -1 warms up
		costs := make([]float64, len(pairs))
		for i := range pairs {
			at := (i + max(round, 0)) % len(pairs)
			p := pairs[at]
			before := p.cpu()
			units, err := m.load(e, places{tcp: p.plain}, e.o.window)
			if err != nil || units == 0 {
				return fmt.Errorf("%s, %s: %v units: %w\n%s", m.name, p.name, units, err, p.both[1].Output())
			}
			costs[at] = m.scale(float64(p.cpu()-before) / units)
			if e.o.verbose {
				fmt.Fprintf(os.Stderr, "%s\tround %d\t%s\t%.3f %s (%.0f units)\n", m.name, round+1, p.name, costs[at], m.unit, units)
			}
		}
		if round < 0 {
			continue
		}
		base = append(base, costs[0])
		for i := range pairs {
			ratios[i] = append(ratios[i], costs[i]/costs[0])
		}
	}
	fmt.Printf("%-45s %9.3g %s", m.name, median(base), m.unit)
	for _, r := range ratios[1:] {
		fmt.Printf(" %14.2f", median(r))
	}
	fmt.Printf(" <= %.2f\n", m.goal)
	return nil
}

// startHAProxyPair starts two HAProxies: the first sends a PROXY header and verifies
// the second by name, which verifies the first by its CA.
func startHAProxyPair(e *env, p *pair) error {
	p.name = "haproxy"
	ports, err := process.FreePorts(2)
	if err != nil {
		return err
	}
	p.plain = ports[0]
	dir, err := os.MkdirTemp(e.dir, "haproxy-pair-")
	if err != nil {
		return err
	}
	ca := certs.NewCA("bench CA")
	own := ca.Issue("bench.example.com")
	pem, err := write(dir, "own.pem", own.Cert+own.Key)
	if err != nil {
		return err
	}
	roots, err := write(dir, "ca.pem", ca.PEM)
	if err != nil {
		return err
	}
	const common = `global
  maxconn 5000
  nbthread %d
  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
  ssl-default-server-ciphersuites TLS_AES_128_GCM_SHA256
  ssl-default-bind-curves X25519
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
`
	second := fmt.Sprintf(common+`frontend mesh
  bind 127.0.0.1:%d accept-proxy ssl crt %s ca-file %s verify required ssl-min-ver TLSv1.3
  default_backend echo
backend echo
  server e %s
`, e.o.workers, ports[1], pem, roots, e.echo.addr())
	first := fmt.Sprintf(common+`frontend plain
  bind 127.0.0.1:%d
  default_backend mesh
backend mesh
  server m 127.0.0.1:%d send-proxy-v2 ssl crt %s ca-file %s verify required verifyhost bench.example.com ssl-min-ver TLSv1.3
`, e.o.workers, ports[0], ports[1], pem, roots)
	for i, text := range []string{first, second} {
		conf, err := write(dir, fmt.Sprintf("%d.cfg", i), text)
		if err != nil {
			return err
		}
		if p.both[i], err = process.Start(fmt.Sprintf("haproxy-%d", i), dir, []string{e.path("haproxy"), "-f", conf}, ports[i]); err != nil {
			return err
		}
	}
	return nil
}

// startMeshPair starts a cluster of two nodes with a mesh between them.
func startMeshPair(e *env, p *pair) error {
	p.name = "penstock"
	return startNodes(e, p, `"mesh": true`, `"protocol": "mesh"`)
}

// startClearPair does the same without TLS: what is left of the cost of a hop if a new
// connection needs no handshake.
func startClearPair(e *env, p *pair) error {
	p.name = "in the clear"
	return startNodes(e, p, `"proxyProtocol": {"send": "v2"}`, `"proxyProtocol": {"accept": ["127.0.0.0/8"]}`)
}

// startNodes starts a cluster of two nodes. service and listener are the settings of the
// connection between them.
func startNodes(e *env, p *pair, service, listener string) error {
	ports, err := process.FreePorts(8)
	if err != nil {
		return err
	}
	p.plain = ports[0]
	mesh := ports[1]
	dir, err := os.MkdirTemp(e.dir, "penstock-pair-")
	if err != nil {
		return err
	}
	start := func(i int, more ...string) (err error) {
		side := []string{"a", "b"}[i]
		at := ports[2+3*i:]
		args := []string{e.o.penstock, "start", "--name", side, "--tag", "side=" + side, "--data-dir", filepath.Join(dir, side),
			"--loops", fmt.Sprint(e.o.workers), "--access-log", "off", "--gossip", process.Loopback(at[0]),
			"--cluster", process.Loopback(at[1]), "--http", process.Loopback(at[2])}
		p.both[i], err = process.Start("penstock-"+side, dir, append(args, more...), at[1])
		return err
	}
	if err := start(0, "--init"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var c *rpc.Client
	if !testkit.Poll(30*time.Second, func() bool {
		c, err = rpc.Dial(ctx, "unix:"+filepath.Join(dir, "a", "penstock.sock"))
		return err == nil
	}) {
		return err
	}
	defer c.Close()
	var made *api.TokenCreated
	if !testkit.Poll(30*time.Second, func() bool {
		made, err = rpc.Call[api.TokenCreated](ctx, c, api.MethodTokenNew,
			&api.TokenCreateRequest{Name: "join", Role: api.RoleJoin, TTL: time.Hour})
		return err == nil
	}) {
		return err
	}
	if err := start(1, "--join", process.Loopback(ports[3]), "--token", made.Token); err != nil {
		return err
	}
	var documents [][]byte
	for _, text := range []string{
		fmt.Sprintf(`{"kind": "Service", "name": "local", "spec": {"endpoints": [{"address": %q}]}}`, e.echo.addr()),
		fmt.Sprintf(`{"kind": "Service", "name": "echo", "spec": {%s, "endpoints": [{"address": "127.0.0.1:%d"}]}}`, service, mesh),
		fmt.Sprintf(`{"kind": "Listener", "name": "mesh", "spec": {"address": "127.0.0.1:%d", %s, `+
			`"service": "local", "nodes": {"side": "b"}}}`, mesh, listener),
		fmt.Sprintf(`{"kind": "Listener", "name": "plain", "spec": {"address": "127.0.0.1:%d", "service": "echo", `+
			`"nodes": {"side": "a"}}}`, p.plain),
	} {
		documents = append(documents, []byte(text))
	}
	if !testkit.Poll(30*time.Second, func() bool {
		_, err = rpc.Call[api.ApplyResult](ctx, c, api.MethodApply, api.ApplyRequest{Documents: documents})
		return err == nil
	}) {
		return err
	}
	for _, port := range []int{mesh, p.plain} {
		if err := process.WaitPort(port, 30*time.Second); err != nil {
			return err
		}
	}
	return nil
}
