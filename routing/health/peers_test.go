package health

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serveUnix is testkit.Serve on a unix socket; it returns the path.
func serveUnix(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	testkit.ServeOn(t, testkit.ListenOn(t, "unix", path), handle)
	return path
}

// Handlers of the endpoints in tests.

// silent accepts a connection and sends nothing.
func silent(conn net.Conn) { io.Copy(io.Discard, conn) }

// resets accepts a connection and aborts it after the first bytes.
func resets(conn net.Conn) {
	conn.Read(make([]byte, 1))
	conn.(*net.TCPConn).SetLinger(0)
}

// halfCloses closes its sending side at once, and reads on.
func halfCloses(conn net.Conn) {
	conn.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, conn)
}

// says sends a text.
func says(text string) func(net.Conn) {
	return func(conn net.Conn) {
		io.WriteString(conn, text)
		io.Copy(io.Discard, conn)
	}
}

// saysSlowly sends a text with one byte per segment.
func saysSlowly(text string) func(net.Conn) {
	return func(conn net.Conn) {
		for i := range text {
			io.WriteString(conn, text[i:i+1])
		}
		io.Copy(io.Discard, conn)
	}
}

// answers reads as many bytes as question has, and responds if they are equal.
func answers(question, answer string) func(net.Conn) {
	return func(conn net.Conn) {
		buf := make([]byte, len(question))
		if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != question {
			io.WriteString(conn, "what?")
			return
		}
		io.WriteString(conn, answer)
		io.Copy(io.Discard, conn)
	}
}

// overTLS does the handshake first.
func overTLS(cfg *tls.Config, handle func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		secure := tls.Server(conn, cfg)
		if secure.Handshake() == nil {
			handle(secure)
			secure.Close()
		}
	}
}

// afterPreface expects bytes before everything else.
func afterPreface(preface string, handle func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		buf := make([]byte, len(preface))
		if _, err := io.ReadFull(conn, buf); err == nil && string(buf) == preface {
			handle(conn)
		}
	}
}

// certFor returns a self-signed certificate for names and addresses, and a pool
// that trusts it.
func certFor(names ...string) (*tls.Config, *x509.CertPool) {
	own := certs.SelfSigned(names...)
	return &tls.Config{Certificates: []tls.Certificate{own.TLS}}, own.Pool()
}
