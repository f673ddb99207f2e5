package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// Target is the endpoint that a request goes to.
type Target struct {
	// Address is host:port, or unix:PATH.
	Address string
	// Profile is shared by all requests to a service.
	Profile *Profile
	// Preface, where not empty, is sent first on a connection that the request
	// then has for itself, before TLS: a PROXY header.
	Preface []byte
}

// forwarder sends a request to the endpoints of its way, until one answers.
type forwarder struct{}

func (forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	q := requestOf(r)
	var err error
	for range max(q.plan.Attempts, 1) {
		t, ok := q.plan.Upstreams.Next(r.Context(), err)
		if !ok {
			break
		}
		var resp *http.Response
		a := &attempt{target: t, upstreams: q.plan.Upstreams}
		if resp, err = a.send(q, r); err == nil {
			q.plan.Upstreams.Answered()
			q.sent = a
			return resp, nil
		}
		if a.sent.Load() && (!repeatable(r) || errors.Is(err, ErrHeaderTimeout)) || r.Context().Err() != nil ||
			errors.Is(err, ErrRequest) {
			return nil, err
		}
	}
	if err == nil {
		err = ErrNowhere
	}
	return nil, err
}

// attempt is a request's at one endpoint.
type attempt struct {
	target    Target
	upstreams UpstreamSelector
	trace     httptrace.ClientTrace
	begun     bool        // the transport has nothing against the request
	sent      atomic.Bool // the endpoint may have got some of it
	conn      *upstream   // that it was sent on; guarded by sent
	heard     uint64      // what conn had heard by then; as well
	roundTrip roundTrip   // of HTTP/1
}

// send makes the attempt.
func (a *attempt) send(q *request, r *http.Request) (*http.Response, error) {
	a.trace.GetConn = func(string) { a.begun = true }
	a.trace.GotConn = a.got
	a.trace.GotFirstResponseByte = func() { a.roundTrip.answered.Store(true) }
	a.trace.PutIdleConn = func(error) { a.landed() }
	a.roundTrip.ctx = r.Context()
	ctx := httptrace.WithClientTrace(r.Context(), &a.trace)
	t := &a.target
	u := *r.URL
	u.Host = t.Address
	if path, ok := strings.CutPrefix(t.Address, "unix:"); ok {
		ctx = context.WithValue(ctx, unixKey{}, path)
		u.Host = unixHost(path)
	}
	if t.Profile.TLS != nil {
		u.Scheme = "https"
	}
	out := r.WithContext(ctx)
	out.URL = &u
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = &body{r.Body, &a.sent}
	}
	if t.Profile.HTTP2 && out.Header.Get("Upgrade") != "" { // has no such thing
		out.Header = out.Header.Clone()
		delete(out.Header, "Upgrade")
		delete(out.Header, "Connection")
	}
	profile := t.Profile
	if len(t.Preface) > 0 {
		profile = profile.single(t.Preface)
	}
	transport := profile.take()
	q.used = append(q.used, profile)
	resp, err := transport.RoundTrip(out)
	if err != nil {
		if a.silent(r) {
			profile.leave(transport)
		}
		return nil, a.failed(err)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols && !switches(out.Header, resp.Header) {
		_ = resp.Body.Close() // or its connection would stay for ever
		return nil, fmt.Errorf("%w: a switch to %.40q that the request did not ask for", ErrNoAnswer, upgrade(resp.Header))
	}
	resp.Request = r
	return resp, nil
}

// got is told of the connection that the request goes by.
func (a *attempt) got(info httptrace.GotConnInfo) {
	a.upstreams.Reached()
	c := info.Conn
	if s, ok := c.(*answers); ok {
		s.fresh.Store(true)
	}
	for {
		inner, ok := c.(interface{ NetConn() net.Conn }) // TLS, and net/http's own
		if !ok {
			break
		}
		c = inner.NetConn()
	}
	a.conn, _ = c.(*upstream)
	switch {
	case a.conn == nil:
	case a.target.Profile.HTTP2:
		a.heard = a.conn.heard.Load()
	default:
		a.conn.roundTrip.Store(&a.roundTrip)
	}
	a.sent.Store(true)
}

// landed tells that the answer has come to its end.
func (a *attempt) landed() {
	if a.sent.Load() && a.conn != nil {
		a.conn.roundTrip.CompareAndSwap(&a.roundTrip, nil)
	}
}

// silent tells whether nothing at all has come from the endpoint since it got
// the whole request, up to a timeout: its connection may lead to nobody, and
// HTTP/2 would go on to use it.
func (a *attempt) silent(r *http.Request) bool {
	if !a.target.Profile.HTTP2 || !a.sent.Load() || a.conn == nil || a.conn.heard.Load() != a.heard {
		return false
	}
	if r.Context().Err() != nil {
		return errors.Is(context.Cause(r.Context()), ErrTimeout) && repeatable(r)
	}
	return true
}

// failed says what kind of failure the attempt's is. What the transport will not
// write is the client's fault, although fit should have found it.
func (a *attempt) failed(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, ErrConnect), errors.Is(err, ErrTLS):
		return err
	case !a.begun, strings.Contains(err.Error(), largerThanPeers):
		return fmt.Errorf("%w: %w", ErrRequest, err)
	case !a.sent.Load() && a.target.Profile.TLS != nil:
		return fmt.Errorf("%w: %w", ErrTLS, err)
	case !a.sent.Load():
		return fmt.Errorf("%w: %w", ErrConnect, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: %w", ErrHeaderTimeout, err)
	case a.conn != nil && a.conn.ended.Load() && !a.roundTrip.answered.Load():
		return fmt.Errorf("%w: %w: %w", ErrNoAnswer, ErrLeft, err)
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}

// largerThanPeers is what net/http says of a header that the endpoint has said
// it does not take; the error has no name.
const largerThanPeers = "request header list larger than peer's advertised limit"

// body is a request's for one attempt: a transport closes it when it cannot
// connect, and then it must be there for the next attempt.
type body struct {
	io.ReadCloser
	sent *atomic.Bool
}

func (b *body) Close() error {
	if !b.sent.Load() {
		return nil
	}
	return b.ReadCloser.Close()
}

// unixHost is a name that stands for a path where connections are kept.
func unixHost(path string) string { return fmt.Sprintf("%x.unix:1", path) }

// repeatable tells whether a request may be sent again though an endpoint may
// have acted on it (RFC 9110, section 9.2.2), and can be: its body is gone.
func repeatable(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}
