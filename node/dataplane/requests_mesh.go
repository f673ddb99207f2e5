package dataplane

import (
	"bytes"
	"crypto/tls"
	"errors"
	"sync"
	"sync/atomic"

	"penstock/netio"
	"penstock/netio/proxyproto"
	"penstock/netio/web"
	"penstock/routing"
	"penstock/routing/resource"
)

// maxIdleHops bounds the idle HTTP/1.1 connections of one client to the endpoints of one
// Service of the mesh; http.maxIdle may be less.
const maxIdleHops = 4

// hops holds the connections by which the requests of one client connection go to the
// mesh. A connection to the mesh names its client at its beginning, and the other node
// decides by that about all requests on it. So no two client connections share one, not
// even those of the same identity: nothing has to be compared to know that they may, and
// limits of the other node count each client as its own.
type hops struct {
	used atomic.Bool

	mu    sync.Mutex
	m     map[string]*hop // by service
	ended bool            // so is the client's connection
}

// hop is how the requests of one client connection reach one service.
type hop struct {
	spec    *resource.Service
	table   *routing.Table // what the header is known to agree with
	profile *web.Profile
}

// hop returns the profile for a request to a service of the mesh. What the other node is
// told of the client is what holds for this request: after a change of the client's tags
// its requests go by new connections.
func (h *requests) hop(q *request) (*web.Profile, netio.Reason) {
	if h.mesh == nil {
		return nil, MeshUnavailable
	}
	service, spec, table := q.decision.Service(), q.spec, h.table(q.client)
	if s, ok := h.router.Table().Service(service); ok {
		spec = s.Spec()
	}
	all := &q.client.hops
	all.mu.Lock()
	defer all.mu.Unlock()
	at := all.m[service]
	if at != nil && at.spec == spec && at.table == table {
		return at.profile, netio.OK
	}
	header, err := q.client.meshHeader(table, service, spec.Protocol == "http2")
	switch {
	case errors.Is(err, proxyproto.ErrTooLong):
		return nil, netio.MeshHeaderTooLong
	case err != nil:
		return nil, netio.MeshBadHeader
	case at != nil && at.spec == spec && bytes.Equal(at.profile.Tunnel.Header, header):
		at.table = table
		return at.profile, netio.OK
	case at != nil:
		h.hanging.Go(at.profile.Close) // requests under way finish on it
	}
	at = &hop{spec: spec, table: table, profile: h.newHop(service, spec, header)}
	all.used.Store(true)
	if all.ended {
		at.profile.Close() // one last request, which is about to end too
		return at.profile, netio.OK
	}
	if all.m == nil {
		all.m = map[string]*hop{}
	}
	all.m[service] = at
	return at.profile, netio.OK
}

// newHop makes the profile of a hop. Its TLS is what is in force at each connection.
func (h *requests) newHop(service string, spec *resource.Service, header []byte) *web.Profile {
	p := h.profiles.newProfile(spec)
	p.MaxIdle = min(p.MaxIdle, maxIdleHops)
	p.MaxIdleAll = max(p.MaxIdle, 0)
	client := h.profiles.client(service, spec)
	p.Tunnel = &web.Tunnel{Header: header, TLS: func(host string) *tls.Config { return client.For(host) }}
	return p
}

// meshHeader returns the header that tells a mesh endpoint whose requests follow. Its
// ALPN protocol is the one that the node itself speaks then, not the client's.
func (c *httpClient) meshHeader(table *routing.Table, service string, http2 bool) ([]byte, error) {
	h := c.proxy
	h.ALPN = "http/1.1"
	if http2 {
		h.ALPN = "h2"
	}
	h.UniqueID = c.hopID
	h.Mesh = meshOf(&c.in, table)
	h.Mesh.Service, h.Mesh.Route = service, c.in.Listener+"/"+c.destination
	return proxyproto.AppendMesh(nil, h)
}

// hangUp ends the hops of a client that has left. It does not wait for them: TLS says
// farewell.
func (h *requests) hangUp(c *httpClient) {
	c.hops.mu.Lock()
	defer c.hops.mu.Unlock()
	c.hops.ended = true
	for _, at := range c.hops.m {
		h.hanging.Go(at.profile.Close)
	}
	c.hops.m = nil
}

// refusedByMesh reports whether the node at the other end closed the connection of a
// request without an answer, as it does for clients that it refuses. That says nothing
// about the endpoint: else one client that is refused could have it ejected for all.
func (q *request) refusedByMesh(err error) bool {
	return q.spec != nil && q.spec.Mesh && errors.Is(err, web.ErrLeft)
}
