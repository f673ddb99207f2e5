package rpc

import (
	"context"
	"time"

	"penstock/node/api"
)

// Event is one call, successful or not, of a method that changes something.
type Event struct {
	Principal api.Principal // zero: unauthenticated
	Via       string        // ID of the node that forwarded it
	Method    string
	Summary   string // what was to change; never a secret
	Err       error  // nil: success
	At        time.Time
	Peer      string // address of the caller
	// Recorded: the handler has recorded the call with its changes (ToRecord).
	Recorded bool
}

// audit reports a finished call to Config.Audit.
func (s *Server) audit(r *request, err error, at time.Time) {
	if !r.audited || s.cfg.Audit == nil {
		return
	}
	e := r.event(at)
	e.Err = err
	s.cfg.Audit(e)
}

// event returns the event of the request, as far as it is known while it runs.
func (r *request) event(at time.Time) Event {
	peer := r.peer
	if r.caller.From != "" {
		peer = r.caller.From
	}
	who := r.caller
	if who.Role == api.RoleNone {
		who = r.proven
	}
	return Event{
		Principal: who, Via: r.caller.Via, Method: r.method, Summary: r.summary, At: at, Peer: peer, Recorded: r.recorded,
	}
}

// ToRecord returns the event of a handler's request, for a record of it in the same
// batch as the changes that it makes. It returns none if the method is not Changing,
// and after Recorded. It must be called from the handler's goroutine.
func ToRecord(ctx context.Context) (Event, bool) {
	r := requestOf(ctx)
	if r == nil || !r.changes || r.recorded {
		return Event{}, false
	}
	return r.event(time.Now()), true
}

// Recorded marks a handler's request as recorded, in the event that Config.Audit
// gets at its end. It must be called from the handler's goroutine.
func Recorded(ctx context.Context) {
	if r := requestOf(ctx); r != nil {
		r.recorded = true
	}
}
