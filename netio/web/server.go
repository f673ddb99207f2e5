package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"

	"penstock/netio/duct"
)

// served is a client's connection with what is known of it.
type served struct {
	*duct.Conn
	known  any
	secure bool
}

type connKey struct{}

// Serve serves a connection until its end. known is handed to the Handler with
// each of its requests; secure says that the client came by TLS. It does not
// block.
func (s *Server) Serve(c *duct.Conn, known any, secure bool) {
	s.accept.Hand(&served{c, known, secure})
}

// Close ends all connections at once, and waits until those who serve them have
// noticed.
func (s *Server) Close() {
	_ = s.http.Close()
	_ = s.accept.Close()
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for s.active > 0 {
		s.idle.Wait()
	}
}

// count counts connections.
func (s *Server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.begin()
	case http.StateClosed, http.StateHijacked:
		s.end()
	}
}

// begin counts a request in; false: it comes too late.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.active++
	}
	return !s.closed
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active--; s.active == 0 {
		s.idle.Broadcast()
	}
}

// Quiesce has each connection end after the request that it is at.
func (s *Server) Quiesce() { s.http.SetKeepAlivesEnabled(false) }

// request is a request on its way.
type request struct {
	conn   *served
	plan   Plan
	status int
	err    error
}

type requestKey struct{}

func requestOf(r *http.Request) *request { return r.Context().Value(requestKey{}).(*request) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.begin() {
		panic(http.ErrAbortHandler)
	}
	defer s.end()
	conn := r.Context().Value(connKey{}).(*served)
	q := &request{conn: conn, plan: s.cfg.Handler.Route(conn.known, r)}
	if q.plan.Answer != nil {
		q.plan.Answer.write(w)
		return
	}
	ctx := context.WithValue(r.Context(), requestKey{}, q)
	if q.plan.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, q.plan.Timeout, ErrTimeout)
		defer cancel()
	}
	whole := false
	defer func() {
		if !whole {
			q.cutOff(ctx, r)
		}
		q.plan.Way.Done(q.status, q.err)
	}()
	s.proxy.ServeHTTP(w, r.WithContext(ctx))
	whole = true
}

// cutOff is for an answer that has begun and does not come to its end. HTTP/2
// resets the stream by itself. In HTTP/1 an answer without a length ends with
// its connection, and so that it does not look complete that is reset.
func (q *request) cutOff(ctx context.Context, r *http.Request) {
	if q.err == nil {
		q.err = ErrCutOff
		if cause := context.Cause(ctx); cause != nil {
			q.err = fmt.Errorf("%w: %w", ErrCutOff, cause)
		}
	}
	if r.ProtoMajor == 1 {
		q.conn.Abort()
	}
}

func (a *Answer) write(w http.ResponseWriter) {
	for k, v := range a.Header {
		w.Header()[k] = v
	}
	if a.Body != "" && w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write([]byte(a.Body)) // a client that is gone has no use for it
}

// rewrite makes the request that is sent on: the client's own words about who
// it is are replaced by what is known.
func rewrite(p *httputil.ProxyRequest) {
	p.SetXForwarded()
	p.Out.Host = p.In.Host
	p.Out.URL.Scheme = "http" // the target's profile knows better
	q := requestOf(p.In)
	if q.conn.secure {
		p.Out.Header.Set("X-Forwarded-Proto", "https")
	}
	if edit := q.plan.Request; edit != nil {
		edit(p.Out)
	}
}

func modify(r *http.Response) error {
	q := requestOf(r.Request)
	q.status = r.StatusCode
	if len(r.Trailer) > 0 && r.Request.ProtoMajor == 1 { // HTTP/1 has trailers behind chunks alone
		r.Header.Del("Content-Length")
		r.ContentLength = -1
	}
	if edit := q.plan.Response; edit != nil {
		edit(r.Header)
	}
	return nil
}

// Errors that a request may end with, possibly wrapped.
var (
	// ErrTimeout says that the plan's Timeout was over.
	ErrTimeout = errors.New("request timeout")
	// ErrCutOff says that an answer had begun and did not come to its end.
	ErrCutOff = errors.New("the answer was cut off")
	// ErrNowhere says that the way led to no endpoint.
	ErrNowhere = errors.New("no endpoint")
)

// failed answers a request that no endpoint has answered.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, err error) {
	q := requestOf(r)
	q.err = err
	if cause := context.Cause(r.Context()); errors.Is(cause, ErrTimeout) {
		q.err = cause
	}
	var timeout net.Error
	switch {
	case r.Context().Err() != nil && !errors.Is(q.err, ErrTimeout):
		q.status = 0 // the client is gone: nobody gets it
		panic(http.ErrAbortHandler)
	case errors.Is(q.err, ErrNowhere):
		q.status = http.StatusServiceUnavailable
	case errors.Is(q.err, ErrTimeout), errors.As(err, &timeout) && timeout.Timeout():
		q.status = http.StatusGatewayTimeout
	default:
		q.status = http.StatusBadGateway
	}
	s.cfg.Log.Debug("a request was not answered", "method", r.Method, "status", q.status, "error", q.err)
	http.Error(w, http.StatusText(q.status), q.status)
}

// buffers are what bodies are copied through.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
