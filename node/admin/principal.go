package admin

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
)

// ladder is the roles of which each may do what those before it may.
var ladder = []Role{RoleNone, RoleReader, RoleOperator, RoleAdmin, RoleNode}

// May tells whether a caller of role r may call what needs role least.
// RoleJoin stands beside the ladder: it may do what everybody may, and join.
func (r Role) May(least Role) bool {
	if least == RoleNone || r == least {
		return true
	}
	if r == RoleJoin || least == RoleJoin {
		return false
	}
	have, need := slices.Index(ladder, r), slices.Index(ladder, least)
	return have >= 0 && need >= 0 && have >= need
}

// String is the principal in messages and logs.
func (p Principal) String() string {
	switch {
	case p.Role == RoleNone:
		return "a caller without a token"
	case p.Role == RoleNode:
		return fmt.Sprintf("the node %q", p.Name)
	case p.TokenID != "":
		return fmt.Sprintf("the token %q", p.Name)
	}
	return fmt.Sprintf("%q", p.Name)
}

// request is one request that a server runs: what its handler may ask of the
// context. Its reader is the handler; Pass writes to its caller.
type request struct {
	caller  Principal
	peer    string
	tls     *tls.ConnectionState
	method  string
	params  []byte
	stream  bool
	changes bool
	send    func(item any) error

	share *share // what bounds a large answer
	made  func() // ends the turn to make one; set by LargeResponse, called by sendLarge and in the end

	summary string    // written by the handler, read after it
	shown   Principal // whose proof the handler took from a caller without a name; as summary
	partial bool      // one part of what is audited as a whole; as summary
}

type requestKey struct{}

func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// Caller is who asks, in the context of a handler; elsewhere it is nobody.
func Caller(ctx context.Context) Principal {
	if r := requestOf(ctx); r != nil {
		return r.caller
	}
	return Principal{}
}

// Reading tells whether ctx is that of a handler whose method changes nothing
// (Changing): it may be asked again, whatever became of it.
func Reading(ctx context.Context) bool {
	r := requestOf(ctx)
	return r != nil && !r.changes
}

// TLS is the state of the connection that a handler's request came by; nil
// where that is not TLS. Proofs are bound to it by its exported keys.
func TLS(ctx context.Context) *tls.ConnectionState {
	if r := requestOf(ctx); r != nil {
		return r.tls
	}
	return nil
}

// Summarize says for the audit log what a handler's request comes to, in
// place of what its parameters tell. It must come from the handler's own
// goroutine, and hold no secret.
func Summarize(ctx context.Context, format string, args ...any) {
	if r := requestOf(ctx); r != nil {
		r.summary = fmt.Sprintf(format, args...)
	}
}

// Showed says for the audit log whom a caller without a name has shown to be,
// where that is the handler's business. It is as Summarize.
func Showed(ctx context.Context, p Principal) {
	if r := requestOf(ctx); r != nil {
		r.shown = p
	}
}

// secured is a connection that knows its TLS.
type secured interface{ ConnectionState() tls.ConnectionState }

// tlsState is the state of a connection after its handshake; nil without TLS.
func tlsState(conn net.Conn) *tls.ConnectionState {
	if c, ok := conn.(secured); ok {
		state := c.ConnectionState()
		return &state
	}
	return nil
}
