package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"penstock/internal/testkit/process"
	"penstock/node/api"
	"penstock/node/rpc"
)

// places are the ports of one proxy, and the number of server names of its
// large listener.
type places struct{ tcp, sni, sniMany, tls, sink, names int }

func (p places) all() []int { return []int{p.tcp, p.sni, p.sniMany, p.tls, p.sink} }

// A peer runs one kind of proxy on the backends of an env.
type peer struct {
	name  string
	start func(e *env, dir string, at places) (*process.Process, error)
	// addName adds a server name to the large listener.
	addName func(e *env, dir string, at places, p *process.Process, name string) error
}

func allPeers() []peer {
	return []peer{
		{"haproxy", startHAProxy, addNameHAProxy},
		{"nginx", startNginx, addNameNginx},
		{"penstock", startPenstock, addNamePenstock},
	}
}

func manyName(i int) string { return fmt.Sprintf("tenant-%06d.example.com", i) }

func write(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

func startHAProxy(e *env, dir string, at places) (*process.Process, error) {
	conf, err := writeHAProxy(e, dir, at, nil)
	if err != nil {
		return nil, err
	}
	// Master-worker mode allows reloads; the single worker does all the work.
	return process.Start("haproxy", dir, []string{e.path("haproxy"), "-W", "-f", conf}, at.all()...)
}

func writeHAProxy(e *env, dir string, at places, extra []string) (string, error) {
	var few, many strings.Builder
	for i := range 10 {
		fmt.Fprintf(&few, "%s sni\n", manyName(i))
	}
	for i := range at.names {
		fmt.Fprintf(&many, "%s sni\n", manyName(i))
	}
	for _, n := range extra {
		fmt.Fprintf(&many, "%s sni\n", n)
	}
	fewMap, err := write(dir, "few.map", few.String())
	if err != nil {
		return "", err
	}
	manyMap, err := write(dir, "many.map", many.String())
	if err != nil {
		return "", err
	}
	sni := func(name, m string, port int) string {
		return fmt.Sprintf(`
frontend %s
  bind 127.0.0.1:%d
  tcp-request inspect-delay 5s
  tcp-request content accept if { req.ssl_hello_type 1 }
  use_backend %%[req.ssl_sni,lower,map(%s,none)]
`, name, port, m)
	}
	return write(dir, "haproxy.cfg", fmt.Sprintf(`global
  maxconn 5000
  nbthread %d
  stats socket %s/haproxy.sock mode 600 level admin
  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
  ssl-default-bind-curves X25519
defaults
  mode tcp
  option splice-auto
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend tcp
  bind 127.0.0.1:%d
  default_backend echo
frontend sink
  bind 127.0.0.1:%d
  default_backend source
frontend tls
  bind 127.0.0.1:%d ssl crt %s
  default_backend echo
%s%s
backend echo
  server e %s
backend source
  server s %s
backend sni
  server h %s
`, e.o.workers, dir, at.tcp, at.sink, at.tls, e.pem, sni("few", fewMap, at.sni), sni("many", manyMap, at.sniMany),
		e.echo.addr(), e.source.addr(), e.hello.addr()))
}

// addNameHAProxy reloads with a longer map. The runtime command "add map" would
// be lost with the next reload, so it is no change of the configuration.
func addNameHAProxy(e *env, dir string, at places, p *process.Process, name string) error {
	e.added[p] = append(e.added[p], name)
	if _, err := writeHAProxy(e, dir, at, e.added[p]); err != nil {
		return err
	}
	return p.Signal(syscall.SIGUSR2)
}

func startNginx(e *env, dir string, at places) (*process.Process, error) {
	conf, err := writeNginx(e, dir, at, nil)
	if err != nil {
		return nil, err
	}
	return process.Start("nginx", dir, []string{e.path("nginx"), "-p", dir, "-c", conf}, at.all()...)
}

func writeNginx(e *env, dir string, at places, extra []string) (string, error) {
	var few, many strings.Builder
	for i := range 10 {
		fmt.Fprintf(&few, "    %s %s;\n", manyName(i), e.hello.addr())
	}
	for i := range at.names {
		fmt.Fprintf(&many, "    %s %s;\n", manyName(i), e.hello.addr())
	}
	for _, n := range extra {
		fmt.Fprintf(&many, "    %s %s;\n", n, e.hello.addr())
	}
	return write(dir, "nginx.conf", fmt.Sprintf(`load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
user root;
pid %s/nginx.pid;
error_log stderr crit;
worker_processes %d;
worker_rlimit_nofile 100000;
events { worker_connections 20000; }
stream {
  map_hash_max_size 1000000;
  map_hash_bucket_size 128;
  proxy_half_close on;
  proxy_timeout 1h;
  tcp_nodelay on;
  map $ssl_preread_server_name $few {
%s  }
  map $ssl_preread_server_name $many {
%s  }
  server { listen 127.0.0.1:%d; proxy_pass %s; }
  server { listen 127.0.0.1:%d; proxy_pass %s; }
  server { listen 127.0.0.1:%d; ssl_preread on; proxy_pass $few; }
  server { listen 127.0.0.1:%d; ssl_preread on; proxy_pass $many; }
  server {
    listen 127.0.0.1:%d ssl;
    ssl_certificate %s;
    ssl_certificate_key %s;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_ecdh_curve X25519;
    ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
    ssl_session_cache shared:S:10m;
    proxy_pass %s;
  }
}
`, dir, e.o.workers, few.String(), many.String(), at.tcp, e.echo.addr(), at.sink, e.source.addr(),
		at.sni, at.sniMany, at.tls, e.pem, e.pem, e.echo.addr()))
}

func addNameNginx(e *env, dir string, at places, p *process.Process, name string) error {
	e.added[p] = append(e.added[p], name)
	if _, err := writeNginx(e, dir, at, e.added[p]); err != nil {
		return err
	}
	return p.Signal(syscall.SIGHUP)
}

func startPenstock(e *env, dir string, at places) (*process.Process, error) {
	var few, many strings.Builder
	for i := range 10 {
		fmt.Fprintf(&few, "%s, ", manyName(i))
	}
	for i := range at.names {
		fmt.Fprintf(&many, "    - %s\n", manyName(i))
	}
	text := fmt.Sprintf(`kind: Listener
name: tcp
spec: {address: "127.0.0.1:%d", service: echo}
---
kind: Listener
name: sink
spec: {address: "127.0.0.1:%d", service: source}
---
kind: Listener
name: few
spec:
  address: 127.0.0.1:%d
  protocol: tls
  hosts:
  - {names: [%s], service: hello}
---
kind: Listener
name: many
spec:
  address: 127.0.0.1:%d
  protocol: tls
  hosts:
  - service: hello
    names:
%s---
kind: Listener
name: tls
spec:
  address: 127.0.0.1:%d
  protocol: tls
  tls: {mode: terminate, certificateRefs: [bench]}
  service: echo
---
kind: Certificate
name: bench
spec: {certFile: %s, keyFile: %s}
---
kind: Service
name: echo
spec: {endpoints: [{address: "%s"}]}
---
kind: Service
name: source
spec: {endpoints: [{address: "%s"}]}
---
kind: Service
name: hello
spec: {endpoints: [{address: "%s"}]}
`, at.tcp, at.sink, at.sni, strings.TrimSuffix(few.String(), ", "), at.sniMany, many.String(), at.tls,
		e.cert, e.key, e.echo.addr(), e.source.addr(), e.hello.addr())
	file, err := write(dir, "penstock.yaml", text)
	if err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(2)
	if err != nil {
		return nil, err
	}
	return process.Start("penstock", dir, []string{e.o.penstock, "start", "--dev", "--data-dir", dir,
		"--resources", file, "--loops", fmt.Sprint(e.o.workers), "--access-log", "off",
		"--cluster", process.Loopback(ports[0]), "--http", process.Loopback(ports[1])}, at.all()...)
}

// addNamePenstock applies one more name over the node's socket.
func addNamePenstock(e *env, dir string, _ places, p *process.Process, name string) error {
	e.added[p] = append(e.added[p], name)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := rpc.Dial(ctx, "unix:"+filepath.Join(dir, "penstock.sock"))
	if err != nil {
		return err
	}
	defer c.Close()
	host := fmt.Sprintf(`{"kind": "Host", "name": "added-%d", "spec": {"listener": "many", "names": [%q], "service": "hello"}}`,
		len(e.added[p]), name)
	_, err = rpc.Call[api.ApplyResult](ctx, c, api.MethodApply, api.ApplyRequest{Documents: [][]byte{[]byte(host)}})
	return err
}
