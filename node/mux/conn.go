package mux

import (
	"crypto/tls"
	"net"
)

// detectDeadPeer sets the socket options that detect a dead peer.
func detectDeadPeer(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(keepAlive)
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(userTimeout)
	}
}

// prefixedConn is a connection that returns bytes which were already read before the
// rest. Only one goroutine may read it.
type prefixedConn struct {
	net.Conn
	prefix []byte // still to be returned
}

func (c *prefixedConn) Read(b []byte) (int, error) {
	if len(c.prefix) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.prefix)
	c.prefix = c.prefix[n:]
	return n, nil
}

// adminConn is prefixedConn for a *tls.Conn.
type adminConn struct {
	*tls.Conn
	prefix []byte
}

func (c *adminConn) Read(b []byte) (int, error) {
	if len(c.prefix) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.prefix)
	c.prefix = c.prefix[n:]
	return n, nil
}

// RaftConn is a Raft connection from another node.
type RaftConn struct {
	*tls.Conn
	node    string
	onClose func()
}

// Node returns the ID of the other node, from its certificate.
func (c *RaftConn) Node() string { return c.node }

// Close closes the socket without a close_notify: sending it may block, and Raft
// need not distinguish an orderly end from a truncation.
func (c *RaftConn) Close() error {
	err := c.NetConn().Close()
	c.onClose()
	return err
}

// XDSConn is the xDS connection of a proxy, whose certificate is verified.
type XDSConn struct {
	*tls.Conn
	onClose func()
}

// Close closes the socket without a close_notify: sending it may block, and HTTP/2
// has its own end, GOAWAY.
func (c *XDSConn) Close() error {
	err := c.NetConn().Close()
	c.onClose()
	return err
}

// plainXDSConn is XDSConn without TLS.
type plainXDSConn struct {
	prefixedConn
	onClose func()
}

func (c *plainXDSConn) Close() error {
	err := c.prefixedConn.Close()
	c.onClose()
	return err
}
