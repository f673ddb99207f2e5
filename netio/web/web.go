// Package web carries HTTP: requests of clients that netio has joined to this
// process go on to endpoints, one by one. It knows no service and no route: for
// each request it asks a Handler where to, and does what the Plan says.
//
//	server := web.New(web.Config{Handler: h, Log: log})
//	target.Serve = func(c *duct.Conn) { server.Serve(c, whatIsKnownOfIt, withTLS) }
//	server.Close()
//
// HTTP is not what Penstock exists for, so it stands on net/http and its
// reverse proxy: HTTP/1.1 and HTTP/2 on either side, the latter with TLS that
// netio has ended or in the clear with prior knowledge; upgrades such as
// WebSocket; trailers, and with them gRPC. What net/http refuses to parse is
// answered 400 and the connection closed.
//
// Bodies stream in both directions and are never collected, so only requests
// whose body is empty can be sent a second time.
package web

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"penstock/netio/duct"
)

// A Handler decides about requests. Its methods are called on the request's own
// goroutine.
type Handler interface {
	// Route decides about one request, which it must not change. conn is what
	// was given to Serve with the connection that it came by.
	Route(conn any, r *http.Request) Plan
}

// A Plan is what becomes of one request: an answer from here, or a way.
type Plan struct {
	// Answer, where set, is given at once; nothing else of the plan counts.
	Answer *Answer
	// Way leads to endpoints.
	Way Way
	// Request changes what is sent on, after what belongs to the connection to
	// the client has been taken off; nil: nothing more. It may set Host, the
	// URL's path and query, and headers.
	Request func(out *http.Request)
	// Response changes the header of the answer; nil: nothing.
	Response func(h http.Header)
	// Timeout bounds the request from here to the end of its answer; 0: none.
	Timeout time.Duration
	// Attempts bounds how many endpoints are tried; 0: one.
	Attempts int
}

// A Way leads to one endpoint after the other. It belongs to one request and is
// called on its goroutine alone.
type Way interface {
	// Next names the endpoint to try. The first call has a nil err, each later
	// one the error of the attempt before. ok false: there is none.
	Next(err error) (t Target, ok bool)
	// Done tells how the request ended: the status that the client got, and
	// the error where no endpoint's answer came. Called once.
	Done(status int, err error)
}

// Answer is an answer that needs no endpoint.
type Answer struct {
	Status int
	Header http.Header
	Body   string // plain text
}

// Config is for New. Zero values mean the defaults.
type Config struct {
	// Handler decides. Required.
	Handler Handler
	// Log gets what goes wrong. Required.
	Log *slog.Logger
	// HeaderTimeout is the time a client has for a request's header; 0: 10s.
	HeaderTimeout time.Duration
	// MaxHeader bounds a request's header in bytes; 0: 64 KiB.
	MaxHeader int
	// MaxStreams bounds the requests at once on one HTTP/2 connection; 0: 250.
	MaxStreams int
}

const (
	defaultHeaderTimeout = 10 * time.Second
	defaultMaxHeader     = 64 << 10
	defaultMaxStreams    = 250
)

// Server serves HTTP to clients.
type Server struct {
	cfg    Config
	accept duct.Listener
	http   http.Server
	proxy  httputil.ReverseProxy
	ended  chan struct{} // Serve has returned

	mu     sync.Mutex
	idle   sync.Cond // active is 0
	active int       // connections, and requests, which may outlive them
	closed bool
}

// New starts a server that nobody has joined yet.
func New(cfg Config) *Server {
	if cfg.HeaderTimeout == 0 {
		cfg.HeaderTimeout = defaultHeaderTimeout
	}
	if cfg.MaxHeader == 0 {
		cfg.MaxHeader = defaultMaxHeader
	}
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = defaultMaxStreams
	}
	s := &Server{cfg: cfg, ended: make(chan struct{})}
	s.idle.L = &s.mu
	logged := slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug) // what clients get wrong
	s.proxy = httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      forwarder{},
		ModifyResponse: modify,
		ErrorHandler:   s.failed,
		ErrorLog:       logged,
		FlushInterval:  -1, // what an endpoint has said is not kept back
		BufferPool:     &buffers{},
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // TLS has ended before the duct
	s.http = http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: cfg.HeaderTimeout,
		MaxHeaderBytes:    cfg.MaxHeader,
		ErrorLog:          logged,
		Protocols:         protocols,
		ConnState:         s.count,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: cfg.MaxStreams},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	go func() {
		defer close(s.ended)
		_ = s.http.Serve(&s.accept) // until Close
	}()
	return s
}
