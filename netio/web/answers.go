package web

import (
	"net"
	"sync/atomic"

	"penstock/netio/web/strict"
)

// answers is a connection to an endpoint of HTTP/1, with TLS if that has it. An
// answer whose header could be read in two ways is none.
type answers struct {
	net.Conn
	fresh atomic.Bool // a request is about to be sent: what comes next is another answer
	scan  strict.Scanner
	fault error
}

// Read implements net.Conn.
func (c *answers) Read(p []byte) (int, error) {
	if c.fault != nil {
		return 0, c.fault
	}
	n, err := c.Conn.Read(p)
	if n == 0 {
		return 0, err
	}
	if c.fresh.Swap(false) {
		c.scan = strict.Scanner{Answers: true}
	}
	good, fault := c.scan.Scan(p[:n])
	if fault == nil {
		return n, err
	}
	if c.fault = fault; good == 0 {
		return 0, fault
	}
	return good, nil
}

// NetConn is the connection below.
func (c *answers) NetConn() net.Conn { return c.Conn }
