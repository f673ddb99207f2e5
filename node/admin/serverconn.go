package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// envelope is the body of a request.
type envelope struct {
	_msgpack struct{} `msgpack:",as_array"` //nolint:unused // read by msgpack

	Method  string
	Timeout int64 // milliseconds left to the caller when it sent this; 0: none
	Params  msgpack.RawMessage
}

// serverConn is one connection of a server. Its reader is the goroutine of
// serve; requests run in goroutines of their own.
type serverConn struct {
	s      *Server
	conn   net.Conn
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	write sync.Mutex // held while a frame goes out

	mu      sync.Mutex
	running map[uint64]context.CancelFunc // requests in flight, by id
}

func newServerConn(s *Server, conn net.Conn) *serverConn {
	c := &serverConn{s: s, conn: conn, running: map[uint64]context.CancelFunc{}}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	return c
}

// serve reads requests until the connection ends.
func (c *serverConn) serve() error {
	defer c.conn.Close()
	defer c.cancel()
	cfg := &c.s.cfg
	_ = c.conn.SetDeadline(time.Now().Add(cfg.FirstTimeout))
	var p [preambleSize]byte
	if _, err := io.ReadFull(c.conn, p[:]); err != nil {
		return err
	}
	version, err := negotiate(p)
	if errors.Is(err, ErrPreamble) {
		return err // a stranger learns nothing
	}
	if _, werr := c.conn.Write(serverPreamble(version)); err != nil || werr != nil {
		return errors.Join(err, werr)
	}
	r := bufio.NewReader(c.conn)
	wait := cfg.FirstTimeout
	for {
		if err := c.await(r, wait); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		_ = c.conn.SetReadDeadline(time.Now().Add(cfg.FrameTimeout))
		if err := c.readRequest(r); err != nil {
			return err
		}
		wait = cfg.IdleTimeout
	}
}

// await waits for the first byte of a frame. Silence is only held against a
// connection that has no request in flight.
func (c *serverConn) await(r *bufio.Reader, wait time.Duration) error {
	for {
		_ = c.conn.SetReadDeadline(time.Now().Add(wait))
		_, err := r.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) && c.inFlight() > 0 {
			continue
		}
		return err
	}
}

func (c *serverConn) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.running)
}

// readRequest reads one frame and starts what it asks for. An error ends the
// connection; a refusal is told to the caller and does not.
func (c *serverConn) readRequest(r io.Reader) error {
	charged := 0
	f, err := readFrame(r, frameLimits{
		bytes:    c.s.cfg.MaxFrame,
		elements: c.s.cfg.MaxElements,
		charge: func(n int) bool {
			if !c.s.memory.TryAcquire(int64(n)) {
				return false
			}
			charged += n
			return true
		},
	})
	release := func() { c.s.memory.Release(int64(charged)) }
	switch {
	case err != nil:
		release()
		c.refuse(err)
		return err
	case f.kind == frameCancel:
		release()
		c.mu.Lock()
		if cancel := c.running[f.id]; cancel != nil {
			cancel()
		}
		c.mu.Unlock()
		return nil
	case f.kind != frameRequest:
		release()
		return fmt.Errorf("%w: type %d from a client", ErrFrame, f.kind)
	}
	var e envelope
	if err := decode(f.body, &e); err != nil {
		release()
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if err := c.startRequest(f.id, e, release); err != nil {
		release()
		return c.sendError(f.id, err)
	}
	return nil
}

// refuse tells the caller why its frame ends the connection, where that can
// help; the id 0 concerns all requests. Closing with bytes unread would reset
// the connection and take the answer with it, so some of them are read away.
func (c *serverConn) refuse(err error) {
	switch {
	case errors.Is(err, ErrFrameSize):
		_ = c.sendError(0, Errorf(TooLarge, "%v", err))
	case errors.Is(err, ErrOverBudget):
		_ = c.sendError(0, Errorf(Busy, "the node has too many requests in flight; try again"))
	default:
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, c.conn, int64(c.s.cfg.MaxFrame))
}

// startRequest runs a request beside the others; release is called when its
// bytes are done with.
func (c *serverConn) startRequest(id uint64, e envelope, release func()) *Error {
	h, ok := c.s.methods[e.Method]
	if !ok {
		return Errorf(Unknown, "this node does not know %.40q: it may be of an older version", e.Method)
	}
	timeout := maxTimeout
	if e.Timeout > 0 {
		timeout = min(e.Timeout, maxTimeout)
	}
	ctx, cancel := context.WithTimeout(c.ctx, time.Duration(timeout)*time.Millisecond)
	if h.stream {
		unhook := context.AfterFunc(c.s.streams, cancel)
		end := cancel
		cancel = func() { unhook(); end() }
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, twice := c.running[id]; twice || len(c.running) >= c.s.cfg.MaxRequests {
		cancel()
		return Errorf(Busy, "at most %d requests at once on one connection, each with its own id", c.s.cfg.MaxRequests)
	}
	if !c.s.begin() {
		cancel()
		return Errorf(Busy, "the node is stopping; ask another")
	}
	c.running[id] = cancel
	go func() {
		defer c.s.requests.Done()
		defer cancel()
		c.run(ctx, id, h, e, release)
	}()
	return nil
}

// maxTimeout bounds a request, whatever deadline its caller has: a day, in milliseconds.
const maxTimeout = int64(24 * time.Hour / time.Millisecond)

// run calls the handler and sends its answer.
func (c *serverConn) run(ctx context.Context, id uint64, h handler, e envelope, release func()) {
	result, err := c.call(ctx, h, e, func(item any) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return c.send(frameItem, id, item)
	})
	release()
	c.mu.Lock()
	delete(c.running, id)
	c.mu.Unlock()
	if err != nil {
		_ = c.sendError(id, asError(err))
		return
	}
	_ = c.send(frameResult, id, result)
}

// call guards the node against a fault in a handler.
func (c *serverConn) call(ctx context.Context, h handler, e envelope, send func(any) error) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.s.cfg.Logger.Error("admin: fault in a method", "method", e.Method, "fault", p, "stack", string(debug.Stack()))
			err = Errorf(Internal, "%s: a fault in the node; its log has the details", e.Method)
		}
	}()
	return h.call(ctx, e.Params, send)
}

func (c *serverConn) sendError(id uint64, e *Error) error { return c.send(frameError, id, e) }

// send writes one frame. Where that fails it has closed the connection, which
// is all that there is to do: most callers ignore the error. A peer that does not take it in time is cut off:
// what it holds up is its own connection alone.
func (c *serverConn) send(kind frameType, id uint64, body any) error {
	b, err := encode(body)
	if err != nil {
		return c.sendError(id, Errorf(Internal, "%v", err))
	}
	if len(b) > c.s.cfg.MaxAnswer {
		if kind == frameError {
			return ErrFrameSize
		}
		return c.sendError(id, Errorf(TooLarge, "the answer has %d bytes, the limit is %d: ask for less", len(b), c.s.cfg.MaxAnswer))
	}
	c.write.Lock()
	defer c.write.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.s.cfg.WriteTimeout))
	if _, err := c.conn.Write(appendFrame(nil, frame{kind, id, b})); err != nil {
		c.conn.Close()
		return err
	}
	return nil
}
