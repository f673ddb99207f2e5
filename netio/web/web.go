// Package web proxies HTTP: it sends the requests of clients that netio joined
// to this process to endpoints, one by one. It knows no service and no route:
// for each request it asks a Handler where it goes, and follows the
// Disposition that it gets.
//
//	server := web.New(web.Config{Handler: h, Log: log})
//	target.Serve = func(c *pipe.Conn) { server.Serve(c, whatIsKnownOfIt, withTLS, alpn) }
//	server.Quiesce()   // clients are told to go; Resume takes that back
//	server.Close()
//
// HTTP is not Penstock's main purpose, so this package builds on net/http and
// its reverse proxy. Both sides may speak HTTP/1.1 or HTTP/2, the latter with
// TLS that netio terminated or in the clear with prior knowledge. Upgrades
// such as WebSocket work, and so do trailers and with them gRPC. Requests that
// net/http cannot parse are answered 400, and the connection is closed. All
// others are written anew for the endpoint, so that it cannot read a request
// differently.
//
// Bodies stream in both directions and are never collected, so only requests
// with an empty body can be retried.
package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"
)

// A Handler decides about requests. Its methods are called on the request's own
// goroutine.
type Handler interface {
	// Route decides about one request, which it must not change. conn is what
	// was given to Serve with the connection that it came by.
	Route(conn any, r *http.Request) Disposition
	// Rules say how a request of the connection is read. They are applied
	// before Route sees it.
	Rules(conn any) Rules
	// Refused tells of a request whose header nobody could read, or that is
	// malformed: it has been answered with this status and its connection ends;
	// 0: it has got no answer, its connection or its stream ends. err says why;
	// nil: only net/http's log does. It may be called while the connection is
	// read.
	Refused(conn any, status int, err error)
}

// A Disposition says what happens to one request: the proxy answers it, or an
// UpstreamSelector leads to endpoints.
type Disposition struct {
	// Answer, where set, is given at once.
	Answer *Answer
	// Upstreams leads to endpoints. With an Answer only its Refusal is asked for.
	Upstreams UpstreamSelector
	// Request changes what is sent on, after what belongs to the connection to
	// the client has been taken off; nil: nothing more. It may set Host, the
	// URL's path and query, and headers.
	Request func(out *http.Request)
	// Response changes the header of the answer; nil: nothing.
	Response func(h http.Header)
	// Timeout bounds the request from here to the end of its answer, or to the
	// switch to another protocol; 0: none.
	Timeout time.Duration
	// BodyIdle bounds how long the client may keep the request's body waiting for
	// its next byte, until an answer begins; 0: none.
	BodyIdle time.Duration
	// Begun, where set, is given the request before it is sent on. Called once,
	// on the request's goroutine.
	Begun func(Request)
	// Upgrades are the protocols, without their versions, that the client may
	// switch to, in any case.
	Upgrades []string
	// Attempts bounds how many endpoints are tried; 0: one.
	Attempts int
	// Last tells the client to go: the connection ends after the requests that
	// are under way on it.
	Last bool
	// Done, where set, is told how the request ended. Called once, on the
	// request's goroutine.
	Done func(Outcome)
}

// A Request is under way. Its methods may be called from any goroutine, also
// after it has ended.
type Request interface {
	// End ends it with ErrEvicted, ErrMemory, ErrRemoved or ErrRevoked.
	End(why error)
	// Idle is how long nothing has moved, as far as that is looked at. Rank 2: it
	// waits for its client, which has not sent all of the body; 1: it waits for
	// its answer; 0: the answer has begun.
	Idle() (rank int, d time.Duration)
}

// Outcome says how a request ended.
type Outcome struct {
	// Status is what the client got; 0: nothing, it is gone.
	Status int
	// Err is why no whole answer of an endpoint came; nil: one did, or the
	// Disposition's own.
	Err error
	// In and Out are the bytes of the bodies: of the request as far as it was
	// read, and of the answer. What moves after a switch of protocols is not
	// among them.
	In, Out int64
}

// An UpstreamSelector names one endpoint after the other. It belongs to one
// request and is called on its goroutine only.
type UpstreamSelector interface {
	// Next names the endpoint to try. The first call has a nil err, each later
	// one the error of the attempt before. It may wait for one, until the request's
	// context ends. ok false: there is none.
	Next(ctx context.Context, err error) (t Target, ok bool)
	// Reached tells that there is a connection to the endpoint of the last Next.
	// It may be called more than once.
	Reached()
	// Answered tells that the endpoint of the last Next has begun its answer.
	// There is no Next after it.
	Answered()
	// Refusal is what the client reads of a request that no endpoint has
	// answered: one word or a few.
	Refusal(err error) string
}

// Answer is an answer that the proxy gives itself.
type Answer struct {
	Status int
	Header http.Header
	Body   string // plain text
}

// Config is the configuration of a Server. Zero values mean the defaults.
type Config struct {
	// Handler decides. Required.
	Handler Handler
	// Log gets what goes wrong. Required.
	Log *slog.Logger
	// HeaderTimeout is the time a client has for a request's header; 0: 10s.
	HeaderTimeout time.Duration
	// BodyWait is how long an answer that comes before its request's body has
	// ended waits for that, with clients of HTTP/1: then it goes, and the body
	// does not go on; 0: 1s.
	BodyWait time.Duration
	// MaxHeader bounds a request's header in bytes; 0: 64 KiB.
	MaxHeader int
	// MaxStreams bounds the requests at once on one HTTP/2 connection; 0: 250.
	MaxStreams int
}

// The defaults of Config.
const (
	DefaultHeaderTimeout = 10 * time.Second
	DefaultBodyWait      = time.Second
	DefaultMaxHeader     = 64 << 10
	DefaultMaxStreams    = 250
)

// A Server serves HTTP to clients.
type Server struct {
	cfg       Config
	proxy     httputil.ReverseProxy
	one       *protocolServer // HTTP/1
	quiescing atomic.Bool     // clients are told to go

	mu     sync.Mutex
	two    *protocolServer // HTTP/2, until Quiesce
	idle   sync.Cond
	conns  map[*serverConn]struct{}
	active int // connections, their goroutines, and requests, which may outlive them
	closed bool
}

// New returns a running server without connections.
func New(cfg Config) *Server {
	if cfg.HeaderTimeout == 0 {
		cfg.HeaderTimeout = DefaultHeaderTimeout
	}
	if cfg.BodyWait == 0 {
		cfg.BodyWait = DefaultBodyWait
	}
	if cfg.MaxHeader == 0 {
		cfg.MaxHeader = DefaultMaxHeader
	}
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = DefaultMaxStreams
	}
	s := &Server{cfg: cfg, conns: map[*serverConn]struct{}{}}
	s.idle.L = &s.mu
	s.proxy = httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      forwarder{},
		ModifyResponse: s.modify,
		ErrorHandler:   s.failed,
		ErrorLog:       s.errorLog(),
		FlushInterval:  -1, // what an endpoint has said is not kept back
		BufferPool:     &buffers{},
	}
	s.one, s.two = s.newProtocolServer(false), s.newProtocolServer(true)
	return s
}
