package mux

import (
	"net"
	"sync"
)

// queue is a listener that is fed.
type queue struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// maxQueued bounds the streams that Raft has not taken yet.
const maxQueued = 64

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn, maxQueued), done: make(chan struct{})}
}

// put hands a connection over; false: nobody takes it.
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
	case <-q.done: // before what waits
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

// Close ends Accept and closes what waits. What comes in this very moment
// stays with the port, which closes it in the end.
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

// Addr is the port's.
func (q *queue) Addr() net.Addr { return q.addr }
