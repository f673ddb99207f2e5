package node

import (
	"net"

	"penstock/node/mux"
	"penstock/node/xds"
	"penstock/node/xds/snapshot"
	"penstock/node/xds/translate"
	"penstock/routing/resource"
)

// newXDS makes the discovery server. It serves nothing before serveXDS.
func (n *Node) newXDS() *xds.Server {
	cfg := translate.Config{
		Discovered: &n.providers.Directory, Local: n.runsOnEachNode, Certificate: n.certificate,
	}
	if n.cluster != nil {
		cfg.TrustDomain = n.cluster.TrustDomain()
	}
	builder := translate.New(cfg)
	return xds.New(xds.Config{
		Build: func() snapshot.Snapshot {
			// The index first: what is served may be newer than it says, not older.
			_, view := n.catalog.InForce()
			return builder.Update(n.data.Router.Table(), view.Index())
		},
		Announcer: n.providers, Plain: n.cluster == nil, Node: n.cfg.Name, Log: n.log,
		MaxConnections: n.cfg.MaxProxies, MaxStreams: n.cfg.MaxProxies, MaxPerIdentity: n.cfg.MaxProxiesPerIdentity,
	})
}

// runsOnEachNode reports whether an endpoint provider is of scope node, so that
// nodes find different endpoints by it.
func (n *Node) runsOnEachNode(name string) bool {
	set, _ := n.catalog.InForce()
	o, ok := set.Get(resource.Key{Kind: resource.KindProvider, Name: name})
	return ok && o.Spec.(*resource.EndpointProvider).Scope == "node"
}

// certificate returns a Certificate with its private key; nil if there is none, or
// none was issued yet.
func (n *Node) certificate(name string) *resource.Certificate {
	set, _ := n.catalog.InForce()
	o, ok := set.Get(resource.Key{Kind: "Certificate", Name: name})
	if !ok {
		return nil
	}
	spec := o.Spec.(*resource.Certificate)
	if spec.Follow || spec.HasBundle() {
		return nil // each node has its own; the keys stay there
	}
	return n.acme.Filled(name, spec)
}

// followForXDS tells the discovery server of everything that has come into force.
// That includes what changes no resource: a proxy that comes from another node
// waits until this one has reached the index of what it has.
func (n *Node) followForXDS() {
	for index := uint64(0); ; {
		view, err := n.store.Wait(n.ctx, index)
		if err != nil {
			return // the node stops; follow says why
		}
		index = view.Index()
		if n.catalog.Await(n.ctx, index) != nil {
			return
		}
		n.xds.Changed()
	}
}

// openXDS starts to accept xDS connections at --xds, if it is set. They wait until
// the server serves them.
func (n *Node) openXDS(set *listenerSet) {
	switch {
	case set.xds == nil:
		return
	case n.cluster == nil:
		n.xdsPort = mux.New(mux.Config{Listener: set.xds, Log: n.log})
	default:
		n.xdsPort = n.cluster.ServeXDS(set.xds)
	}
	set.xds = nil
}

// openDevPort serves commands and xDS at the cluster port of a --dev node, without
// TLS.
func (n *Node) openDevPort(l net.Listener) {
	principal := implicitPrincipal(l)
	n.devPort = mux.New(mux.Config{
		Listener: l, Admin: func(conn net.Conn, _ string) { n.admin.ServeConn(conn, principal) }, Log: n.log,
	})
}

// serveXDS serves the xDS connections of all ports.
func (n *Node) serveXDS() {
	var listeners []net.Listener
	if n.cluster != nil {
		listeners = append(listeners, n.cluster.XDS())
	}
	for _, port := range []*mux.Mux{n.devPort, n.xdsPort} {
		if port != nil {
			listeners = append(listeners, port.XDS())
		}
	}
	for _, l := range listeners {
		n.background.Go(func() {
			if err := n.xds.Serve(l); err != nil {
				n.log.Error("the discovery server failed", "address", l.Addr().String(), "error", err)
			}
		})
	}
}
