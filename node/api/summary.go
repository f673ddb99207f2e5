package api

import (
	"fmt"
	"strings"
)

// Summary methods describe a request in one line for the audit log. They reveal
// no secret.

// maxTokenName is the length in bytes above which a token's name is not shown.
const maxTokenName = 256

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
		return nodeText(r.Node) + ", undo"
	}
	return nodeText(r.Node)
}

// Summary names the node.
func (r *LeaveRequest) Summary() string { return nodeText(r.Node) }

// Summary names the node.
func (r *RemoveRequest) Summary() string {
	if r.Force {
		return "node " + r.Node + ", forced"
	}
	return "node " + r.Node
}

// Summary names the token.
func (r *TokenCreateRequest) Summary() string {
	if r.Path != "" {
		return fmt.Sprintf("token %q, role %s of %.512q, for %v", r.Name, r.Role, r.Path, r.TTL)
	}
	return fmt.Sprintf("token %q, role %s, for %v", r.Name, r.Role, r.TTL)
}

// Summary names the identity.
func (r *IdentityRequest) Summary() string { return fmt.Sprintf("%.512q for %v", r.ID, r.TTL) }

// Summary names the identity or the serial number.
func (r *IdentityRevokeRequest) Summary() string { return fmt.Sprintf("%.512q", r.Identity) }

// Summary names the token, unless the field may hold a whole token by mistake.
func (r *TokenRevokeRequest) Summary() string {
	if len(r.Token) > maxTokenName || strings.Contains(r.Token, "pst1.") {
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
		return "to the best candidate"
	}
	return "to " + r.To
}

func nodeText(name string) string {
	if name == "" {
		return "this node"
	}
	return "node " + name
}
