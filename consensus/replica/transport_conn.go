package replica

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// streams adapts StreamLayer to raft.StreamLayer, with the server ID as the
// address. It tracks all connections to close them, and bounds their stalls.
type streams struct {
	inner        StreamLayer
	stallTimeout time.Duration // the maximum time without a byte while one is awaited
	// midMessage counts the readers in the middle of a message. While it is not 0,
	// all connections are read with a deadline.
	midMessage atomic.Int64
	heartbeats *heartbeatHandler // handles heartbeats

	mu     sync.Mutex
	closed bool
	conns  map[*conn]struct{}
	done   chan struct{}
}

// maxConns bounds the connections: several for each of a thousand servers.
const maxConns = 8192

var (
	_ raft.StreamLayer = (*streams)(nil)

	errTooManyConns = errors.New("too many connections between servers")
)

func newStreams(inner StreamLayer, stall time.Duration) *streams {
	s := &streams{inner: inner, stallTimeout: stall, conns: make(map[*conn]struct{}), done: make(chan struct{})}
	s.heartbeats = &heartbeatHandler{done: s.done}
	return s
}

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	for {
		c, err := s.inner.Accept()
		if err != nil {
			return nil, err
		}
		if c, err := s.add(c, true); err == nil {
			return c, nil
		} else if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
	}
}

// Dial implements raft.StreamLayer. It returns when streams is closed.
func (s *streams) Dial(id raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	type dialled struct {
		c   net.Conn
		err error
	}
	result := make(chan dialled, 1)
	go func() {
		c, err := s.inner.Dial(string(id), timeout)
		result <- dialled{c, err}
	}()
	select {
	case d := <-result:
		if d.err != nil {
			return nil, d.err
		}
		return s.add(d.c, false)
	case <-s.done:
		go func() {
			if d := <-result; d.err == nil {
				d.c.Close()
			}
		}()
		return nil, net.ErrClosed
	}
}

func (s *streams) add(inner net.Conn, accepted bool) (net.Conn, error) {
	c := &conn{Conn: inner, streams: s, accepted: accepted}
	c.readLimit.Store(int64(s.stallTimeout))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		inner.Close()
		return nil, net.ErrClosed
	case len(s.conns) >= maxConns:
		inner.Close()
		return nil, errTooManyConns
	}
	s.conns[c] = struct{}{}
	return c, nil
}

// Close implements net.Listener.
func (s *streams) Close() error { return s.close() }

// Addr implements net.Listener.
func (s *streams) Addr() net.Addr { return s.inner.Addr() }

// close closes the listener and all connections.
func (s *streams) close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	err := s.inner.Close()
	for c := range conns {
		c.Conn.Close()
	}
	return err
}

// conn is one connection. Raft sets a deadline for a whole message, however
// large; conn applies it to each read and write, so that a large message may
// take long as long as bytes move.
type conn struct {
	net.Conn
	streams   *streams
	accepted  bool
	started   bool         // a byte was read; used by the reader only
	readLimit atomic.Int64 // of one read on a dialed connection, in nanoseconds
}

// writeChunk is the size of one write.
const writeChunk = 256 << 10

// Read implements net.Conn. An accepted connection that turns out to be for
// heartbeats is served here until it ends; Raft sees EOF.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.read(b)
	if c.started || n == 0 {
		return n, err
	}
	c.started = true
	if !c.accepted || b[0] != heartbeatMark {
		return n, err
	}
	// The sender notices the closed connection by itself and dials again.
	_ = c.streams.heartbeats.serve(io.MultiReader(bytes.NewReader(bytes.Clone(b[:n])), readFunc(c.read)), c)
	return 0, io.EOF
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// read does one read. An accepted connection may be idle between messages.
func (c *conn) read(b []byte) (int, error) {
	var end time.Time
	switch {
	case !c.accepted:
		end = time.Now().Add(time.Duration(c.readLimit.Load()))
	case c.streams.midMessage.Load() > 0:
		end = time.Now().Add(c.streams.stallTimeout)
	}
	if err := c.Conn.SetReadDeadline(end); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (n int, err error) {
	for {
		step := b[n:min(len(b), n+writeChunk)]
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.streams.stallTimeout)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(step)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn. The time from now to t becomes the limit
// of each read.
func (c *conn) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		c.readLimit.Store(int64(max(time.Until(t), time.Millisecond)))
	}
	return nil
}

// SetWriteDeadline implements net.Conn. It does nothing: each write has its own
// deadline.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.streams.mu.Lock()
	delete(c.streams.conns, c)
	c.streams.mu.Unlock()
	return c.Conn.Close()
}
