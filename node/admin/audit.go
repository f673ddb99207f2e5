package admin

import (
	"fmt"
	"strings"
	"time"
)

// Event is one call, successful or not, of a method that changes something.
type Event struct {
	Principal Principal // zero: unauthenticated
	Via       string    // ID of the node that forwarded it
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
	if who.Role == RoleNone {
		who = r.shown
	}
	s.cfg.Audit(Event{
		Principal: who, Via: r.caller.Via, Method: r.method, Summary: r.summary, Err: err, At: at, Peer: peer,
	})
}

// Summary counts the resources. Their names are not known before the handler
// decodes them.
func (r *ApplyRequest) Summary() string {
	s := fmt.Sprintf("%d resources", len(r.Documents))
	if len(r.Prune) > 0 {
		s += fmt.Sprintf(", pruning %q", r.Prune)
	}
	if r.DryRun {
		s += ", dry run"
	}
	return s
}

// Summary names the resource.
func (r *DeleteRequest) Summary() string { return r.Kind + "/" + r.Name }

// Summary names the resource and the version.
func (r *RollbackRequest) Summary() string {
	return fmt.Sprintf("%s/%s to version %d", r.Kind, r.Name, r.Version)
}

// Summary names the node.
func (r *DrainRequest) Summary() string {
	if r.Undo {
		return "undo, node " + orThis(r.Node)
	}
	return "node " + orThis(r.Node)
}

// Summary names the node.
func (r *LeaveRequest) Summary() string { return "node " + orThis(r.Node) }

// Summary names the node.
func (r *RemoveRequest) Summary() string {
	if r.Force {
		return "node " + r.Node + ", by force"
	}
	return "node " + r.Node
}

// Summary names the token.
func (r *TokenCreateRequest) Summary() string {
	return fmt.Sprintf("token %q, role %s, for %v", r.Name, r.Role, r.TTL)
}

// Summary names the token, unless the field may hold a whole token by mistake.
func (r *TokenRevokeRequest) Summary() string {
	if len(r.Token) > maxName || strings.Contains(r.Token, "pst1.") {
		return "a token"
	}
	return fmt.Sprintf("token %q", r.Token)
}

// Summary gives the size. Only the last part is audited, for all of them.
func (r *UploadRequest) Summary() string {
	return fmt.Sprintf("a snapshot of %d bytes", r.Offset+int64(len(r.Data)))
}

// Summary names the secret.
func (r *RotateRequest) Summary() string { return r.What }

// Summary names the node that is to lead.
func (r *TransferRequest) Summary() string {
	if r.To == "" {
		return "to the best node"
	}
	return "to " + r.To
}

func orThis(node string) string {
	if node == "" {
		return "(this)"
	}
	return node
}
