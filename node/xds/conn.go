package xds

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"

	"google.golang.org/grpc/credentials"

	"penstock/node/xds/snapshot"
)

var (
	errNotClient   = errors.New("these credentials are a server's")
	errConnections = errors.New("too many connections")
)

// conn is a client's connection, and gRPC's information on who the client is.
type conn struct {
	net.Conn
	credentials.CommonAuthInfo
	server *Server
	remote netip.AddrPort
	// plain: the connection has no TLS. Otherwise the certificate says identity, or
	// refused says what is wrong with it.
	plain    bool
	identity snapshot.Identity
	refused  error

	closed sync.Once
	mu     sync.Mutex
	// announced are the endpoints that streams of this connection announce.
	announced map[announcement]*announced
}

// AuthType implements credentials.AuthInfo.
func (*conn) AuthType() string { return "tls" }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closed.Do(func() {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		delete(c.server.conns, c)
	})
	return c.Conn.Close()
}

// handshake takes connections whose TLS handshake is over.
type handshake struct{ server *Server }

// ServerHandshake implements credentials.TransportCredentials.
func (h *handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := &conn{Conn: raw, server: h.server, remote: addrPort(raw.RemoteAddr())}
	c.SecurityLevel = credentials.PrivacyAndIntegrity
	if secured, ok := raw.(interface{ ConnectionState() tls.ConnectionState }); ok {
		state := secured.ConnectionState()
		c.identity, c.refused = identityOf(&state)
	} else {
		c.plain, c.SecurityLevel = true, credentials.NoSecurity
	}
	h.server.mu.Lock()
	defer h.server.mu.Unlock()
	if len(h.server.conns) >= h.server.cfg.MaxConnections {
		h.server.stats.refuse(refusedConnections)
		return nil, nil, errConnections
	}
	h.server.conns[c] = struct{}{}
	return c, c, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (*handshake) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errNotClient
}

// Info implements credentials.TransportCredentials.
func (*handshake) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (h *handshake) Clone() credentials.TransportCredentials { return h }

// OverrideServerName implements credentials.TransportCredentials.
func (*handshake) OverrideServerName(string) error { return errNotClient }

// addrPort returns the IP address and port of an address; zero: it has none.
func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		at := tcp.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return netip.AddrPort{}
}
