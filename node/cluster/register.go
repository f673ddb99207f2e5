package cluster

import (
	"context"

	"penstock/node/admin"
)

// Register adds the cluster's methods to a server, except for MethodAuth:
// Authenticate and Check, which go into the server's Config.
func (c *Cluster) Register(s *admin.Server) {
	// These serve callers without a principal, and verify them themselves.
	admin.Handle(s, admin.MethodJoin, admin.RoleNone, c.handleJoin, admin.Changing())
	admin.Handle(s, admin.MethodForm, admin.RoleNone, c.handleForm)
	admin.Handle(s, admin.MethodAnnounce, admin.RoleNone, translatingErrors(c.handleAnnounce))

	admin.Handle(s, methodAdmit, admin.RoleNode, translatingErrors(c.handleAdmit))
	admin.Handle(s, methodLocate, admin.RoleNode, c.handleLocate)
	admin.Handle(s, methodDepart, admin.RoleNode, translatingErrors(c.handleDepart))
	admin.Handle(s, admin.MethodRead, admin.RoleNode, translatingErrors(c.handleRead))
	admin.Handle(s, admin.MethodRenew, admin.RoleNode, translatingErrors(c.handleRenew))

	admin.Handle(s, admin.MethodTransfer, admin.RoleOperator, OnLeader(c, c.transfer), admin.Changing())
	admin.Handle(s, admin.MethodRemove, admin.RoleAdmin, retryUnknown(OnLeader(c, c.remove), admin.NotFound), admin.Changing())
	admin.Handle(s, admin.MethodRotate, admin.RoleAdmin, OnLeader(c, c.rotate), admin.Changing())
	admin.Handle(s, admin.MethodTokenNew, admin.RoleAdmin, OnLeader(c, c.createToken), admin.Changing())
	admin.Handle(s, admin.MethodRevoke, admin.RoleAdmin, retryUnknown(OnLeader(c, c.revoke)), admin.Changing())
	admin.Handle(s, admin.MethodTokens, admin.RoleAdmin, OnLeader(c, func(ctx context.Context, _ *admin.Empty) (*admin.Tokens, error) {
		if _, err := c.currentSnapshot(ctx); err != nil {
			return nil, err
		}
		list := c.Tokens()
		return &list, nil
	}))
}

// handleRead returns the index of a current read, on the leader.
func (c *Cluster) handleRead(ctx context.Context, _ *admin.Empty) (*admin.ReadResult, error) {
	index, err := c.Store().ReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	return &admin.ReadResult{Index: index}, nil
}
