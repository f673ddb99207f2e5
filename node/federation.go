package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/identity"
	"penstock/node/cluster/record"
	"penstock/node/federation"
	"penstock/node/ops"
	"penstock/node/trust"
	"penstock/node/workload"
	"penstock/routing/resource"
)

// svidTimeout bounds the wait of a handshake for the node's certificate. It is less than
// the HTTP server gives a request.
const svidTimeout = 3 * time.Second

var errNoTrustDomain = errors.New("a --dev node has no CA, and so no trust bundle")

// openFederation makes what keeps the bundles of trust domains.
func (n *Node) openFederation() {
	n.bundles = trust.NewBundles()
	n.useTrustBundle() // so that the first handshakes find it
	cfg := federation.Config{
		Store: n.store, Bundles: n.bundles, Log: n.log,
		Leads: func() bool {
			return n.leads() && len(n.catalog.Unreadable()) == 0 // else it would take bundles for gone
		},
		Await: func(ctx context.Context, index uint64) error { return n.catalog.Await(ctx, index) },
	}
	if n.cluster != nil {
		cfg.TrustDomain = n.cluster.TrustDomain()
	}
	n.federation = federation.New(cfg)
	n.bundle = &federation.Endpoint{Bundle: n.ownBundle, Log: n.log}
}

// admitTrustBundle refuses a bundle for the cluster's own trust domain.
func (n *Node) admitTrustBundle(o resource.Object) error {
	b, ok := o.Spec.(*resource.TrustBundle)
	if ok && n.cluster != nil && b.TrustDomain == n.cluster.TrustDomain() {
		return api.Errorf(api.Invalid, "%v: spec.trustDomain: is the cluster's own, whose bundle it has: refer to it as %s (%s)",
			o.Key, resource.OwnTrustDomain, b.TrustDomain)
	}
	return nil
}

// ownBundle returns the cluster's own trust bundle.
func (n *Node) ownBundle() (roots [][]byte, sequence uint64, err error) {
	if n.cluster == nil {
		return nil, 0, errNoTrustDomain
	}
	b, err := n.cluster.Identities.Bundle(n.ctx, &api.Empty{})
	if err != nil {
		return nil, 0, err
	}
	return b.Roots, b.Sequence, nil
}

// useTrustBundle puts the cluster's own bundle in force for peers of this node.
func (n *Node) useTrustBundle() {
	if n.cluster == nil {
		return
	}
	e, ok := n.store.Snapshot().Get(record.KeyCluster)
	if !ok {
		return
	}
	r, err := record.Unmarshal[record.Cluster](record.KeyCluster, e.Value)
	if err != nil {
		return // the cluster stops the node for it
	}
	own, err := trust.ParseBundle(n.cluster.TrustDomain(), trust.SelfSigned(r.CAs))
	if err != nil {
		n.log.Error("cannot use the trust bundle", "error", err)
		return
	}
	n.bundles.Set(resource.OwnTrustDomain, own)
}

// serveBundle serves the cluster's trust bundle at --bundle-endpoint, with a
// certificate of the trust domain.
func (n *Node) serveBundle(set *listenerSet) error {
	l := set.bundle
	if l == nil {
		return nil
	}
	hold, err := n.identities.Hold(workload.Identity{ID: identity.BundlePath})
	if err != nil {
		return err
	}
	set.bundle = nil
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", n.bundle)
	var gate ops.Gate
	gate.Set(mux)
	n.bundleHTTP = ops.NewServer(&gate, n.log)
	secured := tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return awaitSVID(hello.Context(), hold) },
	})
	n.background.Go(func() {
		defer hold.Release()
		if err := n.bundleHTTP.Serve(secured); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("the bundle endpoint failed", "address", l.Addr().String(), "error", err)
		}
	})
	return nil
}

// awaitSVID returns the certificate of a hold. Soon after the start it waits for it.
func awaitSVID(ctx context.Context, hold *workload.Hold) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, svidTimeout)
	defer cancel()
	for {
		svid, changed, err := hold.Get()
		switch {
		case err == nil:
			return &svid.Cert, nil
		case changed == nil:
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// closeBundleEndpoint ends the server of --bundle-endpoint.
func (n *Node) closeBundleEndpoint(ctx context.Context) {
	if n.bundleHTTP != nil && n.bundleHTTP.Shutdown(ctx) != nil {
		n.bundleHTTP.Close()
	}
}

// BundleAddr returns the listen address of --bundle-endpoint; "": none.
func (n *Node) BundleAddr() string { return n.bundleAddr }

// listenBundle listens at --bundle-endpoint.
func (n *Node) listenBundle(config *net.ListenConfig) (net.Listener, error) {
	l, err := config.Listen(n.ctx, "tcp", n.cfg.BundleEndpoint)
	if err == nil {
		n.bundleAddr = l.Addr().String()
	}
	return l, err
}
