package ops

import (
	"context"
	"time"

	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/rpc"
	"penstock/routing/resource"
)

// proxyCertificates issues certificates for the proxies of services.
type proxyCertificates struct {
	peers   *Peers
	catalog *catalog.Catalog
}

func (p *proxyCertificates) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodIssueProxy, api.RoleAdmin, atLeader(p.peers, p.issue), rpc.Changing())
}

// issue issues a certificate for a proxy of a service that has discovery, on the
// leader. With --dev there are none.
func (p *proxyCertificates) issue(ctx context.Context, req *api.ProxyCertificateRequest) (*api.ProxyCertificate, error) {
	rpc.Summarize(ctx, "a proxy of Service/%.253s for %v", req.Service, req.TTL.Round(time.Minute))
	if err := p.peers.ReadBarrier(ctx); err != nil {
		return nil, err
	}
	set, _ := p.catalog.InForce()
	o, ok := set.Get(resource.Key{Kind: "Service", Name: req.Service})
	if !ok {
		return nil, api.Errorf(api.NotFound, "Service/%.253s does not exist", req.Service)
	}
	if o.Spec.(*resource.Service).Discovery == nil {
		return nil, api.Errorf(api.Refused, "Service/%s has no proxies: set its spec.discovery, such as discovery: {upstreams: [{service: NAME}]}",
			req.Service)
	}
	if p.peers.cluster == nil {
		return &api.ProxyCertificate{}, nil
	}
	return p.peers.cluster.IssueProxy(ctx, req)
}
