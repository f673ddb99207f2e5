package testkit

import (
	"net"
	"sync"
	"testing"
)

// Listen listens on a free port of 127.0.0.1 until the test ends.
func Listen(t testing.TB) *net.TCPListener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener)
}

// Serve listens on a free port of 127.0.0.1, calls serve for each connection in
// a goroutine of its own and closes the connection afterwards. It returns the
// address. At the end of the test it closes all connections and waits for the
// goroutines.
func Serve(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	ln := Listen(t)
	ServeOn(t, ln, serve)
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

// UnusedAddress returns an address on which nothing listens. It has an IP
// address that no listener of a test uses, because the kernel would soon assign
// a free port of 127.0.0.1 to another socket.
func UnusedAddress(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.16.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
