package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// request is a request on its way.
type request struct {
	server  *Server
	conn    *serverConn
	plan    Disposition
	trusted bool        // the client is a proxy that is believed
	held    bool        // the connection is
	empty   bool        // the answer is its header alone
	length  int64       // of the answer, in bytes; -1: not known, or none
	written int64       // of it: what the client's connection has taken
	left    bool        // the client, while it was written
	body    *clientBody // nil: none
	timer   *time.Timer
	clock   sync.Mutex // over what the plan's Timeout does, and:
	over    bool       // it is too late for it
	late    bool       // it has passed before
	sent    *attempt   // the one that was answered
	used    []*Profile // let go of at the end

	status   int
	err      error
	in, out  atomic.Int64
	begun    time.Time
	replied  atomic.Bool // the answer has begun
	finish   func(why error)
	bodyFail atomic.Pointer[error] // the client's body could not be read
}

type requestKey struct{}

func requestOf(r *http.Request) *request { return r.Context().Value(requestKey{}).(*request) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.addActive() {
		panic(http.ErrAbortHandler)
	}
	defer s.removeActive()
	conn := r.Context().Value(connKey{}).(*serverConn)
	q := &request{server: s, conn: conn, held: true, length: -1}
	conn.Hold()
	defer q.release()
	defer q.done()
	defer q.caught()
	if r.URL.Path == "" && r.URL.Host != "" && r.Method != http.MethodConnect && r.Method != http.MethodOptions {
		r.URL.Path = "/" // GET http://x (RFC 9112, section 3.2.1)
	}
	rules := s.cfg.Handler.Rules(conn.known)
	hides := mayHide(r)
	fault := cmp.Or(sanitize(r), rules.apply(r))
	q.trusted = rules.Trusted
	q.plan = s.cfg.Handler.Route(conn.known, r)
	q.plan.Last = q.plan.Last || hides
	if r.ProtoMajor == 1 && r.ProtoMinor == 0 {
		// What HTTP/1.0 means by a Transfer-Encoding is anyone's guess: nothing
		// that comes behind the request is looked at.
		q.plan.Last = true
	}
	if r.ProtoMajor == 1 && r.Body != http.NoBody {
		conn.parting.Store(true) // should the connection end before the body
	}
	switch a := q.plan.Answer; {
	case a != nil && (fault == nil || a.Status >= http.StatusBadRequest):
		q.answer(w, a)
	case fault != nil:
		q.err = fault
		q.refuse(w, r)
	default:
		q.forward(w, r)
	}
}

// forward sends the request on.
func (q *request) forward(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), requestKey{}, q))
	defer cancel(nil)
	q.begun, q.finish = time.Now(), func(why error) { cancel(why); q.hurry(w, r) }
	if q.plan.Timeout > 0 {
		q.timer = time.AfterFunc(q.plan.Timeout, func() { q.finish(ErrTimeout) })
	}
	whole := false
	defer func() {
		// What the client's connection has been set to cannot be taken back.
		if late := q.stop(); !whole && !q.took(r) || late && q.err == nil && r.ProtoMajor == 1 {
			q.cutOff(ctx, r)
		}
		q.body.letGo()
		for _, p := range q.used {
			p.letGo()
		}
	}()
	out := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		q.body = &clientBody{ReadCloser: r.Body, request: q}
		out.Body = q.body
		defer q.body.watch(q.plan.BodyIdle)()
	}
	if q.plan.Begun != nil {
		q.plan.Begun(q)
	}
	q.server.proxy.ServeHTTP(writer{w, q}, out)
	whole = true
}

// parting is the time that a client has to take the end of a connection.
const parting = time.Second

// hurry is for a request whose time is over: whoever waits for a client that
// sends its body slowly, or reads the answer slowly, does not see the end of a
// context.
func (q *request) hurry(w http.ResponseWriter, r *http.Request) {
	q.clock.Lock()
	defer q.clock.Unlock()
	if q.over {
		return
	}
	q.late = true
	c := http.NewResponseController(w)
	if r.Body != nil && r.Body != http.NoBody {
		_ = c.SetReadDeadline(time.Now())
	}
	_ = c.SetWriteDeadline(time.Now().Add(parting))
}

// stop ends the plan's Timeout, and tells whether it has passed, or the request
// was ended for another reason.
func (q *request) stop() (late bool) {
	if q.timer != nil {
		q.timer.Stop()
	}
	q.clock.Lock()
	defer q.clock.Unlock()
	q.over = true
	return q.late
}

// caught is for a fault of whoever decides about requests, or of this package:
// the request is cut off, and nothing else.
func (q *request) caught() {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		q.server.cfg.Log.Error("a request has panicked", "panic", v, "stack", string(debug.Stack()))
		q.status, q.err = 0, ErrFault
	}
	panic(http.ErrAbortHandler)
}

func (q *request) done() {
	if q.plan.Done != nil {
		q.plan.Done(Outcome{q.status, q.err, q.in.Load(), q.out.Load()})
	}
}

// release says that the connection may be ended, as far as this request goes.
func (q *request) release() {
	if q.held {
		q.held = false
		q.conn.Release()
	}
}

// cutOff is for an answer that has begun and does not come to its end. HTTP/2
// resets the stream by itself. In HTTP/1 an answer without a length ends with
// its connection, and so that it does not look complete that is reset.
func (q *request) cutOff(ctx context.Context, r *http.Request) {
	if q.err == nil {
		q.err = ErrCutOff
		if cause := context.Cause(ctx); cause != nil {
			q.err = fmt.Errorf("%w: %w", ErrCutOff, q.why(cause))
		}
	}
	if r.ProtoMajor == 1 {
		q.conn.Abort()
	}
}

// took tells that the client has left with all of an answer whose length it knew.
// An endpoint of HTTP/2 says a little later than with the last byte that it was
// the last one.
func (q *request) took(r *http.Request) bool {
	gone := q.left || r.Context().Err() != nil // which net/http may say a little later
	return gone && q.length > 0 && q.written == q.length
}

// why names the end of a request's context.
func (q *request) why(cause error) error {
	for _, why := range [...]error{ErrTimeout, ErrBodyIdle, ErrEvicted, ErrMemory, ErrRemoved, ErrRevoked} {
		if errors.Is(cause, why) {
			return cause
		}
	}
	return ErrClientGone
}

// last tells the client to go where it is to.
func (q *request) last(h http.Header) {
	if q.plan.Last || q.server.quiescing.Load() {
		h.Set("Connection", "close") // in HTTP/2, net/http makes it a GOAWAY
	}
}

// answer gives an answer from here.
func (q *request) answer(w http.ResponseWriter, a *Answer) {
	h := w.Header()
	for k, v := range a.Header {
		h[k] = v
	}
	if a.Body != "" && h.Get("Content-Type") == "" {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
	}
	q.last(h)
	q.status = a.Status
	w.WriteHeader(a.Status)
	n, _ := io.WriteString(w, a.Body) // a client that is gone has no use for it
	q.out.Store(int64(n))
}

// rewrite makes the request that is sent on: the client's own words about who
// it is are replaced by what is known.
func rewrite(p *httputil.ProxyRequest) {
	q := requestOf(p.In)
	if q.trusted {
		for _, name := range [...]string{"Forwarded", "X-Forwarded-For"} {
			if values := p.In.Header[name]; len(values) > 0 {
				p.Out.Header[name] = values
			}
		}
	}
	p.SetXForwarded()
	if host, _, _ := net.SplitHostPort(p.In.RemoteAddr); host == "" {
		p.Out.Header.Del("X-Forwarded-For") // came by a unix socket, which nobody trusts
	}
	p.Out.Host = p.In.Host
	p.Out.URL.Scheme = "http" // the target's profile knows better
	p.Out.URL.User = nil
	p.Out.URL.RawQuery = p.In.URL.RawQuery // what cannot be read is the endpoint's to judge
	limitUpgrade(p.In, p.Out.Header, q.plan.Upgrades)
	q.body.promise(p.In, p.Out)
	if q.conn.secure {
		p.Out.Header.Set("X-Forwarded-Proto", "https")
	}
	if q.trusted {
		for _, name := range [...]string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if values := p.In.Header[name]; len(values) > 0 {
				p.Out.Header[name] = values // the proxy in front knows what the client has asked for
			}
		}
	}
	if edit := q.plan.Request; edit != nil {
		edit(p.Out)
	}
	hideKeys(p.Out.Header)
}

// hideKeys writes the names of headers by which net/http takes any request for
// one that may be sent twice in a way that it does not find: how often requests
// are tried is said by their Dispositions.
func hideKeys(h http.Header) {
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values // names have no case
		}
	}
}

func (s *Server) modify(r *http.Response) error {
	q := requestOf(r.Request)
	q.status = r.StatusCode
	q.replied.Store(true)
	if len(r.Trailer) > 0 && r.Request.ProtoMajor == 1 { // HTTP/1 has trailers behind chunks alone
		r.Header.Del("Content-Length")
		r.ContentLength = -1
	}
	if edit := q.plan.Response; edit != nil {
		edit(r.Header)
	}
	if r.StatusCode == http.StatusSwitchingProtocols {
		if q.stop() {
			return context.Cause(r.Request.Context())
		}
		q.release() // from here on only the bytes tell whether it is quiet
		return nil
	}
	if r.Request.ProtoMajor == 1 {
		if err := q.body.whole(r.Request.Context(), r.Request.Header.Get("Expect") != ""); err != nil {
			return err
		}
	}
	q.last(r.Header)
	q.empty = r.ContentLength == 0 && len(r.Trailer) == 0
	if len(r.Trailer) == 0 {
		q.length = r.ContentLength
	}
	r.Body = &answerBody{r.Body, q}
	return nil
}

// answerBody is the answer's body as it comes from the endpoint.
type answerBody struct {
	io.ReadCloser
	request *request
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.request.out.Add(int64(n))
	if err != nil {
		b.request.body.letGo()
	}
	if errors.Is(err, io.EOF) {
		b.request.sent.landed()
	}
	return n, err
}

// Close implements io.Closer. It may wait for those who send the body.
func (b *answerBody) Close() error {
	b.request.body.letGo()
	return b.ReadCloser.Close()
}

// Errors that a request may end with, possibly wrapped.
var (
	// ErrConnect means that an endpoint could not be reached, so it received
	// nothing of the request. The system's error is wrapped with it.
	ErrConnect = errors.New("cannot connect")
	// ErrTLS means the same for the TLS handshake with it.
	ErrTLS = errors.New("tls with the endpoint")
	// ErrNoAnswer means that the endpoint received the request and did not
	// answer, or not in HTTP.
	ErrNoAnswer = errors.New("no answer")
	// ErrHeaderTimeout means that its answer did not begin in time.
	ErrHeaderTimeout = errors.New("no answer in time")
	// ErrTimeout means that Disposition.Timeout expired.
	ErrTimeout = errors.New("request timeout")
	// ErrBodyIdle means that the client paused too long within its body.
	ErrBodyIdle = errors.New("no more of the request's body in time")
	// ErrEvicted, ErrMemory, ErrRemoved and ErrRevoked mean that Request.End ended the
	// request: to make room for other requests, to free memory for them, or
	// because its endpoint has left the service.
	ErrEvicted = errors.New("ended to make room for other requests")
	ErrMemory  = errors.New("ended for want of memory")
	ErrRemoved = errors.New("ended because its endpoint was removed")
	ErrRevoked = errors.New("ended because it is no longer permitted")
	// ErrCutOff means that an answer began and did not complete.
	ErrCutOff = errors.New("the answer was cut off")
	// ErrNowhere means that the UpstreamSelector had no endpoint.
	ErrNowhere = errors.New("no endpoint")
	// ErrClientGone means that the client did not wait for the answer.
	ErrClientGone = errors.New("the client is gone")
	// ErrRequest means that the client's request cannot be sent to any
	// endpoint. None has received any of it.
	ErrRequest = errors.New("the request")
	// ErrForeign means that an HTTP/2 request has a connection-specific header
	// field (RFC 9113, section 8.2.2).
	ErrForeign = errors.New("a header field that HTTP/2 has no place for")
	// ErrFault means that there was a panic, which is logged.
	ErrFault = errors.New("a fault")
	// ErrBody means that the client's body does not match its header.
	ErrBody = errors.New("the body of the request")
)

// failed answers a request that no endpoint has answered.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, err error) {
	q := requestOf(r)
	q.err = err
	if r.Context().Err() != nil {
		if q.err = q.why(context.Cause(r.Context())); errors.Is(q.err, ErrClientGone) {
			q.status = 0 // nobody gets it
			panic(http.ErrAbortHandler)
		}
	} else if fail := q.bodyFail.Load(); fail != nil {
		q.err = fmt.Errorf("%w: %w", ErrBody, *fail)
	}
	q.refuse(w, r)
}

// refuse answers a request by its error.
func (q *request) refuse(w http.ResponseWriter, r *http.Request) {
	status := http.StatusBadGateway
	switch {
	case errors.Is(q.err, ErrBody), errors.Is(q.err, ErrRequest):
		status = http.StatusBadRequest
	case errors.Is(q.err, ErrBodyIdle):
		status = http.StatusRequestTimeout
		q.plan.Last = true
	case errors.Is(q.err, ErrNowhere), errors.Is(q.err, ErrEvicted), errors.Is(q.err, ErrMemory), errors.Is(q.err, ErrRemoved):
		status = http.StatusServiceUnavailable
	case errors.Is(q.err, ErrRevoked):
		status = http.StatusForbidden
	case errors.Is(q.err, ErrTimeout), errors.Is(q.err, ErrHeaderTimeout):
		status = http.StatusGatewayTimeout
	}
	q.server.cfg.Log.Debug("a request was not answered", "method", r.Method, "status", status, "error", q.err)
	q.answer(w, &Answer{Status: status, Body: q.plan.Upstreams.Refusal(q.err) + "\n"})
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
