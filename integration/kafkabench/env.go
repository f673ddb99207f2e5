package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"penstock/integration/realkafka"
	"penstock/internal/testkit/figures"
	"penstock/internal/testkit/process"
)

// partitions is the number of partitions of each topic.
const partitions = 6

// env holds the broker and the proxies in front of it.
type env struct {
	o       *options
	dir     string
	cluster *realkafka.Cluster
	proxies []*proxy
	goals   figures.Goals
}

// proxy is one path to the broker.
type proxy struct {
	name    string
	address string
	tls     *tls.Config // nil: plain text
	proc    *process.Process
	begin   func() (*process.Process, string, error) // starts another process with the same configuration
	idle    int64                                    // resident bytes before the first connection
}

const (
	serverName   = "bench.example.com"
	tenantPrefix = "bench-"
)

func newEnv(ctx context.Context, o *options, dir string) (*env, error) {
	cluster, err := realkafka.Start(ctx, realkafka.Config{Dir: dir, HeapMB: 1024, Properties: map[string]string{
		// All data must fit into memory: delete old segments at once.
		"log.retention.check.interval.ms": "500", "log.segment.delete.delay.ms": "100", "log.initial.task.delay.ms": "500",
		"socket.request.max.bytes": "104857600",
	}})
	if err != nil {
		return nil, err
	}
	e := &env{o: o, dir: dir, cluster: cluster}
	if err := e.prepare(ctx); err != nil {
		cluster.Stop()
		return nil, err
	}
	return e, nil
}

func (e *env) close() {
	for _, p := range e.proxies {
		if p.proc != nil {
			p.proc.Kill()
		}
	}
	e.cluster.Stop()
}

func (e *env) broker() string { return e.cluster.Brokers[0].Addr(realkafka.Plain) }

// start starts the selected proxies.
func (e *env) start() error {
	e.proxies = []*proxy{{name: "direct", address: e.broker()}}
	pair := e.cluster.CA.Issue(serverName, "*."+serverName)
	files := filepath.Join(e.dir, "bench")
	for suffix, text := range map[string]string{".crt": pair.Cert, ".key": pair.Key, ".pem": pair.Cert + pair.Key} {
		if err := os.WriteFile(files+suffix, []byte(text), 0o600); err != nil {
			return err
		}
	}
	client := &tls.Config{
		RootCAs: e.cluster.CA.Pool, ServerName: "broker-0." + serverName, MinVersion: tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519},
	}
	for _, c := range []struct {
		name  string
		tls   *tls.Config
		start func(dir string, port int, pair string) (*process.Process, string, error)
	}{
		{"haproxy", nil, e.haproxy(false)},
		{"penstock", nil, e.penstock("", false)},
		{"penstock, tenant", nil, e.penstock("  filters:\n"+
			"  - {type: MultiTenant, config: {tenantKey: "+strings.TrimSuffix(tenantPrefix, "-")+"}}\n", false)},
		{"haproxy, TLS", client, e.haproxy(true)},
		{"penstock, TLS", client, e.penstock("", true)},
		{"penstock, tcp listener", nil, e.penstockTCP},
	} {
		if !e.o.who.MatchString(c.name) {
			continue
		}
		begin := func() (*process.Process, string, error) {
			dir, err := os.MkdirTemp(e.dir, "p")
			if err != nil {
				return nil, "", err
			}
			ports, err := process.FreePorts(1)
			if err != nil {
				return nil, "", err
			}
			return c.start(dir, ports[0], files)
		}
		proc, at, err := begin()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		e.proxies = append(e.proxies, &proxy{name: c.name, address: at, tls: c.tls, proc: proc, begin: begin})
	}
	return nil
}

func (e *env) haproxy(secured bool) func(string, int, string) (*process.Process, string, error) {
	return func(dir string, port int, pair string) (*process.Process, string, error) {
		bind := fmt.Sprintf("127.0.0.1:%d", port)
		if secured {
			bind += " ssl crt " + pair + ".pem"
		}
		text := fmt.Sprintf(`global
  maxconn 7000
  nbthread 2
  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
  ssl-default-bind-curves X25519
defaults
  mode tcp
  option splice-auto
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen kafka
  bind %s
  server broker %s
`, bind, e.broker())
		file := filepath.Join(dir, "haproxy.cfg")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, "", err
		}
		path := "/usr/sbin/haproxy"
		proc, err := process.Start("haproxy", dir, []string{path, "-db", "-f", file}, port)
		return proc, process.Loopback(port), err
	}
}

// penstock puts the broker behind a virtual cluster, by port, or with TLS by
// server name.
func (e *env) penstock(filters string, secured bool) func(string, int, string) (*process.Process, string, error) {
	return func(dir string, port int, pair string) (*process.Process, string, error) {
		text := fmt.Sprintf("kind: PhysicalCluster\nname: big\nspec: {bootstrap: [%q]}\n", e.broker())
		at := port
		if secured {
			text += fmt.Sprintf(`---
kind: Certificate
name: bench
spec: {certFile: %s.crt, keyFile: %s.key}
---
kind: Listener
name: kafka
spec: {address: "127.0.0.1:%d", protocol: kafka, tls: {}}
---
kind: VirtualCluster
name: bench
spec:
  physicalClusterRef: big
  tls: {certificateRef: bench}
%s  brokers: {discover: {endpointRef: kafka, bootstrap: "bootstrap.%s", sniPattern: "broker-$(nodeId).%s"}}
`, pair, pair, port, filters, serverName, serverName)
		} else {
			// Two ports: one for bootstrap, one for the broker.
			ports, err := process.FreePorts(1)
			if err != nil {
				return nil, "", err
			}
			at = ports[0]
			text += fmt.Sprintf(`---
kind: VirtualCluster
name: bench
spec:
  physicalClusterRef: big
%s  brokers: {discover: {address: 127.0.0.1, bootstrapPort: %d, brokerPorts: %d-%d}}
`, filters, port, at, at)
		}
		proc, err := e.startPenstock(dir, text, at)
		return proc, process.Loopback(at), err
	}
}

// penstockTCP is a plain TCP listener: the difference to it is the cost of
// parsing Kafka.
func (e *env) penstockTCP(dir string, port int, _ string) (*process.Process, string, error) {
	proc, err := e.startPenstock(dir, fmt.Sprintf("kind: Listener\nname: kafka\nspec: {address: \"127.0.0.1:%d\", service: broker}\n---\n"+
		"kind: Service\nname: broker\nspec: {endpoints: [{address: %q}]}\n", port, e.broker()), port)
	return proc, process.Loopback(port), err
}

func (e *env) startPenstock(dir, text string, port int) (*process.Process, error) {
	file := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	own, err := process.FreePorts(2)
	if err != nil {
		return nil, err
	}
	return process.Start("penstock", dir, []string{e.o.penstock, "start", "--dev", "--data-dir", dir, "--resources", file,
		"--access-log", "off", "--cluster", process.Loopback(own[0]), "--http", process.Loopback(own[1])}, port)
}

// dial opens a connection to the broker through the proxy.
func (p *proxy) dial() (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	c, err := d.DialContext(context.Background(), "tcp", p.address)
	if err != nil || p.tls == nil {
		return c, err
	}
	t := tls.Client(c, p.tls)
	if err := t.HandshakeContext(context.Background()); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}
