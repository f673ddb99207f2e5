package rpc

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/node/mux"
)

// serverConn is one connection of a server. The goroutine of serve reads it;
// each request runs in a goroutine of its own.
type serverConn struct {
	s      *Server
	conn   net.Conn
	peer   string     // its address
	source netip.Addr // of the peer, for limits per source
	tls    *tls.ConnectionState
	ctx    context.Context // ends with the connection; set by serve

	out writeCoalescer

	mu         sync.Mutex
	running    map[uint64]context.CancelFunc // requests in flight, by ID
	unanswered int                           // requests in flight, and responses not written yet
	// principal changes at most once, from unauthenticated to a token's.
	principal   api.Principal
	releaseSlot func() // releases the connection's slot
}

func newServerConn(s *Server, conn net.Conn, p api.Principal) *serverConn {
	c := &serverConn{
		s: s, conn: conn, principal: p, running: map[uint64]context.CancelFunc{},
		peer: conn.RemoteAddr().String(), source: mux.Source(conn.RemoteAddr()), tls: tlsState(conn),
	}
	return c
}

// currentPrincipal returns the connection's current principal.
func (c *serverConn) currentPrincipal() api.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.principal
}

// The limits of an unauthenticated connection: they suffice for a token or a
// request to join.
const (
	unauthFrameSize      = 64 << 10
	unauthElements       = 4 << 10
	unauthRequests       = 2
	unauthIdleTimeout    = 30 * time.Second
	unauthRequestTimeout = time.Minute // for one request
)

// serve reads requests until the connection ends.
func (c *serverConn) serve() error {
	defer c.conn.Close()
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithCancel(c.s.ctx)
	defer cancel()
	cfg := &c.s.cfg
	_ = c.conn.SetDeadline(time.Now().Add(cfg.FirstTimeout))
	var p [preambleSize]byte
	if _, err := io.ReadFull(c.conn, p[:]); err != nil {
		return err
	}
	version, err := negotiate(p)
	if errors.Is(err, ErrPreamble) && (p[0] != helloType || c.tls != nil) {
		return err // an unknown peer gets no response
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
		if c.currentPrincipal().Role == api.RoleNone {
			wait = min(wait, unauthIdleTimeout)
		}
	}
}

// await waits for the first byte of a frame. The timeout applies only while no
// request is in flight.
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

// readRequest reads one frame and starts its request. An error ends the
// connection; a refusal is sent to the caller and does not.
func (c *serverConn) readRequest(r io.Reader) error {
	charged := 0
	size, elements := c.s.cfg.MaxFrame, c.s.cfg.MaxElements
	role := c.currentPrincipal().Role
	if role == api.RoleNone {
		size, elements = min(size, unauthFrameSize), min(elements, unauthElements)
	}
	f, err := readFrame(r, frameLimits{
		bytes:    size,
		elements: elements,
		charge: func(n int) bool {
			if !c.charge(int64(n), role) {
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
		c.rejectFrame(err)
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
		return fmt.Errorf("%w: unexpected type %d from a client", ErrFrame, f.kind)
	}
	e, err := readEnvelope(f.body)
	if err != nil {
		release()
		return err
	}
	if err := c.startRequest(f.id, e, release); err != nil {
		release()
		return c.sendError(f.id, err)
	}
	return nil
}

// charge reserves memory for a request. A node's connection carries the
// requests of many callers, so there it waits rather than end them all.
func (c *serverConn) charge(n int64, role api.Role) bool {
	if c.s.memory.TryAcquire(n) {
		return true
	}
	if role != api.RoleNode {
		return false
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.s.cfg.FrameTimeout)
	defer cancel()
	return c.s.memory.Acquire(ctx, n) == nil
}

// rejectFrame sends the reason for which a frame ends the connection, where
// that can help, with request ID 0 for the whole connection. Closing a socket
// with unread bytes would reset it and lose the response, so rejectFrame first
// discards input, up to a limit.
func (c *serverConn) rejectFrame(err error) {
	switch {
	case errors.Is(err, ErrFrameSize):
		_ = c.sendError(0, api.Errorf(api.TooLarge, "%v", err))
	case errors.Is(err, ErrOverBudget):
		_ = c.sendError(0, api.Errorf(api.Busy, "the node has too many requests in flight; try again"))
	default:
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(time.Second))
	most := int64(c.s.cfg.MaxFrame)
	if c.currentPrincipal().Role == api.RoleNone {
		most = unauthFrameSize
	}
	_, _ = io.CopyN(io.Discard, c.conn, most)
}

// startRequest runs a request concurrently with the others. release is called
// once its bytes are no longer needed.
func (c *serverConn) startRequest(id uint64, e envelope, release func()) *api.Error {
	caller, h, refusal := c.authorize(&e)
	if refusal != nil {
		return refusal
	}
	timeout, most := maxTimeout, c.s.cfg.MaxRequests
	switch c.currentPrincipal().Role {
	case api.RoleNone:
		timeout, most = unauthRequestTimeout.Milliseconds(), min(most, unauthRequests)
	case api.RoleNode:
		most *= nodeRequests
	}
	if e.Timeout > 0 {
		timeout = min(e.Timeout, timeout)
	}
	r := &request{
		caller: caller, peer: c.peer, tls: c.tls, method: e.Method, params: e.Params, stream: h.stream, changes: h.changes, audited: h.audited,
		limiter: c.s.others,
	}
	if caller.Role.May(api.RoleAdmin) {
		r.limiter = c.s.admins
	}
	ctx, cancel := context.WithTimeout(context.WithValue(c.ctx, requestKey{}, r), time.Duration(timeout)*time.Millisecond)
	if h.stream {
		unhook := context.AfterFunc(c.s.streams, cancel)
		end := cancel
		cancel = func() { unhook(); end() }
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Twice as many, because a caller that has received a response sends its next
	// request before this side has noted the write.
	if _, twice := c.running[id]; twice || len(c.running) >= most || c.unanswered >= 2*most {
		cancel()
		return api.Errorf(api.Busy, "at most %d requests at once per connection, each with its own ID", most)
	}
	if !c.s.beginRequest() {
		cancel()
		return api.Errorf(api.Busy, "the node is stopping; use another")
	}
	c.running[id] = cancel
	c.unanswered++
	c.s.workers.run(func() {
		defer c.s.requests.Done()
		defer cancel()
		c.run(ctx, id, h, r, release)
	})
	return nil
}

// authorize determines the caller and checks that it may call the method.
func (c *serverConn) authorize(e *envelope) (api.Principal, handler, *api.Error) {
	caller, h := c.currentPrincipal(), handler{}
	if e.OnBehalf != nil {
		if caller.Role != api.RoleNode {
			return caller, h, c.forbid("only nodes may act on behalf of others; %s has role %s", caller, caller.Role)
		}
		via := caller.Node
		caller = *e.OnBehalf
		caller.Via = via
	}
	if e.Method == api.MethodAuth {
		return caller, handler{call: func(ctx context.Context, params []byte, _ func(any) error) (any, error) {
			return c.authenticate(ctx, params)
		}}, c.checkTokenRate(caller)
	}
	h, known := c.s.methods[e.Method]
	switch {
	case caller.Role == api.RoleNone && (!known || h.role != api.RoleNone):
		return caller, h, api.Errorf(api.Unauthenticated, "a token is required: use --token, PENSTOCK_TOKEN or the node's own socket")
	case !known && c.s.cfg.Otherwise != nil:
		return caller, h, c.s.cfg.Otherwise(e.Method)
	case !known:
		return caller, h, api.Errorf(api.Unknown, "unknown method %.40q: the node may run an older version", e.Method)
	case !caller.Role.May(h.role):
		refusal := c.forbid("%s requires role %s, %s has role %s", e.Method, h.role, caller, caller.Role)
		c.s.audit(&request{caller: caller, peer: c.peer, method: e.Method, audited: h.audited}, refusal, time.Now())
		return caller, h, refusal
	}
	if refusal := c.checkTokenRate(caller); refusal != nil {
		return caller, h, refusal
	}
	return caller, h, c.s.checkStillValid(caller)
}

func (c *serverConn) forbid(format string, args ...any) *api.Error {
	c.s.forbidden.Add(1)
	return api.Errorf(api.Forbidden, format, args...)
}

// nodeRequests multiplies MaxRequests for a node's connection, which carries
// the requests of all callers of that node.
const nodeRequests = 32

// maxTimeout bounds the time of a request, in milliseconds, whatever the
// caller's deadline: one day.
const maxTimeout = int64(24 * time.Hour / time.Millisecond)

// run calls the handler and sends its response.
func (c *serverConn) run(ctx context.Context, id uint64, h handler, r *request, release func()) {
	r.send = func(item any) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if why := c.s.checkStillValid(r.caller); why != nil {
			return why
		}
		if r.releaseBuild != nil {
			return c.sendLarge(ctx, r, frameItem, id, item)
		}
		return c.send(frameItem, id, item)
	}
	at := time.Now()
	result, err := c.call(ctx, h, r)
	if r.releaseBuild != nil {
		defer r.releaseBuild()
	}
	if r.caller.Role == api.RoleNone {
		c.recordTokenFailure(ctx, err)
	}
	release()
	c.mu.Lock()
	delete(c.running, id)
	c.mu.Unlock()
	var passed *forwardedResult
	if errors.As(err, &passed) { // the node that handled it audits it
		c.sendLast(frameResult, id, passed.result)
		return
	}
	if !r.partial {
		c.s.audit(r, err, at)
	}
	switch {
	case err != nil:
		c.sendLast(frameError, id, asError(err))
	case r.releaseBuild != nil:
		_ = c.sendLarge(ctx, r, frameResult, id, result)
		c.answered(1)
	default:
		c.sendLast(frameResult, id, result)
	}
}

// answered records that n responses are written, or never will be.
func (c *serverConn) answered(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unanswered -= n
}

// call calls the handler and recovers from a panic.
func (c *serverConn) call(ctx context.Context, h handler, r *request) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.s.cfg.Logger.Error("admin: panic in a method", "method", r.method, "fault", p, "stack", string(debug.Stack()))
			err = api.Errorf(api.Internal, "%s: internal error; the node's log has the details", r.method)
		}
	}()
	return h.call(ctx, r.params, r.send)
}

func (c *serverConn) sendError(id uint64, e *api.Error) error { return c.send(frameError, id, e) }
