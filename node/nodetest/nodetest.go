// Package nodetest has the helpers that the tests of a node's packages share: TCP
// and HTTP endpoints and clients, certificates, and resources that use them.
package nodetest

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/node/kinds"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Timeout bounds each wait of the tests. It only ends hangs: the outcome of no test
// depends on it.
const Timeout = 5 * time.Minute

// Objects decodes the resources of a text.
func Objects(t testing.TB, text string) []resource.Object {
	t.Helper()
	list, faults := codec.Decode("test.yaml", []byte(text), kinds.All())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return list
}

// DeadAddress returns an address on which nothing listens. Only this function uses
// its IP: the system would soon assign a free port of 127.0.0.1 to another socket.
func DeadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.16.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Lines is an io.Writer that collects a log.
type Lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Backend is an echo server that sends its name first.
type Backend struct {
	net.Listener
	name string
}

// NewBackend starts a Backend on a port of its own.
func NewBackend(t *testing.T, name string) *Backend {
	t.Helper()
	return ServeBackend(t, name, nil)
}

// ServeBackend starts a Backend, with TLS if config is not nil.
func ServeBackend(t *testing.T, name string, config *tls.Config) *Backend {
	t.Helper()
	return ServeBackendAt(t, name, "127.0.0.1:0", config)
}

// ServeBackendAt starts a Backend at an address.
func ServeBackendAt(t *testing.T, name, address string, config *tls.Config) *Backend {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				io.WriteString(conn, name+"\n")
				io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return &Backend{ln, name}
}

// At returns the address that it listens on.
func (b *Backend) At() string { return b.Addr().String() }

// Dial connects and reads the backend's name.
func Dial(t *testing.T, addr string) (net.Conn, string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(Timeout))
	return conn, ReadLine(t, conn)
}

// Attempt connects and returns the first two bytes that it receives; "": failed.
func Attempt(addr string) string {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(Timeout))
	got, _ := io.ReadAll(io.LimitReader(conn, 2))
	return string(got)
}

// ReadLine reads a line and returns it without its newline.
func ReadLine(t *testing.T, r io.Reader) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := r.Read(b); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}

// Echo sends a line to a Backend and expects it back.
func Echo(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, "ping\n"); err != nil {
		t.Fatal(err)
	}
	if got := ReadLine(t, conn); got != "ping" {
		t.Fatalf("echo gave %q", got)
	}
}

// WaitFor polls for a condition.
func WaitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(Timeout)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// OneService returns the resources of a listener and a service with one endpoint.
func OneService(b *Backend) string {
	return fmt.Sprintf(`
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: apps}
---
kind: Service
name: apps
spec: {endpoints: [{address: "%s"}]}
`, b.At())
}

// HeapInUse returns the size of the live heap in bytes, after a collection.
func HeapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second one frees memory held by finalizers and pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// SilentServer starts an endpoint whose connections are never read or answered,
// and returns its address.
func SilentServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// PlainService returns the resources of a service and its listener with default
// settings.
func PlainService(name string, endpoints ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n---\nkind: Service\nname: %s\nspec:\n  endpoints:\n", name)
	for _, e := range endpoints {
		fmt.Fprintf(&b, "  - {address: %q}\n", e)
	}
	fmt.Fprintf(&b, "---\nkind: Listener\nname: %s\nspec: {address: \"127.0.0.1:0\", service: %[1]s}\n", name)
	return b.String()
}
