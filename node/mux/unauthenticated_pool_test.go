package mux

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

func tcp(text string) net.Addr {
	a, err := net.ResolveTCPAddr("tcp", text)
	if err != nil {
		panic(err)
	}
	return a
}

func TestPoolEvictsOldestOfLargestSource(t *testing.T) {
	s := NewUnauthenticatedPool(5, 3)
	var gone []string
	leave := map[string]func(){}
	add := func(addr string) { leave[addr] = s.Add(tcp(addr), func() { gone = append(gone, addr) }) }
	for _, addr := range []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.2:2", "10.0.0.2:3"} {
		add(addr)
	}
	add("10.0.0.2:4") // over its share
	if want := []string{"10.0.0.2:1"}; !slices.Equal(gone, want) {
		t.Fatalf("%v went, want %v", gone, want)
	}
	add("10.0.0.3:1") // full
	add("10.0.0.4:1") // over all
	if want := []string{"10.0.0.2:1", "10.0.0.2:2"}; !slices.Equal(gone, want) {
		t.Fatalf("%v went, want %v", gone, want)
	}
	leave["10.0.0.2:2"]() // gone already
	leave["10.0.0.1:1"]()
	leave["10.0.0.1:1"]()
	if s.Len() != 4 || s.Evicted() != 2 {
		t.Errorf("%d are left, %d were evicted", s.Len(), s.Evicted())
	}
	for _, l := range leave {
		l()
	}
	if s.Len() != 0 || len(s.sources) != 0 {
		t.Errorf("%d strangers, %d sources are kept", s.Len(), len(s.sources))
	}
}

func TestSourcesAreHosts(t *testing.T) {
	for a, b := range map[string]string{
		"10.0.0.1:1": "10.0.0.1:2", "[::ffff:10.0.0.1]:1": "10.0.0.1:1", "[2001:db8::1]:1": "[2001:db8::ffff:2]:1",
	} {
		if Source(tcp(a)) != Source(tcp(b)) {
			t.Errorf("%s and %s are two sources", a, b)
		}
	}
	if Source(tcp("[2001:db8:0:1::1]:1")) == Source(tcp("[2001:db8::1]:1")) {
		t.Error("two networks are one source")
	}
	if Source(&net.UnixAddr{Name: "x"}).IsValid() {
		t.Error("a unix socket has an address")
	}
}

func TestRefusalsAreLoggedOncePerSourceAndMinute(t *testing.T) {
	var l logLimiter
	now := time.Now()
	if !l.allow("a", now) || l.allow("a", now.Add(59*time.Second)) || !l.allow("a", now.Add(time.Minute)) {
		t.Error("a source is not logged once a minute")
	}
	for i := range 2 * maxLogKeys {
		l.allow(fmt.Sprint(i), now)
	}
	if len(l.lastAt) > maxLogKeys || l.allow("late", now) {
		t.Errorf("%d sources are remembered, or one above the limit is logged", len(l.lastAt))
	}
	if !l.allow("late", now.Add(2*time.Minute)) {
		t.Error("old sources are not forgotten")
	}
}

// pipes is a listener of in-memory connections.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error   { close(l.done); return nil }
func (l *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// FuzzFirstBytes checks that without TLS, Admin gets exactly the connections that
// begin as admin RPC or TLS, and XDS those that begin as HTTP/2, with all bytes.
// With TLS, neither gets a connection without a handshake.
func FuzzFirstBytes(f *testing.F) {
	for _, first := range []string{
		"", "APSK\x01\x01\x00\x00", "R", "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "\x15\x03\x01\x00\x02\x02\x46",
	} {
		f.Add([]byte(first))
	}
	got := make(chan []byte, 1)
	admin := func(conn net.Conn, node string) {
		b, _ := io.ReadAll(conn)
		got <- append([]byte(node), b...)
	}
	plain, secure := &pipes{make(chan net.Conn), make(chan struct{})}, &pipes{make(chan net.Conn), make(chan struct{})}
	for _, p := range []*Mux{
		New(Config{Listener: plain, Admin: admin}),
		New(Config{Listener: secure, Admin: admin, TLS: &tls.Config{MinVersion: tls.VersionTLS13}}),
	} {
		f.Cleanup(func() { p.Close() })
		go func() {
			for {
				conn, err := p.XDS().Accept()
				if err != nil {
					return
				}
				b, _ := io.ReadAll(conn)
				conn.Close()
				got <- b
			}
		}()
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		send := func(l *pipes) {
			near, far := net.Pipe()
			l.conns <- near
			go func() { far.Write(wire); far.Close() }()
			io.Copy(io.Discard, far) // until either side has closed
		}
		send(secure)
		send(plain)
		if len(wire) > 0 && (wire[0] == Admin || wire[0] == helloType || wire[0] == prefaceType) {
			if b := <-got; string(b) != string(wire) {
				t.Errorf("%x came as %x", wire, b)
			}
		}
		select {
		case b := <-got:
			t.Errorf("%x came as %x without a handshake, or twice", wire, b)
		default:
		}
	})
}
