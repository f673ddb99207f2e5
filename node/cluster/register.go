package cluster

import (
	"context"
	"slices"

	"penstock/node/api"
	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// Register adds the cluster's methods to a server, except for MethodAuth:
// Authenticate and Check, which go into the server's Config.
func (c *Cluster) Register(s *rpc.Server) {
	// These serve callers without a principal, and verify them themselves.
	rpc.Handle(s, api.MethodJoin, api.RoleNone, c.handleJoin, rpc.Changing())
	rpc.Handle(s, api.MethodForm, api.RoleNone, c.handleForm)
	rpc.Handle(s, api.MethodAnnounce, api.RoleNone, leader.TranslatingErrors(c.handleAnnounce))

	rpc.Handle(s, leader.MethodAdmit, api.RoleNode, leader.TranslatingErrors(c.lead.Admit))
	rpc.Handle(s, directory.MethodLocate, api.RoleNode, c.Directory.HandleLocate)
	rpc.Handle(s, leader.MethodDepart, api.RoleNode, leader.TranslatingErrors(c.lead.Depart))
	rpc.Handle(s, api.MethodRead, api.RoleNode, leader.TranslatingErrors(c.handleRead))
	rpc.Handle(s, api.MethodRenew, api.RoleNode, leader.TranslatingErrors(c.lead.Renew))

	rpc.Handle(s, api.MethodIdentityNode, api.RoleNode, leader.TranslatingErrors(c.Identities.IssueForNode), rpc.Changing())
	rpc.Handle(s, api.MethodIdentityIssue, api.RoleIssuer, OnLeader(c, c.Identities.Issue), rpc.Changing())
	rpc.Handle(s, api.MethodIdentityRevoke, api.RoleIssuer, leader.RetryUnknown(OnLeader(c, c.Identities.Revoke)), rpc.Changing())
	rpc.Handle(s, api.MethodIdentities, api.RoleIssuer, large(OnLeader(c, c.Identities.List)))
	rpc.Handle(s, api.MethodTrustBundle, api.RoleReader, c.Identities.Bundle)
	rpc.Handle(s, api.MethodTransfer, api.RoleOperator, OnLeader(c, c.handOver.Transfer), rpc.Changing())
	rpc.Handle(s, api.MethodRemove, api.RoleAdmin, leader.RetryUnknown(OnLeader(c, c.lead.Remove), api.NotFound), rpc.Changing())
	rpc.Handle(s, api.MethodRotate, api.RoleAdmin, OnLeader(c, c.lead.BeginRotation), rpc.Changing())
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

// large marks the responses of a handler as large, also on a node that has them from the
// leader.
func large[Req, Resp any](act func(context.Context, *Req) (*Resp, error)) func(context.Context, *Req) (*Resp, error) {
	return func(ctx context.Context, req *Req) (*Resp, error) {
		resp, err := act(ctx, req)
		if err != nil {
			return nil, err
		}
		return resp, rpc.LargeResponse(ctx)
	}
}

// IssueIdentity gets an X.509 SVID that this node holds itself from the leader.
func (c *Cluster) IssueIdentity(ctx context.Context, req *api.IdentityRequest) (*api.IdentityIssued, error) {
	return leader.Ask(ctx, c.requests, api.MethodIdentityNode, req, c.Identities.IssueForNode)
}

// handleRead returns the index of a current read, on the leader.
func (c *Cluster) handleRead(ctx context.Context, _ *api.Empty) (*api.ReadResult, error) {
	index, err := c.Store().ReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	return &api.ReadResult{Index: index}, nil
}

// handleJoin admits a node that proves that it knows a token. Any node serves
// it: the proof is bound to the connection and has to be checked here. The
// leader does the rest.
func (c *Cluster) handleJoin(ctx context.Context, req *bootstrap.JoinRequest) (*bootstrap.JoinResult, error) {
	key, token, err := c.Tokens.VerifyProof(ctx, req.TokenID, req.Proof)
	if err != nil {
		return nil, err
	}
	rpc.SetAuditPrincipal(ctx, api.Principal{Name: token.Name, Role: api.RoleJoin, TokenID: token.ID})
	rpc.Summarize(ctx, "node %q (%.40s) at %s, with the token %q", req.Node.Name, req.Node.ID, req.Node.Cluster, token.Name)
	proof, err := trust.Prove(key, trust.Acceptor, rpc.TLS(ctx))
	if err != nil {
		return nil, err
	}
	if err := bootstrap.CheckTrustDomain(c.id.Load(), req.TrustDomain); err != nil {
		return nil, api.Errorf(api.Refused, "%v", err) // before it is a member
	}
	res, err := leader.Ask(ctx, c.requests, leader.MethodAdmit, &leader.AdmitRequest{Node: req.Node, Token: token.Name}, c.lead.Admit)
	if err != nil {
		return nil, err
	}
	own := c.Directory.Own()
	others := slices.DeleteFunc(res.Peers, func(p directory.Peer) bool { return p.ID == own.ID || p.ID == req.Node.ID })
	peers := append([]directory.Peer{own}, others...)
	return &bootstrap.JoinResult{
		Proof: proof, Cluster: c.ClusterID(), CAs: res.CAs, Certificate: res.Certificate,
		Keyring: c.Sealer().Marshal(), Gossip: res.Gossip, Peers: peers[:min(len(peers), directory.MaxPeers)],
	}, nil
}

// handleForm answers a node of --expect that there is a cluster already.
func (c *Cluster) handleForm(ctx context.Context, req *bootstrap.FormRequest) (*bootstrap.FormResult, error) {
	cs := rpc.TLS(ctx)
	key, _, err := c.Tokens.VerifyProof(ctx, req.TokenID, req.Proof)
	if err != nil {
		return nil, err
	}
	proof, err := trust.Prove(key, trust.Acceptor, cs)
	if err != nil {
		return nil, err
	}
	renounced, err := bootstrap.LoadRenounced(c.cfg.Dir)
	if err != nil {
		return nil, err
	}
	return &bootstrap.FormResult{Proof: proof, View: bootstrap.FormView{
		ID: c.ID(), Name: c.Name(), Addr: c.Directory.Address, Expect: c.cfg.Expect, Formed: true, Cluster: c.ClusterID(), Renounced: renounced,
	}}, nil
}
