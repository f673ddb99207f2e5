package cluster

import (
	"context"

	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/rotation"
	"penstock/node/rpc"
)

// Register adds the cluster's methods to a server, except for MethodAuth:
// Authenticate and Check, which go into the server's Config.
func (c *Cluster) Register(s *rpc.Server) {
	// These serve callers without a principal, and verify them themselves.
	rpc.Handle(s, api.MethodJoin, api.RoleNone, c.handleJoin, rpc.Changing())
	rpc.Handle(s, api.MethodForm, api.RoleNone, c.handleForm)
	rpc.Handle(s, api.MethodAnnounce, api.RoleNone, leader.TranslatingErrors(c.handleAnnounce))

	rpc.Handle(s, methodAdmit, api.RoleNode, leader.TranslatingErrors(c.handleAdmit))
	rpc.Handle(s, directory.MethodLocate, api.RoleNode, c.Directory.HandleLocate)
	rpc.Handle(s, methodDepart, api.RoleNode, leader.TranslatingErrors(c.handleDepart))
	rpc.Handle(s, api.MethodRead, api.RoleNode, leader.TranslatingErrors(c.handleRead))
	rpc.Handle(s, api.MethodRenew, api.RoleNode, leader.TranslatingErrors(c.handleRenew))

	rpc.Handle(s, api.MethodTransfer, api.RoleOperator, OnLeader(c, c.handOver.Transfer), rpc.Changing())
	rpc.Handle(s, api.MethodRemove, api.RoleAdmin, leader.RetryUnknown(OnLeader(c, c.remove), api.NotFound), rpc.Changing())
	rpc.Handle(s, api.MethodRotate, api.RoleAdmin, OnLeader(c, c.beginRotation), rpc.Changing())
	rpc.Handle(s, api.MethodTokenNew, api.RoleAdmin, OnLeader(c, c.Tokens.Create), rpc.Changing())
	rpc.Handle(s, api.MethodRevoke, api.RoleAdmin, leader.RetryUnknown(OnLeader(c, c.Tokens.Revoke)), rpc.Changing())
	rpc.Handle(s, api.MethodTokens, api.RoleAdmin, OnLeader(c, func(ctx context.Context, _ *api.Empty) (*api.Tokens, error) {
		if _, err := c.entries.Current(ctx); err != nil {
			return nil, err
		}
		list := c.Tokens.List()
		return &list, nil
	}))
}

// handleRead returns the index of a current read, on the leader.
func (c *Cluster) handleRead(ctx context.Context, _ *api.Empty) (*api.ReadResult, error) {
	index, err := c.Store().ReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	return &api.ReadResult{Index: index}, nil
}

// beginRotation begins to replace the CA or the gossip key, on the leader.
func (c *Cluster) beginRotation(ctx context.Context, req *api.RotateRequest) (*api.Empty, error) {
	defer notify(c.leadWake)
	return rotation.Begin(ctx, c.entries, req)
}
