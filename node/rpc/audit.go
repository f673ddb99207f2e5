package rpc

import (
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
}

// audit reports a finished call to Config.Audit.
func (s *Server) audit(r *request, err error, at time.Time) {
	if !r.changes || s.cfg.Audit == nil {
		return
	}
	peer := r.peer
	if r.caller.From != "" {
		peer = r.caller.From
	}
	who := r.caller
	if who.Role == api.RoleNone {
		who = r.proven
	}
	s.cfg.Audit(Event{
		Principal: who, Via: r.caller.Via, Method: r.method, Summary: r.summary, Err: err, At: at, Peer: peer,
	})
}
