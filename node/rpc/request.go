package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"penstock/node/api"
)

// request is a request in progress, carried by the handler's context. Only the
// handler's goroutine reads it; Pass sends to its caller.
type request struct {
	caller  api.Principal
	peer    string
	tls     *tls.ConnectionState
	method  string
	params  []byte
	stream  bool
	changes bool
	audited bool
	send    func(item any) error

	limiter      *responseLimiter // the caller's limit for large responses
	releaseBuild func()           // lets the next caller build a large response; set by LargeResponse, called by sendLarge or at the end

	summary  string        // for the audit event; written by the handler, read after it
	proven   api.Principal // principal that the handler derived from an unauthenticated caller's proof; access as summary
	recorded bool          // set by Recorded; access as summary
	partial  bool          // one part of a call that is audited as a whole; access as summary
}

type requestKey struct{}

func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// Caller returns the caller of the request in a handler's context; zero in
// other contexts.
func Caller(ctx context.Context) api.Principal {
	if r := requestOf(ctx); r != nil {
		return r.caller
	}
	return api.Principal{}
}

// Reading reports whether ctx belongs to a handler of a method that changes
// nothing (see Changing), so that the request can be retried after any outcome.
func Reading(ctx context.Context) bool {
	r := requestOf(ctx)
	return r != nil && !r.changes
}

// TLS returns the TLS state of the connection that a handler's request came
// from; nil without TLS. Proofs are bound to its exported keying material.
func TLS(ctx context.Context) *tls.ConnectionState {
	if r := requestOf(ctx); r != nil {
		return r.tls
	}
	return nil
}

// Summarize sets the summary in the audit event of a handler's request, in
// place of the one derived from its parameters. It must be called from the
// handler's goroutine, and the summary must contain no secret.
func Summarize(ctx context.Context, format string, args ...any) {
	if r := requestOf(ctx); r != nil {
		r.summary = fmt.Sprintf(format, args...)
	}
}

// SetAuditPrincipal sets the principal in the audit event of an unauthenticated caller
// that the handler itself has authenticated. It must be called from the
// handler's goroutine.
func SetAuditPrincipal(ctx context.Context, p api.Principal) {
	if r := requestOf(ctx); r != nil {
		r.proven = p
	}
}

// tlsConn is a connection with a TLS state.
type tlsConn interface{ ConnectionState() tls.ConnectionState }

// tlsState returns the state of a connection after its handshake; nil without
// TLS.
func tlsState(conn net.Conn) *tls.ConnectionState {
	if c, ok := conn.(tlsConn); ok {
		state := c.ConnectionState()
		return &state
	}
	return nil
}
