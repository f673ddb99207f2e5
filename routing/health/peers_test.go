package health

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns the address of an endpoint that runs handle for each
// connection, on a loopback port of its own.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, handle)
}

// serveUnix is serve on a unix socket; it returns the path.
func serveUnix(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, handle)
}

func serveOn(t *testing.T, l net.Listener, handle func(net.Conn)) string {
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			wg.Go(func() {
				handle(conn)
				conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for conn := range open {
			conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
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
func certFor(t *testing.T, names ...string) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, pool
}
