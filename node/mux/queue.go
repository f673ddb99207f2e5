package mux

import (
	"net"
	"sync"
)

// queue is a listener whose connections are added with put.
type queue struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// maxQueued bounds the connections of a protocol that its server has not accepted yet.
const maxQueued = 64

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn, maxQueued), done: make(chan struct{})}
}

// put adds a connection. It returns false if the queue is closed or full.
func (q *queue) put(conn net.Conn) bool {
	select {
	case <-q.done:
		return false
	default:
	}
	select {
	case q.conns <- conn:
		return true
	default:
		return false
	}
}

// Accept waits for the next connection.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case <-q.done: // takes precedence over queued connections
		return nil, net.ErrClosed
	default:
	}
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and closes the queued connections. Mux.Close closes one that a
// concurrent put adds.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	for {
		select {
		case conn := <-q.conns:
			conn.Close()
		default:
			return nil
		}
	}
}

// Addr returns the address of the Mux.
func (q *queue) Addr() net.Addr { return q.addr }
