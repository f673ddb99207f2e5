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

const (
	// MeshUnavailable is the reason of connections that were to go through the mesh of
	// a node that is in no cluster.
	MeshUnavailable netio.Reason = "mesh_unavailable"
	// MeshRequest is the reason of HTTP requests, routed individually, whose backend is
	// in the mesh: their connections are shared by clients, and the mesh carries one
	// client on each.
	MeshRequest netio.Reason = "mesh_request"
)

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
	in := inputOf(c)
	table := t.router.Table()
	if last := t.removed.table(in.Listener); last != nil {
		if _, ok := table.Listener(in.Listener); !ok {
			table = last
		}
	}
	tags, service := table.ClientTags(&in)
	tags = maps.Clone(tags)
	delete(tags, tagSPIFFE)
	if service != "" {
		// All tags are in one layer on the other side, where this one would win over
		// that of a closer layer under Kuma's name.
		tags[tagService] = service
	}
	h := c.Describe()
	h.Mesh = &proxyproto.Mesh{SPIFFEID: routing.IdentityOf(&in), Undecided: in.IdentityUndecided, Tags: tags}
	if p, ok := c.Plan().(*plan); ok {
		h.Mesh.Service = p.flow.service
		h.Mesh.Route = in.Listener + "/" + p.decision.Destination()
	}
	return proxyproto.AppendMesh(dst, h)
}

// joinMesh completes the record of a connection to or from the mesh, so that it can be
// joined with that of the other node.
func joinMesh(c *netio.Conn, p *plan, r *accesslog.Record) {
	m := c.Mesh()
	if m == nil && (p == nil || !p.mesh) {
		return
	}
	r.Hop = hex.EncodeToString(c.UniqueID())
	if m == nil {
		return
	}
	r.Via = m.Route
	if node := tlsconfig.MeshPeer(c.TLS()); node != "" {
		r.Via = node + "/" + m.Route
	}
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
