package testkit

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"syscall"
	"testing"
)

// Listen listens on a free port of 127.0.0.1 until the test ends.
func Listen(t testing.TB) *net.TCPListener {
	t.Helper()
	return ListenOn(t, "tcp", "127.0.0.1:0").(*net.TCPListener)
}

// ListenOn is net.Listen until the test ends.
func ListenOn(t testing.TB, network, address string) net.Listener {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// Serve listens on a free port of 127.0.0.1, calls serve for each connection in
// a goroutine of its own and closes the connection afterwards. It returns the
// address. At the end of the test it closes all connections and waits for the
// goroutines. Conn is net.Conn or *net.TCPConn.
func Serve[Conn net.Conn](t testing.TB, serve func(Conn)) (addr string) {
	t.Helper()
	ln := Listen(t)
	ServeOn(t, ln, func(conn net.Conn) { serve(conn.(Conn)) })
	return ln.Addr().String()
}

// ServeOn is Serve with another listener.
func ServeOn(t testing.TB, ln net.Listener, serve func(net.Conn)) {
	var running sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			running.Go(func() {
				serve(conn)
				conn.Close()
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
			})
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-stopped // from here on, no connection is added
		mu.Lock()
		for conn := range open {
			conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
}

// ServeHTTP serves HTTP/1.1 and HTTP/2, both without TLS, on a free port of
// 127.0.0.1 and returns the address.
func ServeHTTP(t testing.TB, h http.HandlerFunc) (addr string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// FreeAddress returns an address of 127.0.0.1 that refuses connections until
// the test listens on it. A socket holds the port until the test ends, so that
// the kernel gives it to nobody else; SO_REUSEADDR lets the test listen anyway.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return FreeAddressOf(t, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// FreeAddressOf is FreeAddress for another IPv4 address. A test that listens
// again after it has closed a listener gets the same port back.
func FreeAddressOf(t testing.TB, ip netip.Addr) string {
	t.Helper()
	syscall.ForkLock.RLock() // no process of the test inherits the socket
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: ip.As4()}); err != nil {
		t.Fatal(err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(ip, uint16(addr.(*syscall.SockaddrInet4).Port)).String()
}
