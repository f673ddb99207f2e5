package pipe

import (
	"net"
	"sync"
)

// An Accepted is a Conn or a wrapper of one.
type Accepted interface {
	net.Conn
	Abort()
}

// Listener is a net.Listener of Conns: Accept returns what Hand was given. The
// zero value is ready to use.
type Listener struct {
	mu     sync.Mutex
	come   sync.Cond
	queue  []Accepted
	closed bool
}

// Hand passes a Conn to the next Accept. It never blocks: the queue is short,
// because servers accept at once and limits apply before. After Close it
// aborts the Conn.
func (l *Listener) Hand(c Accepted) {
	if !l.put(c) {
		c.Abort()
	}
}

func (l *Listener) put(c Accepted) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	if l.closed {
		return false
	}
	l.queue = append(l.queue, c)
	l.come.Signal()
	return true
}

func (l *Listener) init() {
	if l.come.L == nil {
		l.come.L = &l.mu
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	for len(l.queue) == 0 {
		if l.closed {
			return nil, net.ErrClosed
		}
		l.come.Wait()
	}
	c := l.queue[0]
	l.queue[0] = nil
	l.queue = l.queue[1:]
	return c, nil
}

// Close ends Accept and aborts the Conns that were not accepted.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.init()
	left := l.queue
	l.closed, l.queue = true, nil
	l.come.Broadcast()
	l.mu.Unlock()
	for _, c := range left {
		c.Abort()
	}
	return nil
}

// Finish ends Accept once all waiting Conns are accepted. It takes no new
// ones.
func (l *Listener) Finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	l.closed = true
	l.come.Broadcast()
}

// Addr returns a placeholder: the listener has no address.
func (l *Listener) Addr() net.Addr { return noAddr{} }

type noAddr struct{}

func (noAddr) Network() string { return "pipe" }
func (noAddr) String() string  { return "inside" }
