package cluster

import (
	"context"
	"net"
	"time"

	"penstock/node/api"
	"penstock/node/mux"
	"penstock/node/trust"
)

// XDS returns the listener of the xDS connections to the cluster port, from proxies
// whose certificates are verified.
func (c *Cluster) XDS() net.Listener { return c.port.XDS() }

// ServeXDS serves xDS alone at another listener, under the rules of the cluster
// port. The caller closes the Mux.
func (c *Cluster) ServeXDS(ln net.Listener) *mux.Mux {
	return mux.New(mux.Config{Listener: ln, TLS: c.proxies.Config(), Log: c.log})
}

// IssueProxy issues a certificate for a proxy of a service, on the leader. The
// caller must check that the service exists.
func (c *Cluster) IssueProxy(ctx context.Context, req *api.ProxyCertificateRequest) (*api.ProxyCertificate, error) {
	key, err := trust.CheckProxyRequest(req.CSR)
	if err != nil {
		return nil, api.Errorf(api.Invalid, "%v", err)
	}
	if req.TTL < trust.MinProxyLifetime || req.TTL > trust.MaxProxyLifetime {
		return nil, api.Errorf(api.Invalid, "invalid lifetime %v of a proxy's certificate: want %v to %v",
			req.TTL, trust.MinProxyLifetime, trust.MaxProxyLifetime)
	}
	snap, err := c.entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	ca, err := c.entries.Signer(snap)
	if err != nil {
		return nil, err
	}
	leaf, err := ca.IssueProxy(key, req.Service, req.TTL, time.Now())
	if err != nil {
		return nil, err
	}
	return &api.ProxyCertificate{
		Certificate: leaf.Raw, CAs: ca.Bundle(), ID: trust.ProxyID(ca.TrustDomain(), req.Service),
		ServerID: trust.ServerID(ca.TrustDomain()), Expires: leaf.NotAfter,
	}, nil
}

// signer returns the CA with its key, which every member has.
func (c *Cluster) signer() (*trust.CA, error) {
	if c.Store() == nil {
		return nil, trust.ErrNoCluster
	}
	return c.entries.Signer(c.entries.Snapshot())
}
