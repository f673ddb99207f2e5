package mux

import (
	"crypto/tls"
	"net"
)

// tune sets the socket options that detect a dead peer.
func tune(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(keepAlive)
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(userTimeout)
	}
}

// headed is a connection that returns bytes which were already read before the
// rest. Only one goroutine may read it.
type headed struct {
	net.Conn
	head []byte // still to be returned
}

func (c *headed) Read(b []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.head)
	c.head = c.head[n:]
	return n, nil
}

// adminConn is headed for a *tls.Conn.
type adminConn struct {
	*tls.Conn
	head []byte
}

func (c *adminConn) Read(b []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.head)
	c.head = c.head[n:]
	return n, nil
}

// RaftConn is a Raft connection from another node.
type RaftConn struct {
	*tls.Conn
	node string
	gone func()
}

// Node returns the ID of the other node, from its certificate.
func (c *RaftConn) Node() string { return c.node }

// Close closes the socket without a close_notify: sending it may block, and Raft
// need not distinguish an orderly end from a truncation.
func (c *RaftConn) Close() error {
	err := c.NetConn().Close()
	c.gone()
	return err
}
