package dataplane

import (
	"crypto/tls"
	"encoding/hex"
	"maps"

	"penstock/netio"
	"penstock/netio/clienthello"
	"penstock/netio/proxyproto"
	"penstock/node/accesslog"
	"penstock/node/tlsconfig"
	"penstock/routing"
	"penstock/routing/resource"
)

// MeshUnavailable is the reason of connections and requests that were to go through the
// mesh of a node that is in no cluster.
const MeshUnavailable netio.Reason = "mesh_unavailable"

// meshServer returns the TLS of mesh listeners.
func (r *reconciler) meshServer(*clienthello.Hello) (*tls.Config, netio.Reason) {
	if r.mesh == nil {
		return nil, MeshUnavailable
	}
	config := r.mesh.Server()
	if config == nil {
		return nil, MeshUnavailable
	}
	return config, netio.OK
}

// WithoutMesh returns the services whose connections are closed because this node is
// in no cluster, sorted by name.
func (d *Dataplane) WithoutMesh() (services []string) {
	if d.reconciler.mesh != nil {
		return nil
	}
	for _, s := range d.Services() {
		if s.Spec().Mesh {
			services = append(services, s.Name())
		}
	}
	return services
}

// MeshHandshakes calls f with the counts of handshakes with other nodes of the mesh: side
// is client or server. It calls it for nothing if the node is in no cluster.
func (d *Dataplane) MeshHandshakes(f func(side string, resumed bool, n uint64)) {
	if d.reconciler.mesh != nil {
		d.reconciler.mesh.Handshakes(f)
	}
}

// meshInput returns what routing may know of a connection from a mesh peer: what the
// peer says. TLS has verified that it is a node of this cluster.
func meshInput(c *netio.Conn, m *proxyproto.Mesh) routing.Input {
	in := routing.Input{
		Listener: c.Listener(), Client: c.Client().Addr(), ServerName: m.Service, HasServerName: true,
		IdentityUndecided: m.Undecided,
	}
	in.Tags = maps.Clone(m.Tags)
	delete(in.Tags, tagSPIFFE) // an identity is what the peer calls so
	if m.SPIFFEID == "" {
		return in
	}
	if _, err := resource.ParseSPIFFEID(m.SPIFFEID); err != nil || !fitsTag(m.SPIFFEID) {
		in.IdentityUndecided = true
		return in
	}
	if in.Tags == nil {
		in.Tags = map[string]string{}
	}
	in.Tags[tagSPIFFE] = m.SPIFFEID
	return in
}

// meshHeader appends the header that tells a mesh endpoint who the client is. It is a
// netio.Profile.Preface.
func (t *traffic) meshHeader(c *netio.Conn, dst []byte) ([]byte, error) {
	if _, ok := c.Plan().(*httpPlan); ok {
		return dst, nil // its endpoint is this process; each hop of its requests has a header
	}
	in := inputOf(c)
	table := t.router.Table()
	if last := t.removed.table(in.Listener); last != nil {
		if _, ok := table.Listener(in.Listener); !ok {
			table = last
		}
	}
	h := c.Describe()
	// Not that of a PROXY header from a balancer before this node: the logs of both
	// nodes join by this one.
	h.UniqueID = c.UniqueID()
	h.Mesh = meshOf(&in, table)
	if p := planOf(c.Plan()); p != nil {
		h.Mesh.Service = p.flow.service
		h.Mesh.Route = in.Listener + "/" + p.decision.Destination()
	}
	return proxyproto.AppendMesh(dst, h)
}

// meshOf returns what a mesh endpoint is told of the source of connections.
func meshOf(in *routing.Input, table *routing.Table) *proxyproto.Mesh {
	tags, service := table.ClientTags(in)
	tags = maps.Clone(tags)
	delete(tags, tagSPIFFE)
	if service != "" {
		// All tags are in one layer on the other side, where this one would win over
		// that of a closer layer under Kuma's name.
		tags[tagService] = service
	}
	return &proxyproto.Mesh{SPIFFEID: routing.IdentityOf(in), Undecided: in.IdentityUndecided, Tags: tags}
}

// joinMesh completes the record of a connection to or from the mesh, so that it can be
// joined with that of the other node.
func joinMesh(c *netio.Conn, p *plan, r *accesslog.Record) {
	m := c.Mesh()
	if m == nil && (p == nil || !p.mesh) {
		return
	}
	r.Hop, r.Via = hex.EncodeToString(c.UniqueID()), via(c)
}

// via returns where a connection from the mesh came from: "NODE-ID/listener/destination";
// "": it did not.
func via(c *netio.Conn) string {
	m := c.Mesh()
	if m == nil {
		return ""
	}
	if node := tlsconfig.MeshPeer(c.TLS()); node != "" {
		return node + "/" + m.Route
	}
	return m.Route
}

// refusesClient reports whether a reason to refuse a connection is about its client. It
// would be refused by any node, so none is ejected for it.
func refusesClient(why netio.Reason) bool {
	switch why {
	case netio.PermissionDenied, RateLimited, netio.LimitPerSource:
		return true
	}
	return false
}
