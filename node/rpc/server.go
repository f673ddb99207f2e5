package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"penstock/node/api"
	"penstock/node/mux"
)

// Config configures a server. Zero fields take the defaults.
type Config struct {
	Logger *slog.Logger // default: none

	MaxFrame    int // bytes of one request: 16 MiB
	MaxAnswer   int // bytes of one response: 256 MiB, the limit of clients
	MaxElements int // msgpack values in one request: 1,000,000
	MaxConns    int // connections at once, per Serve and for all tokens together: 512
	MaxNodes    int // connections of other nodes at once: 1024
	// MaxUnauthenticated bounds the connections without a token or certificate,
	// MaxPerSource those of them from one source. At either bound the oldest is
	// closed: 512, 256.
	MaxUnauthenticated int
	MaxPerSource       int
	MaxRequests        int // requests at once on one connection: 32
	MaxInFlight        int // bytes of all requests being read or handled: 128 MiB

	FirstTimeout time.Duration // from accept to the first byte of the first request: 5s
	FrameTimeout time.Duration // from the first to the last byte of a request: 30s
	IdleTimeout  time.Duration // with no request in flight: 5m
	WriteTimeout time.Duration // for one write of responses: 10s

	// Authenticate returns the principal of a token; nil: tokens are rejected. An
	// Error with a code other than Unauthenticated means that the token cannot be
	// verified now.
	Authenticate func(ctx context.Context, token string) (api.Principal, error)
	// Check, if set, is called before each request of a token's connection. It
	// returns an error if the token is no longer valid. It must be quick.
	Check func(api.Principal) error
	// Otherwise, if set, returns the error for an authenticated caller of a method
	// that the server does not have.
	Otherwise func(method string) *api.Error
	// Audit, if set, is called after each call of a Changing method. It must be
	// quick.
	Audit func(Event)
}

func (c Config) withDefaults() Config {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	wait := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.MaxFrame, maxRequest)
	def(&c.MaxAnswer, maxResponse)
	def(&c.MaxElements, 1_000_000)
	def(&c.MaxConns, 512)
	def(&c.MaxNodes, 1024)
	def(&c.MaxUnauthenticated, 512)
	def(&c.MaxPerSource, 256)
	def(&c.MaxRequests, 32)
	def(&c.MaxInFlight, 128<<20)
	wait(&c.FirstTimeout, 5*time.Second)
	wait(&c.FrameTimeout, 30*time.Second)
	wait(&c.IdleTimeout, 5*time.Minute)
	wait(&c.WriteTimeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server serves admin requests on any number of listeners.
type Server struct {
	cfg     Config
	methods map[string]handler
	memory  *semaphore.Weighted // bytes of requests in flight
	// Limits for large responses to admins and nodes, and to all others.
	admins, others *responseLimiter

	ctx     context.Context // ends when the server is closed
	close   context.CancelFunc
	streams context.Context // ends earlier, when Shutdown begins
	stop    context.CancelFunc

	workers *workers // run requests

	mu            sync.Mutex
	listeners     map[net.Listener]struct{}
	conns         map[*serverConn]struct{}
	refused       int            // connections over a limit since the last log line about them
	refusalLogged time.Time      // when that line was logged
	requests      sync.WaitGroup // in flight
	serving       sync.WaitGroup // connections

	// Slots of connections that came by ServeConn.
	nodeSlots, tokenSlots chan struct{}
	unauthenticated       *mux.UnauthenticatedPool

	failures                                          failures
	validTokens                                       validTokenCache
	tokenChecks                                       chan struct{} // slots for tokens that ThrottleToken examines
	authenticated, authFailed, authLimited, forbidden atomic.Uint64
	overLimit                                         atomic.Uint64
}

// Stats is a snapshot of a server's counters.
type Stats struct {
	Connections     int    // open
	Unauthenticated int    // of them, unauthenticated
	Authenticated   uint64 // connections authenticated by a token
	AuthFailed      uint64 // rejected tokens
	AuthLimited     uint64 // tokens not examined: too many from their source were wrong
	Forbidden       uint64 // requests whose caller lacked the role
	OverLimit       uint64 // connections refused or closed because there were too many
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	conns := len(s.conns)
	s.mu.Unlock()
	return Stats{
		Connections: conns, Unauthenticated: s.unauthenticated.Len(),
		Authenticated: s.authenticated.Load(), AuthFailed: s.authFailed.Load(), AuthLimited: s.authLimited.Load(),
		Forbidden: s.forbidden.Load(), OverLimit: s.overLimit.Load() + s.unauthenticated.Evicted(),
	}
}

// NewServer returns a server without methods.
func NewServer(cfg Config) *Server {
	s := &Server{
		cfg:         cfg.withDefaults(),
		methods:     map[string]handler{},
		listeners:   map[net.Listener]struct{}{},
		conns:       map[*serverConn]struct{}{},
		failures:    failures{interval: failEvery, expires: map[netip.Addr]time.Time{}},
		validTokens: validTokenCache{lastValid: map[[sha256.Size]byte]time.Time{}},
		tokenChecks: make(chan struct{}, maxTokenChecks),
	}
	s.nodeSlots = make(chan struct{}, s.cfg.MaxNodes)
	s.tokenSlots = make(chan struct{}, s.cfg.MaxConns)
	s.unauthenticated = mux.NewUnauthenticatedPool(s.cfg.MaxUnauthenticated, s.cfg.MaxPerSource)
	s.memory = semaphore.NewWeighted(int64(s.cfg.MaxInFlight))
	s.admins, s.others = newResponseLimiter(), newResponseLimiter()
	s.ctx, s.close = context.WithCancel(context.Background())
	s.streams, s.stop = context.WithCancel(s.ctx)
	s.workers = newWorkers(s.ctx)
	return s
}

// refusalsEvery is the minimum interval of log lines about connections over the
// limit, so that unauthenticated peers cannot fill the log.
const refusalsEvery = time.Second

// Serve accepts connections, all with principal p, until the listener is closed
// or Shutdown is called; then it returns nil. Each listener has its own
// MaxConns.
func (s *Server) Serve(ln net.Listener, p api.Principal) error {
	s.mu.Lock()
	if s.streams.Err() != nil {
		s.mu.Unlock()
		return ln.Close()
	}
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	slots := make(chan struct{}, s.cfg.MaxConns)
	pause := time.Duration(0)
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return nil
		default:
			// Most likely there are no descriptors left, which passes: the node must
			// keep accepting.
			s.cfg.Logger.Warn("admin: cannot accept a connection", "error", err)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
				continue
			case <-s.streams.Done():
				return nil
			}
		}
		pause = 0
		if c := s.admit(conn, p, slots); c != nil {
			go s.serve(c)
		}
	}
}

// ServeConn serves one connection until it ends. With a principal of RoleNone
// the connection is unauthenticated until it sends a token.
func (s *Server) ServeConn(conn net.Conn, p api.Principal) {
	slots := s.tokenSlots
	if p.Role == api.RoleNode {
		slots = s.nodeSlots
	}
	if c := s.admit(conn, p, slots); c != nil {
		s.serve(c)
	}
}

// admit finds a slot for a connection, or closes it and returns nil.
func (s *Server) admit(conn net.Conn, p api.Principal, slots chan struct{}) *serverConn {
	c := newServerConn(s, conn, p)
	if p.Role == api.RoleNone {
		c.releaseSlot = s.unauthenticated.Add(conn.RemoteAddr(), func() { closeAsync(conn) })
	} else if release, ok := takeSlot(slots); ok {
		c.releaseSlot = release
	} else {
		s.rejectConn(conn, cap(slots))
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams.Err() != nil {
		c.releaseSlot()
		conn.Close()
		return nil
	}
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	return c
}

// takeSlot takes one of the slots.
func takeSlot(slots chan struct{}) (release func(), ok bool) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, true
	default:
		return nil, false
	}
}

// rejectConn closes a connection over the limit.
func (s *Server) rejectConn(conn net.Conn, limit int) {
	s.overLimit.Add(1)
	s.mu.Lock()
	s.refused++
	refused := s.refused
	tell := time.Since(s.refusalLogged) >= refusalsEvery
	if tell {
		s.refused, s.refusalLogged = 0, time.Now()
	}
	s.mu.Unlock()
	if tell {
		s.cfg.Logger.Warn("admin: too many connections", "limit", limit, "peer", conn.RemoteAddr(), "refused", refused)
	}
	conn.Close()
}

// serve serves an admitted connection.
func (s *Server) serve(c *serverConn) {
	defer s.serving.Done()
	if err := c.serve(); err != nil {
		s.cfg.Logger.Debug("admin: connection ended", "peer", c.peer, "error", err)
	}
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.mu.Lock()
	release := c.releaseSlot
	c.mu.Unlock()
	release()
}

// Drop closes the connections whose principal matches, such as those of a
// revoked token.
func (s *Server) Drop(match func(api.Principal) bool) {
	for _, c := range s.connections() {
		if match(c.currentPrincipal()) {
			closeAsync(c.conn)
		}
	}
}

// connections returns the current connections. Their locks must not be taken
// under the server's: a connection that begins a request takes both in the
// opposite order.
func (s *Server) connections() []*serverConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// closeAsync closes a connection without blocking: the close of a TLS
// connection sends an alert, which may block for seconds.
func closeAsync(conn net.Conn) {
	go func() { _ = conn.Close() }()
}

// lingerTimeout is how long a peer has to close its side of a connection at
// shutdown.
const lingerTimeout = time.Second

// endAsync ends a connection so that the peer gets what was written last: a
// close with bytes of the peer unread, such as a cancellation, would reset the
// connection, and the peer's kernel would discard what it has not read (RFC 9293,
// section 3.10.4). The reader closes the connection when the peer has.
func endAsync(conn net.Conn) {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		closeAsync(conn)
		return
	}
	go func() {
		if half.CloseWrite() != nil {
			_ = conn.Close()
			return
		}
		time.AfterFunc(lingerTimeout, func() { _ = conn.Close() })
	}()
}

// beginRequest registers a request; false: the server is stopping.
func (s *Server) beginRequest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams.Err() != nil {
		return false
	}
	s.requests.Add(1)
	return true
}

// Shutdown stops accepting, ends streams, waits for the requests in flight
// until ctx ends, then closes every connection.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stop()
	for ln := range s.listeners {
		ln.Close()
	}
	s.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		s.requests.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("admin requests still in flight: %w", ctx.Err())
	}
	s.close()
	s.mu.Lock()
	for c := range s.conns {
		endAsync(c.conn)
	}
	s.mu.Unlock()
	<-idle // handlers end with their context
	s.serving.Wait()
	s.workers.all.Wait()
	return err
}
