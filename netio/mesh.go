package netio

import (
	"errors"
	"fmt"

	"penstock/netio/proxyproto"
	"penstock/netio/relay"
)

// awaitMeshHeader reads what the peer, which TLS has verified, says about the client.
func (c *Conn) awaitMeshHeader() {
	c.phase = phaseMeshHeader
	c.flags &^= helloRead // the hello is the peer's, not the client's
	c.serverName = ""
	c.ident.buf, c.ident.need = c.ident.buf[:0], 0
	c.loop.Arm(&c.timer, c.spec.ProxyTimeout)
	c.tls.SetReading(true)
}

// readMeshHeader takes bytes of the header, as they come.
func (c *Conn) readMeshHeader(p []byte) {
	id := c.ident
	id.buf = append(id.buf, p...)
	if len(id.buf) < id.need {
		return
	}
	h, n, err := proxyproto.ParseMesh(id.buf)
	if errors.Is(err, proxyproto.ErrMore) {
		id.need = n
		c.setCharge(proxyproto.MaxMesh)
		return
	}
	if err != nil {
		c.loop.failure = fmt.Errorf("the header of the mesh: %w", err)
		c.abort(MeshBadHeader)
		return
	}
	c.tls.SetReading(false)
	id.header = &h
	c.origin = &origin{source: h.Source, mesh: h.Mesh, id: h.UniqueID, ssl: h.SSL, alpn: h.ALPN}
	c.serverName = h.Authority
	if !c.countSource() {
		c.abort(LimitPerSource)
		return
	}
	id.buf = id.buf[:copy(id.buf, id.buf[n:])]
	c.setCharge(int64(len(id.buf)))
	if len(id.buf) > 0 {
		c.mark(&c.times.first[relay.Client])
	}
	c.route()
}
