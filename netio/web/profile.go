package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"penstock/netio/ports"
)

// A Profile holds the settings and the idle connections for endpoints of one
// service. Its creator must Close it. It must not be copied or changed once in
// use.
type Profile struct {
	// ConnectTimeout bounds one attempt to connect, and then TLS; 0: 1s.
	ConnectTimeout time.Duration
	// HeaderTimeout bounds the time from the end of a request to the header of
	// its answer; 0: none.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection without requests is kept; 0: 1m.
	IdleTimeout time.Duration
	// MaxIdle bounds the connections to one endpoint that are kept; 0: 64,
	// negative: none is.
	MaxIdle int
	// MaxIdleAll bounds those of HTTP/1 to all endpoints together; 0: MaxIdle alone
	// does.
	MaxIdleAll int
	// HTTP2 speaks HTTP/2, without TLS by prior knowledge.
	HTTP2 bool
	// TLS towards the endpoint; nil: plain. Its ServerName is asked for and
	// verified; "": the endpoint's own.
	TLS *tls.Config
	// Tunnel leads to endpoints behind another proxy; nil: straight to them. TLS
	// must be nil with it.
	Tunnel *Tunnel
	// Ports counts the connections by endpoint, from when they are connected until
	// they are closed; nil: nobody does.
	Ports *ports.Count

	preface []byte // sent first on each connection
	alone   bool   // for one request: to be closed after it

	mu        sync.Mutex
	transport *http.Transport // made by the first request
	conns     map[*upstream]struct{}
	users     int // requests
	closed    bool
}

// maxAnswerHeader bounds the header of an answer, in bytes.
const maxAnswerHeader = 64 << 10

// errClosed is for connections that nobody has a use for any more.
var errClosed = errors.New("the profile is closed")

// Close ends the connections: those of requests under way when these are over.
// A request that is still sent has its connection for itself.
func (p *Profile) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.sweep()
}

// take counts a request in.
func (p *Profile) take() *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
	if p.transport == nil {
		p.transport = p.open()
	}
	return p.transport
}

// letGo counts it out, when it is over.
func (p *Profile) letGo() {
	p.mu.Lock()
	p.users--
	p.closed = p.closed || p.alone
	p.mu.Unlock()
	p.sweep()
}

// sweep closes what is left of a profile that nobody uses.
func (p *Profile) sweep() {
	p.mu.Lock()
	var all []*upstream
	transport := p.transport
	if !p.closed {
		transport = nil
	} else if p.users == 0 {
		for c := range p.conns {
			all = append(all, c)
		}
	}
	p.mu.Unlock()
	if transport != nil {
		transport.CloseIdleConnections()
	}
	for _, c := range all {
		_ = c.Close()
	}
}

// leave has later requests make connections of their own, unless they do
// already: t has one that may be dead. What is under way on it stays there.
// Asking by PING whether it lives is no way: servers of gRPC end connections of
// those who ask too often.
func (p *Profile) leave(t *http.Transport) {
	p.mu.Lock()
	ours := p.transport == t
	if ours {
		p.transport = nil
	}
	p.mu.Unlock()
	if ours {
		t.CloseIdleConnections()
	}
}

// single is the profile for one request on a connection of its own.
func (p *Profile) single(preface []byte) *Profile {
	return &Profile{
		ConnectTimeout: p.ConnectTimeout, HeaderTimeout: p.HeaderTimeout, IdleTimeout: p.IdleTimeout,
		MaxIdle: -1, HTTP2: p.HTTP2, TLS: p.TLS, Ports: p.Ports, preface: preface, alone: true,
	}
}

func (p *Profile) open() *http.Transport {
	protocols := &http.Protocols{}
	switch {
	case !p.HTTP2:
		protocols.SetHTTP1(true)
	case p.TLS != nil:
		protocols.SetHTTP2(true)
	default:
		protocols.SetUnencryptedHTTP2(true)
	}
	if p.conns == nil {
		p.conns = map[*upstream]struct{}{}
	}
	t := &http.Transport{
		DialContext:            p.dial,
		TLSClientConfig:        p.TLS,
		TLSHandshakeTimeout:    orDefault(p.ConnectTimeout, time.Second),
		ResponseHeaderTimeout:  p.HeaderTimeout,
		IdleConnTimeout:        orDefault(p.IdleTimeout, time.Minute),
		MaxIdleConnsPerHost:    orDefault(p.MaxIdle, 64),
		MaxIdleConns:           p.MaxIdleAll,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableCompression:     true, // what the client has not asked for
		Protocols:              protocols,
	}
	switch {
	case p.Tunnel != nil:
		t.DialContext = p.dialTunnel
	case !p.HTTP2:
		t.DialContext, t.DialTLSContext = p.dialStrict, p.dialStrictTLS
	}
	return t
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// dialStrict connects to an endpoint of HTTP/1, whose answers are looked at.
func (p *Profile) dialStrict(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := p.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &answers{Conn: c}, nil
}

// dialStrictTLS does the same with TLS.
func (p *Profile) dialStrictTLS(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := p.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := p.TLS.Clone()
	config.NextProtos = []string{"http/1.1"}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	ctx, cancel := context.WithTimeout(ctx, orDefault(p.ConnectTimeout, time.Second))
	defer cancel()
	over := tls.Client(c, config)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	return &answers{Conn: over}, nil
}

type unixKey struct{}

func (p *Profile) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if path, ok := ctx.Value(unixKey{}).(string); ok {
		network, address = "unix", path
	}
	timeout := orDefault(p.ConnectTimeout, time.Second)
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConnect, err)
	}
	u := &upstream{Conn: c, profile: p}
	if !p.note(u) {
		_ = c.Close()
		return nil, fmt.Errorf("%w: %w", ErrConnect, errClosed)
	}
	if len(p.preface) == 0 {
		return u, nil
	}
	_ = c.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := c.Write(p.preface); err != nil {
		_ = u.Close()
		return nil, fmt.Errorf("%w: %w", ErrConnect, err)
	}
	_ = c.SetWriteDeadline(time.Time{})
	return u, nil
}

// note takes a connection down, unless nobody waits for it any more.
func (p *Profile) note(c *upstream) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed && p.users == 0 {
		return false
	}
	p.conns[c] = struct{}{}
	p.count(c, 1)
	return true
}

// count counts a connection in or out.
func (p *Profile) count(c *upstream, n int64) {
	if to, ok := c.RemoteAddr().(*net.TCPAddr); ok && p.Ports != nil {
		p.Ports.Add(to.AddrPort(), n)
	}
}

// upstream is a connection to an endpoint.
type upstream struct {
	net.Conn
	profile   *Profile
	heard     atomic.Uint64 // how often something came
	ended     atomic.Bool   // the endpoint has ended its direction, without a reset
	roundTrip atomic.Pointer[roundTrip]
}

// roundTrip is a request on its way by a connection of HTTP/1.
type roundTrip struct {
	ctx      context.Context
	answered atomic.Bool // its answer has begun
}

// broken tells that nobody waits for the rest of the answer.
func (f *roundTrip) broken() bool { return f != nil && (!f.answered.Load() || f.ctx.Err() != nil) }

// Read implements net.Conn.
func (c *upstream) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Add(1)
	}
	if errors.Is(err, io.EOF) {
		c.ended.Store(true)
	}
	return n, err
}

// Close implements net.Conn. In the middle of a request the endpoint is reset:
// so it hears that nobody waits, and the local port is free at once, which would
// else be in TIME_WAIT for a minute. A client that cancels requests would use up
// all there are.
func (c *upstream) Close() error {
	p := c.profile
	if t, ok := c.Conn.(*net.TCPConn); ok && c.roundTrip.Load().broken() {
		_ = t.SetLinger(0)
	}
	p.mu.Lock()
	if _, open := p.conns[c]; open { // it may be closed twice
		delete(p.conns, c)
		p.count(c, -1)
	}
	p.mu.Unlock()
	return c.Conn.Close()
}

// Conns is how many connections there are.
func (p *Profile) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}
