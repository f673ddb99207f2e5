package nodetest

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
)

// Certificate returns the resource of a certificate.
func Certificate(name string, p certs.Pair) string {
	return "\n---\nkind: Certificate\nname: " + name + "\nspec:\n  cert: |\n" + Indent(p.Cert, 4) + "  key: |\n" + Indent(p.Key, 4)
}

// Indent puts n spaces before each line.
func Indent(text string, n int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.Repeat(" ", n) + line)
	}
	return b.String()
}

// DialTLS connects, completes the handshake and reads the backend's name.
func DialTLS(t *testing.T, addr string, config *tls.Config) (*tls.Conn, string, error) {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(testkit.Patience))
	conn := tls.Client(raw, config)
	if err := conn.Handshake(); err != nil {
		return nil, "", err
	}
	line := make([]byte, 0, 16)
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := io.ReadFull(conn, b); err != nil {
			return conn, string(line), err
		}
		if b[0] == '\n' {
			return conn, string(line), nil
		}
	}
}
