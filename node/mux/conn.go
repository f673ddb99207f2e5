package mux

import (
	"crypto/tls"
	"net"
)

// tune makes the death of a connection's peer noticed.
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

// headed is a connection whose first bytes were read already; one goroutine
// reads it.
type headed struct {
	net.Conn
	head []byte // not read again yet
}

func (c *headed) Read(b []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.head)
	c.head = c.head[n:]
	return n, nil
}

// adminConn is headed with the methods of TLS.
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

// RaftConn is a stream of Raft from another node.
type RaftConn struct {
	*tls.Conn
	node string
	gone func()
}

// Node is the ID of the node at the other end, by its certificate.
func (c *RaftConn) Node() string { return c.node }

// Close closes the socket. There is no goodbye of TLS: it may block, and a
// stream of Raft has no end that would have to be told from a cut.
func (c *RaftConn) Close() error {
	err := c.NetConn().Close()
	c.gone()
	return err
}
