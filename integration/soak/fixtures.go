package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"time"

	"penstock/internal/testkit/certs"
	"penstock/internal/testkit/process"
	"penstock/node/api"
	"penstock/node/rpc"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

const (
	passName = "pass.example.com" // TLS of the backend
	endName  = "end.example.com"  // TLS terminated by the node
)

// fixtures holds the backends and generates the configurations.
type fixtures struct {
	plainPort, sniPort, tlsPort int
	certs                       [2]certs.Pair // used in alternate turns
	roots                       *x509.CertPool
	plain, secure               []net.Listener
}

func newFixtures() (*fixtures, error) {
	w := &fixtures{roots: x509.NewCertPool()}
	for i := range w.certs {
		w.certs[i] = certs.SelfSigned(passName, endName)
		w.roots.AddCert(w.certs[i].TLS.Leaf)
	}
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ended by close
		if err != nil {
			return nil, err
		}
		w.plain = append(w.plain, l)
		s, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{w.certs[0].TLS}})
		if err != nil {
			return nil, err
		}
		w.secure = append(w.secure, s)
		go serve(l)
		go serve(s)
	}
	ports, err := process.FreePorts(3)
	if err != nil {
		return nil, err
	}
	w.plainPort, w.sniPort, w.tlsPort = ports[0], ports[1], ports[2]
	return w, nil
}

func (w *fixtures) close() {
	for _, l := range append(w.plain, w.secure...) {
		l.Close()
	}
}

func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
		}()
	}
}

func (w *fixtures) clientTLS(name string) *tls.Config {
	return &tls.Config{RootCAs: w.roots, ServerName: name}
}

// resources returns the configuration of a turn: endpoints, weights, the
// certificate and the names of a listener vary.
func (w *fixtures) resources(turn int) string {
	var b strings.Builder
	service := func(name string, ls []net.Listener) {
		fmt.Fprintf(&b, "kind: Service\nname: %s\nspec:\n  balancing: {policy: %s}\n  endpoints:\n", name,
			[]string{"roundRobin", "leastConnections", "random", "maglev"}[turn%4])
		for i, l := range ls {
			if i > 0 && (turn+i)%3 == 0 {
				continue // left out this turn
			}
			fmt.Fprintf(&b, "  - {address: %q, tags: {version: v%d}, weight: %d}\n", l.Addr(), i, 1+(turn+i)%5)
		}
		b.WriteString("---\n")
	}
	service("plain", w.plain)
	service("secure", w.secure)
	fmt.Fprintf(&b, `kind: Listener
name: plain
spec: {address: "127.0.0.1:%d", service: plain, limits: {connections: %d}}
---
kind: Listener
name: sni
spec:
  address: "127.0.0.1:%d"
  protocol: tls
  hosts:
  - {names: [%s, turn-%d.example.com], service: secure}
---
kind: Listener
name: end
spec:
  address: "127.0.0.1:%d"
  protocol: tls
  tls: {mode: terminate, certificateRefs: [soak]}
  hosts:
  - {names: ["%s"], service: plain}
---
kind: MeshTCPRoute
name: split
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: plain}
    rules:
    - default:
        backendRefs:
        - {kind: MeshServiceSubset, name: plain, weight: %d, tags: {version: v0}}
        - {kind: MeshService, name: plain, weight: %d}
---
kind: Certificate
name: soak
spec:
  cert: |
%s  key: |
%s`, w.plainPort, 10000+turn, w.sniPort, passName, turn, w.tlsPort,
		[]string{endName, "*.example.com"}[turn%2], 1+turn%10, 1+turn%3,
		indent(w.certs[turn%2].Cert), indent(w.certs[turn%2].Key))
	return b.String()
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    ")
		b.WriteString(line)
	}
	return b.String()
}

type changes struct {
	done, failed int
	last         error
}

func (c changes) verdict() error {
	if c.failed > 0 || c.done == 0 {
		return fmt.Errorf("%d changes were applied, %d failed: %w", c.done, c.failed, c.last)
	}
	return nil
}

// change applies the next configuration every second.
func (w *fixtures) change(ctx context.Context, addr string) (c changes) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for turn := 1; ; turn++ {
		select {
		case <-ctx.Done():
			return c
		case <-tick.C:
		}
		switch err := w.apply(ctx, addr, w.resources(turn)); {
		case err == nil:
			c.done++
		case ctx.Err() == nil:
			c.failed, c.last = c.failed+1, err
			log.Print("apply: ", err)
		}
	}
}

func (w *fixtures) apply(ctx context.Context, addr, text string) error {
	objects, faults := codec.Decode("soak.yaml", []byte(text), resource.RoutingKinds())
	if len(faults) > 0 {
		return faults
	}
	var req api.ApplyRequest
	for _, o := range objects {
		req.Documents = append(req.Documents, codec.EncodeWithSecrets(o))
	}
	client, err := rpc.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = rpc.Call[api.ApplyResult](ctx, client, api.MethodApply, req)
	return err
}
