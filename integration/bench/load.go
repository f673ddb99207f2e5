package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"penstock/internal/testkit/process"
)

// A dialer opens a client connection to a proxy.
type dialer func(e *env, at places) (net.Conn, error)

func dialPlain(port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", process.Loopback(port))
}

func plainAt(_ *env, at places) (net.Conn, error) { return dialPlain(at.sink) }

func tlsAt(e *env, at places) (net.Conn, error) {
	c, err := dialPlain(at.tls)
	if err != nil {
		return nil, err
	}
	t := tls.Client(c, e.clientTLS(nil))
	if err := t.Handshake(); err != nil { //nolint:noctx // bounded by the proxies' own deadline
		c.Close()
		return nil, err
	}
	return t, nil
}

// each runs n workers for d and sums up their results.
func each(n int, d time.Duration, work func(i int, over *atomic.Bool) (float64, error)) (float64, error) {
	var over atomic.Bool
	timer := time.AfterFunc(d, func() { over.Store(true) })
	defer timer.Stop()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		sum  float64
		errs []error
	)
	for i := range n {
		wg.Go(func() {
			units, err := work(i, &over)
			mu.Lock()
			defer mu.Unlock()
			sum += units
			if err != nil {
				errs = append(errs, err)
				over.Store(true)
			}
		})
	}
	wg.Wait()
	return sum, errors.Join(errs...)
}

// roundTrips sends 256 bytes and waits for their echo, on n long-lived
// connections. Opening them is not measured.
func roundTrips(n int, dial dialer) func(*env, places, time.Duration) (float64, error) {
	if dial == nil {
		dial = func(_ *env, at places) (net.Conn, error) { return dialPlain(at.tcp) }
	}
	return func(e *env, at places, d time.Duration) (float64, error) {
		return each(n, d, func(_ int, over *atomic.Bool) (float64, error) {
			c, err := dial(e, at)
			if err != nil {
				return 0, err
			}
			defer c.Close()
			msg, buf := bytes.Repeat([]byte("penstock"), 32), make([]byte, 256)
			done := 0.0
			for !over.Load() {
				if _, err := c.Write(msg); err != nil {
					return done, err
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					return done, err
				}
				done++
			}
			if !bytes.Equal(msg, buf) {
				return done, errors.New("the echo differs from what was sent")
			}
			return done, nil
		})
	}
}

// bulk transfers at full speed over two connections, one in each direction, and
// counts GB. With TLS, one echo connection does both.
func bulk(dial dialer) func(*env, places, time.Duration) (float64, error) {
	return func(e *env, at places, d time.Duration) (float64, error) {
		return each(2, d, func(i int, over *atomic.Bool) (float64, error) {
			c, err := dial(e, at)
			if err != nil {
				return 0, err
			}
			defer c.Close()
			if _, isTLS := c.(*tls.Conn); isTLS {
				n, err := bulkEcho(c, over)
				return n, err
			}
			if _, err := c.Write([]byte{"du"[i]}); err != nil {
				return 0, err
			}
			buf := make([]byte, 256<<10)
			bytes := 0.0
			for !over.Load() {
				var n int
				if i == 0 {
					n, err = c.Read(buf)
				} else {
					n, err = c.Write(buf)
				}
				bytes += float64(n)
				if err != nil {
					return bytes / 1e9, err
				}
			}
			return bytes / 1e9, nil
		})
	}
}

// bulkEcho streams through the echo backend. Every byte crosses the proxy once
// each way and counts twice.
func bulkEcho(c net.Conn, over *atomic.Bool) (float64, error) {
	wrote := make(chan error, 1)
	go func() {
		buf := make([]byte, 64<<10)
		for !over.Load() {
			if _, err := c.Write(buf); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- c.(*tls.Conn).CloseWrite()
	}()
	n, err := io.Copy(io.Discard, c)
	if w := <-wrote; w != nil {
		return 0, w
	}
	return 2 * float64(n) / 1e9, err
}

const connectors = 16

// newConnections connects, makes one exchange and closes gracefully.
func newConnections(_ *env, at places, d time.Duration) (float64, error) {
	return each(connectors, d, func(_ int, over *atomic.Bool) (float64, error) {
		return repeat(over, func(int) error {
			c, err := dialPlain(at.tcp)
			if err != nil {
				return err
			}
			return exchange(c, []byte("x"))
		})
	})
}

// repeat counts the successful calls of once until the time is over.
func repeat(over *atomic.Bool, once func(i int) error) (float64, error) {
	done := 0
	for !over.Load() {
		if err := once(done); err != nil {
			return float64(done), err
		}
		done++
	}
	return float64(done), nil
}

// exchange sends a message, reads one byte of the answer and closes gracefully:
// our FIN first, then the peer's.
func exchange(c net.Conn, msg []byte) error {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(msg); err != nil {
		return err
	}
	var one [1]byte
	if _, err := io.ReadFull(c, one[:]); err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	return nil
}

func fewNames(_ *env, at places, i int) (int, string) { return at.sni, manyName(i % 10) }
func manyNames(e *env, at places, i int) (int, string) {
	// The stride defeats caches.
	return at.sniMany, manyName(i * 7919 % e.o.names)
}

// newBySNI opens connections that begin with a ClientHello.
func newBySNI(
	hello func(name string) []byte,
	pick func(*env, places, int) (int, string),
) func(*env, places, time.Duration) (float64, error) {
	return func(e *env, at places, d time.Duration) (float64, error) {
		return each(connectors, d, func(w int, over *atomic.Bool) (float64, error) {
			return repeat(over, func(i int) error {
				port, name := pick(e, at, w*104729+i)
				c, err := dialPlain(port)
				if err != nil {
					return err
				}
				return exchange(c, hello(name))
			})
		})
	}
}

// handshakes counts TLS handshakes with one exchange each. If resume is set,
// each uses the ticket of the previous connection; only the first of a worker
// is a full one.
func handshakes(resume bool) func(*env, places, time.Duration) (float64, error) {
	return func(e *env, at places, d time.Duration) (float64, error) {
		return each(connectors, d, func(_ int, over *atomic.Bool) (float64, error) {
			var cache tls.ClientSessionCache
			if resume {
				cache = tls.NewLRUClientSessionCache(1)
			}
			conf := e.clientTLS(cache)
			return repeat(over, func(i int) error {
				c, err := dialPlain(at.tls)
				if err != nil {
					return err
				}
				t := tls.Client(c, conf)
				if err := exchange(t, []byte("x")); err != nil {
					return err
				}
				if got := t.ConnectionState().DidResume; got != (resume && i > 0) {
					return fmt.Errorf("connection %d: resumed is %v", i, got)
				}
				return nil
			})
		})
	}
}
