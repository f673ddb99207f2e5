package pipe

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"penstock/netio/stream"
)

// What a Conn's methods return when the other end is gone, as a socket's do.
var (
	errPeerClosed = syscall.EPIPE
	errPeerReset  = syscall.ECONNRESET
)

// Conn is the end for code outside the loop. It is safe for concurrent use,
// and must be closed.
type Conn struct {
	pipe          *Pipe
	local, remote net.Addr
	reads, writes deadline // guarded by pipe.mu
	closed        bool     // guarded by pipe.mu
}

var _ net.Conn = (*Conn)(nil)

// deadline wakes those who wait when it has passed.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (l *deadline) passed() bool { return !l.at.IsZero() && !time.Now().Before(l.at) }

// Read reads what the client sent. It returns io.EOF after the client's end,
// and ECONNRESET if the connection was aborted.
func (c *Conn) Read(p []byte) (int, error) {
	d := c.pipe
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.error("read", net.ErrClosed)
		case c.reads.passed():
			return 0, c.error("read", os.ErrDeadlineExceeded)
		case len(p) == 0:
			return 0, nil
		case d.read < len(d.in):
			return d.take(p), nil
		case d.inEnd:
			return 0, io.EOF
		case d.dead != nil:
			return 0, c.error("read", d.dead)
		}
		d.move.Wait()
	}
}

// take moves bytes of in to p.
func (d *Pipe) take(p []byte) int {
	n := copy(p, d.in[d.read:])
	d.read += n
	if d.read == len(d.in) {
		d.in, d.read = d.in[:0], 0
		if cap(d.in) > spare {
			d.in = nil
		}
	}
	if d.owes && len(d.in)-d.read <= room/2 {
		d.post()
	}
	return n
}

// Write sends bytes to the client. It returns EPIPE once the connection has
// ended.
func (c *Conn) Write(p []byte) (n int, err error) {
	d := c.pipe
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		switch {
		case c.closed || d.outEnd:
			return n, c.error("write", net.ErrClosed)
		case c.writes.passed():
			return n, c.error("write", os.ErrDeadlineExceeded)
		case d.dead != nil:
			return n, c.error("write", d.dead)
		case len(p) == 0:
			return n, nil
		case len(d.out) < room:
			k := min(room-len(d.out), len(p))
			d.out = append(d.out, p[:k]...)
			d.written += uint64(k)
			n, p = n+k, p[k:]
			d.postWhatIsNew()
			continue
		}
		d.move.Wait()
	}
}

// Written returns the number of bytes written so far.
func (c *Conn) Written() uint64 {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	return c.pipe.written
}

// CloseWrite ends the direction to the client behind what was written.
func (c *Conn) CloseWrite() error {
	d := c.pipe
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.closed || d.outEnd {
		return c.error("close", net.ErrClosed)
	}
	d.endOut()
	return nil
}

func (d *Pipe) endOut() {
	d.outEnd = true
	d.postWhatIsNew()
	d.move.Broadcast()
}

// Close ends both directions: the client gets what was written and then the
// end. A client that keeps sending is reset.
func (c *Conn) Close() error {
	d := c.pipe
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.closed {
		return c.error("close", net.ErrClosed)
	}
	c.closed = true
	c.reads.set(time.Time{}, nil)
	c.writes.set(time.Time{}, nil)
	d.deaf, d.in, d.read = true, nil, 0
	d.endOut()
	return nil
}

// Abort ends both directions with a reset.
func (c *Conn) Abort() {
	d := c.pipe
	d.mu.Lock()
	d.fail(stream.ErrReset)
	d.mu.Unlock()
	_ = c.Close()
}

// Hold marks the connection as busy although no bytes move, such as while a
// request waits for its answer: a clean end would be too early. Each Hold
// needs one Release.
func (c *Conn) Hold() { c.hold(1) }

// Release undoes one Hold.
func (c *Conn) Release() { c.hold(-1) }

func (c *Conn) hold(n int) {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	c.pipe.holds += n
}

// LocalAddr returns the address that the client connected to.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.reads, &c.writes) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.reads) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writes) }

func (c *Conn) setDeadlines(t time.Time, of ...*deadline) error {
	d := c.pipe
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.closed {
		return c.error("set", net.ErrClosed)
	}
	for _, l := range of {
		l.set(t, d)
	}
	d.move.Broadcast()
	return nil
}

// set changes the deadline. Those who wait look at it again when it passes.
func (l *deadline) set(t time.Time, d *Pipe) {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.at = t
	if left := time.Until(t); !t.IsZero() && left > 0 {
		l.timer = time.AfterFunc(left, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.move.Broadcast()
		})
	}
}

func (c *Conn) error(op string, err error) error {
	return &net.OpError{Op: op, Net: "pipe", Source: c.local, Addr: c.remote, Err: err}
}
