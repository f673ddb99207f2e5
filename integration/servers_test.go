package integration

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// echo echoes its input, and ends when the input ends.
func echo(c *net.TCPConn) { echoAny(c) }

func echoAny(c net.Conn) {
	_, err := io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	if err == nil {
		closeWrite(c)
	}
}

func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
}

// named starts an endpoint that sends its name and then echoes.
func named(t testing.TB, name string) (address string) {
	t.Helper()
	return testkit.Serve(t, func(c *net.TCPConn) {
		if _, err := io.WriteString(c, name+"\n"); err == nil {
			echo(c)
		}
	})
}

// tlsNamed is named with TLS.
func tlsNamed(t testing.TB, name string, config *tls.Config) (address string) {
	t.Helper()
	l := tls.NewListener(testkit.Listen(t), config)
	testkit.ServeOn(t, l, func(c net.Conn) {
		if _, err := io.WriteString(c, name+"\n"); err == nil {
			echoAny(c)
		}
	})
	return l.Addr().String()
}

// webServer answers every request with a text and the path.
func webServer(t testing.TB, text string) (address string) {
	t.Helper()
	l := testkit.Listen(t)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s\n", text, r.URL.Path)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// manualServer is a server that hands its connections to the test one by one.
type manualServer struct {
	t        testing.TB
	l        *net.TCPListener
	accepted chan *net.TCPConn
}

func newManualServer(t testing.TB) *manualServer {
	t.Helper()
	g := &manualServer{t, testkit.Listen(t), make(chan *net.TCPConn, 1024)}
	go func() {
		for {
			c, err := g.l.AcceptTCP()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			_ = c.SetDeadline(time.Now().Add(testkit.Patience))
			g.accepted <- c
		}
	}()
	return g
}

func (g *manualServer) addr() string { return g.l.Addr().String() }

// accept waits for the next connection.
func (g *manualServer) accept() *net.TCPConn {
	g.t.Helper()
	return testkit.Receive(g.t, "a connection to the endpoint", g.accepted)
}

// acceptReading waits for a connection that begins with this text. It skips
// connections that only probe the listener.
func (g *manualServer) acceptReading(text string) *net.TCPConn {
	g.t.Helper()
	for {
		c := g.accept()
		p := make([]byte, len(text))
		if n, _ := io.ReadFull(c, p); string(p) == text {
			return c
		} else if n == len(text) {
			g.t.Fatalf("the endpoint read %q, want %q", p, text)
		}
	}
}

var dialed atomic.Uint32

// dial connects, with a deadline for everything. Each connection has its own
// loopback source address, by which tests search the access log: a port of a
// single address could be reused within a test.
func dial(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	i := dialed.Add(1)
	return dialFrom(t, fmt.Sprintf("127.%d.%d.%d", 1+i>>16%200, i>>8&255, i&255), address)
}

// dialFrom is dial from the given source address.
func dialFrom(t testing.TB, source, address string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{Timeout: testkit.Patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	return c.(*net.TCPConn)
}

// dialTLS is dial with a complete TLS handshake.
func dialTLS(t testing.TB, address string, config *tls.Config) *tls.Conn {
	t.Helper()
	c := tls.Client(dial(t, address), config)
	if err := c.Handshake(); err != nil {
		t.Fatalf("handshake: %v", err)
	}
	return c
}

func mustWrite(t testing.TB, c io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatalf("write: %v", err)
	}
}

// mustRead reads exactly this text.
func mustRead(t testing.TB, c io.Reader, want string) {
	t.Helper()
	p := make([]byte, len(want))
	n, err := io.ReadFull(c, p)
	if err != nil {
		t.Fatalf("read %q, %v; want %q", p[:n], err, want)
	}
	if string(p) != want {
		t.Fatalf("read %q, want %q", p, want)
	}
}

// roundTrip sends a text to an endpoint and expects its echo.
func roundTrip(t testing.TB, c io.ReadWriter, text string) {
	t.Helper()
	mustWrite(t, c, text)
	mustRead(t, c, text)
}

// mustEnd expects the end of the stream without any bytes before it.
func mustEnd(t testing.TB, c io.Reader) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("read %d, %v; want the end of the stream", n, err)
	}
}

// mustReset waits for a reset; data may come before it.
func mustReset(t testing.TB, c io.Reader) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v; want a reset", err)
	}
}

// mustClose waits for an end of any kind, without data before it.
func mustClose(t testing.TB, c net.Conn) {
	t.Helper()
	n, err := io.Copy(io.Discard, c)
	if n != 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read %d bytes, %v; want the connection closed", n, err)
	}
}

// abort closes a connection with a reset.
func abort(t testing.TB, c *net.TCPConn) {
	t.Helper()
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// service returns a Service; more lines are added to its spec.
func service(name string, endpoints []string, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\nkind: Service\nname: %s\nspec:\n  endpoints:\n", name)
	for _, e := range endpoints {
		if !strings.HasPrefix(e, "{") {
			e = fmt.Sprintf("{address: %q}", e)
		}
		fmt.Fprintf(&b, "  - %s\n", e)
	}
	return b.String() + lines(more)
}

// listener returns a Listener on a free port of 127.0.0.1.
func listener(name string, more ...string) string {
	return listenerAt(name, "127.0.0.1:0", more...)
}

func listenerAt(name, address string, more ...string) string {
	return fmt.Sprintf("---\nkind: Listener\nname: %s\nspec:\n  address: %q\n", name, address) + lines(more)
}

func lines(more []string) string {
	var b strings.Builder
	for _, l := range more {
		b.WriteString("  " + l + "\n")
	}
	return b.String()
}
