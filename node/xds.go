package node

import (
	"net"

	"penstock/node/mux"
)

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
