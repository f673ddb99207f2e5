package trust

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must returns the value, or fails the test.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newCA(t *testing.T, clusterID string) *CA {
	t.Helper()
	return must(NewCA(clusterID, "", time.Now()))(t)
}

func newRing(t *testing.T) *Keyring {
	t.Helper()
	return must(NewKeyring())(t)
}

// join returns a node of the CA's cluster, with a certificate issued at then.
func join(t *testing.T, ca *CA, name string, then time.Time) *Identity {
	t.Helper()
	id := must(NewIdentity(name))(t)
	return must(id.Join(ca.ClusterID(), issue(t, ca, id, then), ca.Bundle(), newRing(t)))(t)
}

// issue signs the node's certificate request.
func issue(t *testing.T, ca *CA, id *Identity, then time.Time) []byte {
	t.Helper()
	r := must(CheckRequest(must(id.Request())(t)))(t)
	return must(ca.Issue(r.Public, r.NodeID, r.Name, then))(t)
}

func always(id *Identity) func() *Identity { return func() *Identity { return id } }

// peerResult is one side of a connection after the handshake and the exchange
// of one byte.
type peerResult struct {
	cs  tls.ConnectionState
	err error
}

// handshake connects the two sides over TCP. In TLS 1.3 a client notices the
// rejection of its certificate only when it reads, so each side sends one byte.
func handshake(t *testing.T, server, client *tls.Config) (s, c peerResult) {
	t.Helper()
	a, b := tcpPair(t)
	srv, cli := tls.Server(a, server), tls.Client(b, client)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s = handshakeSide(srv)
	}()
	c = handshakeSide(cli)
	<-done
	return s, c
}

// handshakeSide does the handshake, then sends and receives one byte.
func handshakeSide(conn *tls.Conn) (e peerResult) {
	defer conn.Close()
	if e.err = conn.Handshake(); e.err != nil {
		return e
	}
	e.cs = conn.ConnectionState()
	if _, e.err = conn.Write([]byte{1}); e.err == nil {
		_, e.err = io.ReadFull(conn, make([]byte, 1))
	}
	return e
}

// tcpPair returns both ends of a TCP connection with a deadline.
func tcpPair(t *testing.T) (accepted, dialed net.Conn) {
	t.Helper()
	ln := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	dialed = must(net.Dial("tcp", ln.Addr().String()))(t)
	accepted = must(ln.Accept())(t)
	for _, c := range []net.Conn{accepted, dialed} {
		c.SetDeadline(time.Now().Add(time.Minute))
		t.Cleanup(func() { c.Close() })
	}
	return accepted, dialed
}
