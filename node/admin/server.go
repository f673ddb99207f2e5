package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Config bounds a server. Zero fields take the defaults.
type Config struct {
	Logger *slog.Logger // default: none

	MaxFrame    int // bytes of one request: 16 MiB
	MaxAnswer   int // bytes of one answer: 256 MiB, what clients take
	MaxElements int // msgpack values in one request: 1,000,000
	MaxConns    int // connections at once, of each Serve: 128
	MaxRequests int // requests at once, of one connection: 32
	MaxInFlight int // bytes of all requests being read or handled: 128 MiB

	FirstTimeout time.Duration // from accept to the first byte of the first request: 5s
	FrameTimeout time.Duration // for a request's bytes, once the first has come: 30s
	IdleTimeout  time.Duration // with no request in flight: 5m
	WriteTimeout time.Duration // for one answer: 10s
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
	def(&c.MaxAnswer, maxAnswer)
	def(&c.MaxElements, 1_000_000)
	def(&c.MaxConns, 128)
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

// Server answers admin requests on any number of listeners.
type Server struct {
	cfg     Config
	methods map[string]handler
	memory  *semaphore.Weighted // bytes of requests in flight

	ctx     context.Context // ends when the server is closed
	close   context.CancelFunc
	streams context.Context // ends earlier, when Shutdown begins
	stop    context.CancelFunc

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*serverConn]struct{}
	requests  sync.WaitGroup // in flight
	serving   sync.WaitGroup // connections
}

// handler is one method, its types taken away.
type handler struct {
	stream bool
	call   func(ctx context.Context, params []byte, send func(item any) error) (result any, err error)
}

// NewServer makes a server that knows no method yet.
func NewServer(cfg Config) *Server {
	s := &Server{
		cfg:       cfg.withDefaults(),
		methods:   map[string]handler{},
		listeners: map[net.Listener]struct{}{},
		conns:     map[*serverConn]struct{}{},
	}
	s.memory = semaphore.NewWeighted(int64(s.cfg.MaxInFlight))
	s.ctx, s.close = context.WithCancel(context.Background())
	s.streams, s.stop = context.WithCancel(s.ctx)
	return s
}

// Handle adds a method with one answer. It must come before Serve.
func Handle[Req, Resp any](s *Server, method string, fn func(context.Context, *Req) (*Resp, error)) {
	s.methods[method] = handler{call: func(ctx context.Context, params []byte, _ func(any) error) (any, error) {
		var req Req
		if err := decode(params, &req); err != nil {
			return nil, Errorf(Invalid, "%s: %v", method, err)
		}
		return fn(ctx, &req)
	}}
}

// HandleStream adds a method with any number of answers; its context ends
// when the caller has gone or the server stops. It must come before Serve.
func HandleStream[Req, Item any](s *Server, method string, fn func(ctx context.Context, req *Req, send func(*Item) error) error) {
	s.methods[method] = handler{stream: true, call: func(ctx context.Context, params []byte, send func(any) error) (any, error) {
		var req Req
		if err := decode(params, &req); err != nil {
			return nil, Errorf(Invalid, "%s: %v", method, err)
		}
		return nil, fn(ctx, &req, func(item *Item) error { return send(item) })
	}}
}

// refusalsEvery is the least time between two lines about connections over
// the limit: what a stranger does must not fill the log.
const refusalsEvery = time.Second

// Serve accepts connections until the listener fails or Shutdown is called;
// then it returns nil.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.streams.Err() != nil {
		s.mu.Unlock()
		return ln.Close()
	}
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	slots := make(chan struct{}, s.cfg.MaxConns)
	pause := time.Duration(0)
	refused, told := 0, time.Time{} // since the last line about it, and when that was
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return nil
		default:
			// Out of descriptors, most likely: this passes, the node must not.
			s.cfg.Logger.Warn("admin: accept", "error", err)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
				continue
			case <-s.streams.Done():
				return nil
			}
		}
		pause = 0
		select {
		case slots <- struct{}{}:
		default:
			refused++
			if time.Since(told) >= refusalsEvery {
				s.cfg.Logger.Warn("admin: too many connections", "limit", s.cfg.MaxConns, "peer", conn.RemoteAddr(), "refused", refused)
				refused, told = 0, time.Now()
			}
			conn.Close()
			continue
		}
		if !s.start(conn, func() { <-slots }) {
			conn.Close()
		}
	}
}

// start serves a connection, unless the server is stopping.
func (s *Server) start(conn net.Conn, done func()) bool {
	c := newServerConn(s, conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams.Err() != nil {
		return false
	}
	s.conns[c] = struct{}{}
	s.serving.Go(func() {
		defer done()
		if err := c.serve(); err != nil {
			s.cfg.Logger.Debug("admin: connection", "peer", conn.RemoteAddr(), "error", err)
		}
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
	return true
}

// begin counts a request in, unless the server is stopping.
func (s *Server) begin() bool {
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
		c.conn.Close()
	}
	s.mu.Unlock()
	<-idle // handlers end with their context
	s.serving.Wait()
	return err
}
