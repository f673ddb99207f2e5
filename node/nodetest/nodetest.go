// Package nodetest has the helpers that the tests of a node's packages share: TCP
// and HTTP endpoints and clients, certificates, and resources that use them.
package nodetest

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/kinds"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Objects decodes the resources of a text.
func Objects(t testing.TB, text string) []resource.Object {
	t.Helper()
	list, faults := codec.Decode("test.yaml", []byte(text), kinds.All())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return list
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
	ln := testkit.ListenOn(t, "tcp", address)
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	testkit.ServeOn(t, ln, func(conn net.Conn) {
		io.WriteString(conn, name+"\n")
		io.Copy(conn, conn)
	})
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
	conn.SetDeadline(time.Now().Add(testkit.Patience))
	return conn, ReadLine(t, conn)
}

// Attempt connects and returns the first two bytes that it receives; "": failed.
func Attempt(addr string) string {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testkit.Patience))
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
	return testkit.Listen(t).Addr().String()
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
