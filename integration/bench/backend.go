package main

import (
	"errors"
	"io"
	"net"
	"sync"
)

type serveFunc func(c net.Conn)

// A backend serves on its own port, one goroutine per connection.
type backend struct {
	l  net.Listener
	mu sync.Mutex
	// open holds the current connections, so that close can end them.
	open map[net.Conn]struct{}
}

func newBackend(serve serveFunc) (*backend, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ended by close
	if err != nil {
		return nil, err
	}
	b := &backend{l: l, open: map[net.Conn]struct{}{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue
			}
			b.mu.Lock()
			b.open[c] = struct{}{}
			b.mu.Unlock()
			go func() {
				serve(c)
				c.Close()
				b.mu.Lock()
				delete(b.open, c)
				b.mu.Unlock()
			}()
		}
	}()
	return b, nil
}

func (b *backend) addr() string { return b.l.Addr().String() }

func (b *backend) close() {
	b.l.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.open {
		c.Close()
	}
}

// serveEcho echoes its input.
func serveEcho(c net.Conn) {
	buf := make([]byte, 256)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
		if n == len(buf) && n < 64<<10 {
			// A bulk sender: use larger reads.
			buf = make([]byte, min(len(buf)*4, 64<<10))
		}
	}
}

// serveSource reads a command of one byte: 'd' sends endlessly, 'u' discards
// input.
func serveSource(c net.Conn) {
	cmd := make([]byte, 1)
	if _, err := io.ReadFull(c, cmd); err != nil {
		return
	}
	buf := make([]byte, 256<<10)
	for {
		var err error
		if cmd[0] == 'd' {
			_, err = c.Write(buf)
		} else {
			_, err = c.Read(buf)
		}
		if err != nil {
			return
		}
	}
}

// serveHello answers the first bytes (a ClientHello) with one byte; a
// passthrough proxy does not notice that no TLS follows.
func serveHello(c net.Conn) {
	buf := make([]byte, 4096)
	if _, err := c.Read(buf); err != nil {
		return
	}
	if _, err := c.Write(buf[:1]); err != nil {
		return
	}
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}
