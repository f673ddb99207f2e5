package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Target is an endpoint that a request is to be sent to.
type Target struct {
	// Address is host:port, or unix:PATH.
	Address string
	// Profile is shared by all requests to a service.
	Profile *Profile
}

// Profile is how endpoints of one service are spoken to. Its connections are
// kept for later requests; whoever made it must Close it. It must not be copied
// or changed once in use.
type Profile struct {
	// ConnectTimeout bounds one attempt to connect, TLS included; 0: 1s.
	ConnectTimeout time.Duration
	// HeaderTimeout bounds the time to the header of an answer; 0: none.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection without requests is kept; 0: 1m.
	IdleTimeout time.Duration
	// MaxIdle bounds the connections to one endpoint that are kept; 0: 64.
	MaxIdle int
	// HTTP2 speaks HTTP/2, without TLS by prior knowledge.
	HTTP2 bool
	// TLS towards the endpoint; nil: plain. Its ServerName is asked for and
	// verified; "": the endpoint's own.
	TLS *tls.Config

	once      sync.Once
	transport *http.Transport
}

// Close lets go of the connections that are idle. Requests under way go on.
func (p *Profile) Close() { p.open().CloseIdleConnections() }

func (p *Profile) open() *http.Transport {
	p.once.Do(func() {
		protocols := &http.Protocols{}
		switch {
		case !p.HTTP2:
			protocols.SetHTTP1(true)
		case p.TLS != nil:
			protocols.SetHTTP2(true)
		default:
			protocols.SetUnencryptedHTTP2(true)
		}
		p.transport = &http.Transport{
			DialContext:            p.dial,
			TLSClientConfig:        p.TLS,
			TLSHandshakeTimeout:    orDefault(p.ConnectTimeout, time.Second),
			ResponseHeaderTimeout:  p.HeaderTimeout,
			IdleConnTimeout:        orDefault(p.IdleTimeout, time.Minute),
			MaxIdleConnsPerHost:    orDefault(p.MaxIdle, 64),
			MaxResponseHeaderBytes: defaultMaxHeader,
			DisableCompression:     true, // what the client has not asked for
			Protocols:              protocols,
		}
	})
	return p.transport
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// errDial marks that a request cannot have reached the endpoint.
var errDial = errors.New("cannot connect")

func (p *Profile) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if path, ok := ctx.Value(unixKey{}).(string); ok {
		network, address = "unix", path
	}
	d := net.Dialer{Timeout: orDefault(p.ConnectTimeout, time.Second)}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDial, err)
	}
	return c, nil
}

type unixKey struct{}

// forwarder sends a request to the endpoints of its way, until one answers.
type forwarder struct{}

func (forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	q := requestOf(r)
	var err error
	for attempt := 0; attempt < max(q.plan.Attempts, 1); attempt++ {
		t, ok := q.plan.Way.Next(err)
		if !ok {
			break
		}
		var resp *http.Response
		sent := new(atomic.Bool)
		if resp, err = t.send(r, sent); err == nil {
			return resp, nil
		}
		if sent.Load() && !repeatable(r) || r.Context().Err() != nil {
			return nil, err
		}
	}
	if err == nil {
		err = ErrNowhere
	}
	return nil, err
}

// send makes one attempt, and tells whether the endpoint may have got any of it.
func (t Target) send(r *http.Request, sent *atomic.Bool) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
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
		out.Body = &body{r.Body, sent}
	}
	resp, err := t.Profile.open().RoundTrip(out)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

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
