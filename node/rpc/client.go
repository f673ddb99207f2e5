package rpc

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"penstock/node/api"
)

// Client is a connection to one node. Its methods are safe for concurrent use.
type Client struct {
	addr string
	conn net.Conn

	principal api.Principal // the principal of the token
	// dialStream, if set, opens a second connection to the node for one stream.
	// The pool sets it before it hands out the client.
	dialStream func(context.Context) (*Client, error)

	out     chan frame    // requests for the writer
	cancels chan uint64   // IDs of abandoned requests
	done    chan struct{} // closed when the connection has ended

	mu       sync.Mutex
	calls    map[uint64]*call
	lastID   uint64
	lastUsed time.Time // when the last call began or ended
	err      error     // why the connection ended
}

// newClient returns a client for a connection after the preambles.
func newClient(addr string, conn net.Conn) *Client {
	c := &Client{
		addr: addr, conn: conn, calls: map[uint64]*call{}, lastUsed: time.Now(),
		out: make(chan frame), cancels: make(chan uint64, 256), done: make(chan struct{}),
	}
	go c.read()
	go c.writeFrames()
	return c
}

// call is one request in flight.
type call struct {
	frames    chan frame    // in order; closed when the connection ends
	abandoned chan struct{} // closed when the caller is done with the call
}

// Close ends the connection; calls in flight fail.
func (c *Client) Close() error { return c.conn.Close() }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Principal returns the principal of the client's token; zero without a token.
func (c *Client) Principal() api.Principal { return c.principal }

// TLS returns the connection's TLS state; nil without TLS. Proofs are bound to
// its exported keying material.
func (c *Client) TLS() *tls.ConnectionState { return tlsState(c.conn) }

// idle returns the time since when no call is in flight; ok is false while one
// is.
func (c *Client) idle() (since time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastUsed, len(c.calls) == 0
}

// writeTimeout bounds one write of requests to a node.
const writeTimeout = 30 * time.Second

// maxRequest is the default of Config.MaxFrame.
const maxRequest = 16 << 20

// maxResponse is large because a client receives only what it requested.
const maxResponse = 256 << 20

var responseLimits = frameLimits{bytes: maxResponse, elements: maxResponse / 4}

// read dispatches frames to their calls until the connection ends.
func (c *Client) read() {
	r := bufio.NewReader(c.conn)
	var err error
	for err == nil {
		var f frame
		if f, err = readFrame(r, responseLimits); err != nil {
			break
		}
		if f.id == 0 { // concerns the whole connection
			err = decodeError(f.body)
			break
		}
		c.mu.Lock()
		call := c.calls[f.id]
		c.mu.Unlock()
		if call == nil {
			continue // abandoned
		}
		select {
		case call.frames <- f:
		case <-call.abandoned:
		}
	}
	c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	close(c.done)
	for _, call := range c.calls {
		close(call.frames)
	}
	clear(c.calls)
}

// writeFrames sends requests and cancellations until the connection ends. It is
// the only writer, so that a node that reads nothing delays no caller beyond
// its own deadline.
func (c *Client) writeFrames() {
	var buf []byte
	for {
		select {
		case f := <-c.out:
			buf = appendFrame(buf[:0], f)
		case id := <-c.cancels:
			buf = appendFrame(buf[:0], frame{kind: frameCancel, id: id})
		case <-c.done:
			return
		}
		buf = c.appendQueued(buf)
		_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := c.conn.Write(buf); err != nil {
			// The reader finds out why the node closed the connection. After a timeout
			// it would wait for long, so the connection is closed here.
			if errors.Is(err, os.ErrDeadlineExceeded) {
				c.conn.Close()
			}
			<-c.done
			return
		}
		if cap(buf) > writeBatchSize {
			buf = nil
		}
	}
}

// writeBatchSize is the approximate size, in bytes, up to which frames are
// batched into one write. A larger frame is written alone.
const writeBatchSize = 64 << 10

// appendQueued appends the frames of callers that are about to send.
func (c *Client) appendQueued(buf []byte) []byte {
	runtime.Gosched() // if many callers woke at once, their frames arrive a moment later
	for len(buf) < writeBatchSize {
		select {
		case f := <-c.out:
			buf = appendFrame(buf, f)
		case id := <-c.cancels:
			buf = appendFrame(buf, frame{kind: frameCancel, id: id})
		default:
			return buf
		}
	}
	return buf
}

// start sends a request. After a nil error the caller must call finish.
func (c *Client) start(ctx context.Context, e *envelope) (id uint64, cl *call, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	body, err := encode(e)
	if err != nil {
		return 0, nil, err
	}
	if len(body) > maxRequest {
		return 0, nil, api.Errorf(api.TooLarge, "the request has %d bytes, the limit is %d: split it", len(body), maxRequest)
	}
	cl = &call{frames: make(chan frame, 1), abandoned: make(chan struct{})}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return 0, nil, c.lost()
	}
	c.lastID++
	id = c.lastID
	c.calls[id] = cl
	c.lastUsed = time.Now()
	c.mu.Unlock()
	select {
	case c.out <- frame{frameRequest, id, body}:
		return id, cl, nil
	case <-c.done:
		err = c.lost()
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.finish(id, cl, true) // the request was not sent
	return 0, nil, err
}

// finish ends a call, and cancels it on the node if it is still running.
func (c *Client) finish(id uint64, cl *call, done bool) {
	close(cl.abandoned)
	c.mu.Lock()
	_, open := c.calls[id]
	delete(c.calls, id)
	c.lastUsed = time.Now()
	c.mu.Unlock()
	if !open || done {
		return
	}
	select {
	case c.cancels <- id:
	default: // dropped: the request ends by its deadline or with the connection
	}
}

// next waits for a call's next frame.
func (c *Client) next(ctx context.Context, cl *call) (frame, error) {
	select {
	case f, ok := <-cl.frames:
		if !ok {
			return frame{}, c.lostAfterSend()
		}
		if f.kind == frameError {
			return frame{}, decodeError(f.body)
		}
		return f, nil
	case <-ctx.Done():
		return frame{}, ctx.Err()
	}
}

// lost returns the reason for the end of the connection.
func (c *Client) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e *api.Error
	if errors.As(c.err, &e) {
		return e
	}
	return fmt.Errorf("%w at %s: connection lost: %w", ErrUnreachable, c.addr, c.err)
}

// lostAfterSend returns the error for a call whose request was sent.
func (c *Client) lostAfterSend() error {
	err := c.lost()
	if e := (*api.Error)(nil); errors.As(err, &e) {
		return e
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

func decodeError(body []byte) error {
	e := new(api.Error)
	if err := decode(body, e); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return e
}

// newEnvelope returns the envelope of a call.
func newEnvelope(ctx context.Context, method string, req any) (*envelope, error) {
	params, err := encode(req)
	if err != nil {
		return nil, err
	}
	return &envelope{Method: method, Timeout: timeoutMillis(ctx), Params: params}, nil
}

// roundTrip makes a call with one response. sent is false only if the node
// cannot have received the request.
func (c *Client) roundTrip(ctx context.Context, e *envelope) (f frame, sent bool, err error) {
	id, cl, err := c.start(ctx, e)
	if err != nil {
		return frame{}, false, err
	}
	f, err = c.next(ctx, cl)
	c.finish(id, cl, ctx.Err() == nil)
	return f, true, err
}

// stream makes a call with a stream of responses. sent is as in roundTrip.
func (c *Client) stream(ctx context.Context, e *envelope, each func(frame) error) (sent bool, err error) {
	if c.dialStream != nil {
		if c, err = c.dialStream(ctx); err != nil {
			return false, err
		}
		defer c.Close()
	}
	id, cl, err := c.start(ctx, e)
	if err != nil {
		return false, err
	}
	done := false
	defer func() { c.finish(id, cl, done) }()
	for {
		f, err := c.next(ctx, cl)
		if err != nil {
			return true, err
		}
		if f.kind == frameResult {
			done = true
			return true, nil
		}
		if err := each(f); err != nil {
			return true, err
		}
	}
}

// Call makes a request with one response.
func Call[Resp any](ctx context.Context, c *Client, method string, req any) (*Resp, error) {
	e, err := newEnvelope(ctx, method, req)
	if err != nil {
		return nil, err
	}
	f, _, err := c.roundTrip(ctx, e)
	if err != nil {
		return nil, err
	}
	resp := new(Resp)
	if err := decode(f.body, resp); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", method, ErrFrame, err)
	}
	return resp, nil
}

// Stream makes a request with a stream of responses and calls each for every
// item, until the stream ends, each returns an error, or ctx ends.
func Stream[Item any](ctx context.Context, c *Client, method string, req any, each func(*Item) error) error {
	e, err := newEnvelope(ctx, method, req)
	if err != nil {
		return err
	}
	_, err = c.stream(ctx, e, func(f frame) error {
		item := new(Item)
		if err := decode(f.body, item); err != nil {
			return fmt.Errorf("%s: %w: %w", method, ErrFrame, err)
		}
		return each(item)
	})
	return err
}
