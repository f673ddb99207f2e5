package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Client talks to one node. Its methods may be called from anywhere, and at
// the same time.
type Client struct {
	addr string
	conn net.Conn

	write sync.Mutex // held while a frame goes out

	mu     sync.Mutex
	calls  map[uint64]*call
	lastID uint64
	err    error // why the connection ended
}

// call is one request in flight.
type call struct {
	frames chan frame    // in order; closed when the connection has ended
	gone   chan struct{} // closed when the caller does not listen any more
}

// Dial connects to a node: "host:port" of its cluster port, or "unix:PATH".
func Dial(ctx context.Context, addr string) (*Client, error) {
	network, address := "tcp", addr
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, address = "unix", path
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, addr, err)
	}
	if err := greet(ctx, conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, addr, err)
	}
	c := &Client{addr: addr, conn: conn, calls: map[uint64]*call{}}
	go c.read()
	return c, nil
}

// greet exchanges preambles.
func greet(ctx context.Context, conn net.Conn) error {
	if t, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(t)
	}
	defer func() { _ = conn.SetDeadline(time.Time{}) }()
	unhook := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer unhook()
	if _, err := conn.Write(clientPreamble(minVersion, maxVersion)); err != nil {
		return err
	}
	var p [preambleSize]byte
	if _, err := io.ReadFull(conn, p[:]); err != nil {
		return fmt.Errorf("no greeting: %w", unexpected(err))
	}
	return accepted(p)
}

// Close ends the connection; calls in flight fail.
func (c *Client) Close() error { return c.conn.Close() }

// writeTimeout bounds how long a node may leave a request untaken.
const writeTimeout = 30 * time.Second

// maxRequest is the default of Config.MaxFrame.
const maxRequest = 16 << 20

// maxAnswer is wide: a client asked for what it gets.
const maxAnswer = 256 << 20

var answerLimits = frameLimits{bytes: maxAnswer, elements: maxAnswer / 4}

// read hands frames to their calls until the connection ends.
func (c *Client) read() {
	r := bufio.NewReader(c.conn)
	var err error
	for err == nil {
		var f frame
		if f, err = readFrame(r, answerLimits); err != nil {
			break
		}
		if f.id == 0 { // concerns the connection
			err = decodeError(f.body)
			break
		}
		c.mu.Lock()
		call := c.calls[f.id]
		c.mu.Unlock()
		if call == nil {
			continue // given up
		}
		select {
		case call.frames <- f:
		case <-call.gone:
		}
	}
	c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for _, call := range c.calls {
		close(call.frames)
	}
	clear(c.calls)
}

// start sends a request. The caller must call finish.
func (c *Client) start(ctx context.Context, method string, req any) (id uint64, cl *call, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	params, err := encode(req)
	if err != nil {
		return 0, nil, err
	}
	e := envelope{Method: method, Params: params}
	if t, ok := ctx.Deadline(); ok {
		e.Timeout = max(1, time.Until(t).Milliseconds())
	}
	body, err := encode(&e)
	if err != nil {
		return 0, nil, err
	}
	if len(body) > maxRequest {
		return 0, nil, Errorf(TooLarge, "the request has %d bytes, the limit is %d: send it in parts", len(body), maxRequest)
	}
	cl = &call{frames: make(chan frame, 1), gone: make(chan struct{})}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return 0, nil, c.lost()
	}
	c.lastID++
	id = c.lastID
	c.calls[id] = cl
	c.mu.Unlock()
	// A write that fails is no answer: the reader learns why the node hung up.
	_ = c.send(frame{frameRequest, id, body})
	return id, cl, nil
}

func (c *Client) send(f frame) error {
	c.write.Lock()
	defer c.write.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.conn.Write(appendFrame(nil, f))
	return err
}

// finish forgets a call, and tells the node if that is still at work.
func (c *Client) finish(id uint64, cl *call, done bool) {
	close(cl.gone)
	c.mu.Lock()
	_, open := c.calls[id]
	delete(c.calls, id)
	c.mu.Unlock()
	if open && !done {
		_ = c.send(frame{kind: frameCancel, id: id})
	}
}

// next waits for a call's next frame.
func (c *Client) next(ctx context.Context, cl *call) (frame, error) {
	select {
	case f, ok := <-cl.frames:
		if !ok {
			return frame{}, c.lost()
		}
		if f.kind == frameError {
			return frame{}, decodeError(f.body)
		}
		return f, nil
	case <-ctx.Done():
		return frame{}, ctx.Err()
	}
}

// lost says why the connection ended.
func (c *Client) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e *Error
	if errors.As(c.err, &e) {
		return e
	}
	return fmt.Errorf("%w at %s: connection lost: %w", ErrUnreachable, c.addr, c.err)
}

func decodeError(body []byte) error {
	e := new(Error)
	if err := decode(body, e); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return e
}

// Call makes a request with one answer.
func Call[Resp any](ctx context.Context, c *Client, method string, req any) (*Resp, error) {
	id, cl, err := c.start(ctx, method, req)
	if err != nil {
		return nil, err
	}
	f, err := c.next(ctx, cl)
	c.finish(id, cl, ctx.Err() == nil)
	if err != nil {
		return nil, err
	}
	resp := new(Resp)
	if err := decode(f.body, resp); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", method, ErrFrame, err)
	}
	return resp, nil
}

// Stream makes a request with many answers and calls each for every one,
// until the stream ends, each returns an error, or ctx ends.
func Stream[Item any](ctx context.Context, c *Client, method string, req any, each func(*Item) error) (err error) {
	id, cl, err := c.start(ctx, method, req)
	if err != nil {
		return err
	}
	done := false
	defer func() { c.finish(id, cl, done) }()
	for {
		f, err := c.next(ctx, cl)
		if err != nil {
			return err
		}
		if f.kind == frameResult {
			done = true
			return nil
		}
		item := new(Item)
		if err := decode(f.body, item); err != nil {
			return fmt.Errorf("%s: %w: %w", method, ErrFrame, err)
		}
		if err := each(item); err != nil {
			return err
		}
	}
}
