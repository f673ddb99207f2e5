package netio

import (
	"errors"
	"fmt"

	"penstock/netio/postgres"
	"penstock/netio/stream"
)

// StartTLS says what a listener's clients say in the clear before their ClientHello.
// Endpoints are asked for TLS in the same way before they get a hello, be it the
// client's or the node's own.
type StartTLS uint8

const (
	// NoStartTLS means that connections begin with the ClientHello.
	NoStartTLS StartTLS = iota
	// StartTLSPostgres is PostgreSQL's SSLRequest, which a client may leave out
	// (sslnegotiation=direct). A GSSENCRequest before it is refused, and so is a
	// client that goes on in the clear.
	StartTLSPostgres
)

// tlsRequired is what a client of PostgreSQL gets that does not use TLS.
const tlsRequired = "this server takes connections with TLS only: set sslmode=require, or better sslmode=verify-full"

// beforeTLS answers what a client says before its hello. It reports whether data
// begins with the hello.
func (c *Conn) beforeTLS(data []byte) bool {
	id := c.ident
	if id.helloNext {
		return true
	}
	request, err := postgres.Parse(data)
	switch {
	case err != nil:
		c.loop.failure = err
		c.abort(BadHello)
	case request == postgres.More:
		c.more(data, OK)
	case request == postgres.TLS:
		id.helloNext = true
		return true
	case request == postgres.SSLRequest:
		c.answerRequest(data, postgres.Accepted)
		id.helloNext = true
	case request == postgres.GSSENCRequest && !id.gssRefused:
		c.answerRequest(data, postgres.Refused)
		id.gssRefused = true
	case request == postgres.GSSENCRequest:
		c.loop.failure = errors.New("a second GSSENCRequest")
		c.abort(BadHello)
	default:
		c.client.Send(postgres.AppendError(nil, "28000", tlsRequired))
		c.client.Close()
		c.finish(TLSRequired)
	}
	return false
}

// answerRequest answers a request in the clear. Nothing may have come behind it: a
// client waits for the answer, and bytes that were read in the clear must never count
// as what TLS protects (CVE-2021-23222).
func (c *Conn) answerRequest(data []byte, answer byte) {
	if len(data) > postgres.Size {
		c.loop.failure = fmt.Errorf("%d bytes behind a request for encryption, before its answer", len(data)-postgres.Size)
		c.abort(BadHello)
		return
	}
	c.keep(nil)
	c.client.Send([]byte{answer})
	c.loop.silent.add(c.ident)
	c.listen()
}

// asksForTLS reports whether the endpoint that is connected next has to be asked for
// TLS before it gets a hello. A peer of the mesh is none that could be asked, and a
// session, which may connect again when spec is gone, speaks for itself.
func (c *Conn) asksForTLS(to *Target) bool {
	return c.flags&sessioned == 0 && c.spec.StartTLS != NoStartTLS && to.Serve == nil && to.Profile.Preface == nil &&
		(c.tls == nil || to.Profile.TLS != nil)
}

// askingSide is a connection as the owner of a socket that asks the endpoint for TLS.
type askingSide Conn

var _ stream.Owner = (*askingSide)(nil)

// Connected sends the PROXY header, if one is wanted, and the request.
func (s *askingSide) Connected() {
	c := (*Conn)(s)
	c.loop.scratch = postgres.AppendSSLRequest(c.appendProxyHeader(c.loop.scratch[:0], c.profile))
	c.upstream.Send(c.loop.scratch)
	c.upstream.SetReading(true)
}

// Received takes the answer, which must be all that comes: the endpoint waits for the
// hello, and what came with the answer would be taken for a part of TLS.
func (s *askingSide) Received(p []byte) {
	c := (*Conn)(s)
	var err error
	switch {
	case p[0] == postgres.Refused:
		err = errors.New("it answers SSLRequest by N: it has no TLS")
	case p[0] != postgres.Accepted:
		err = fmt.Errorf("it answers SSLRequest by %q", p[:min(len(p), 16)])
	case len(p) > 1:
		err = fmt.Errorf("%d bytes behind its answer to SSLRequest", len(p)-1)
	}
	if err != nil {
		c.upstream.Abort()
		c.askFailed(err)
		return
	}
	c.upstream.SetReading(false)
	c.upstream.SetOwner((*upstreamSide)(c))
	c.flags |= asked
	c.connected()
}

func (s *askingSide) Moved(int) {}
func (s *askingSide) Sent()     {}

func (s *askingSide) Ended() {
	c := (*Conn)(s)
	c.upstream.Abort()
	c.askFailed(fmt.Errorf("it closed the connection instead of answering SSLRequest: %w", stream.ErrReset))
}

func (s *askingSide) Failed(err error) { (*Conn)(s).connectFailed(err) }

func (c *Conn) askFailed(err error) { c.connectFailed(fmt.Errorf("%w: %w", ErrUpstreamTLS, err)) }
