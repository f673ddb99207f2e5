package tlsstream

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// ErrBusy means that as many handshakes are under way as the Pool allows.
var ErrBusy = errors.New("too many tls handshakes at once")

// A Pool bounds the handshakes of a node. Its methods may be called from any
// goroutine.
type Pool struct {
	limit   int64
	current atomic.Int64 // handshakes that were let in and have not ended

	mu      sync.Mutex
	workers int        // goroutines that may run; bounds how much of the CPU handshakes take from the loops
	running int        // goroutines that do run; each ends when the queue is empty
	first   *handshake // queue of steps that wait for a worker
	last    *handshake
}

// NewPool makes a pool for up to limit handshakes at once, whether they are
// computing, queued, or waiting for their peer. As many of them compute at
// the same moment as Go may use processors.
func NewPool(limit int) *Pool {
	return &Pool{limit: int64(limit), workers: runtime.GOMAXPROCS(0)}
}

// Handshakes returns the number of handshakes under way.
func (p *Pool) Handshakes() int { return int(p.current.Load()) }

// enter lets one handshake in, or refuses it.
func (p *Pool) enter() bool {
	if p.current.Add(1) > p.limit {
		p.current.Add(-1)
		return false
	}
	return true
}

// leave is called once for each enter that returned true.
func (p *Pool) leave() { p.current.Add(-1) }

// submit has h.step called on a worker.
func (p *Pool) submit(h *handshake) {
	p.mu.Lock()
	if p.running < p.workers {
		p.running++
		p.mu.Unlock()
		go p.work(h)
		return
	}
	h.queued, h.prev, h.next = true, p.last, nil
	if p.last == nil {
		p.first = h
	} else {
		p.last.next = h
	}
	p.last = h
	p.mu.Unlock()
}

// work is the body of a worker.
func (p *Pool) work(h *handshake) {
	for h != nil {
		h.step()
		p.mu.Lock()
		if h = p.first; h != nil {
			p.unlink(h)
		} else {
			p.running--
		}
		p.mu.Unlock()
	}
}

// withdraw takes a queued step back. It returns false when a worker has it.
func (p *Pool) withdraw(h *handshake) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !h.queued {
		return false
	}
	p.unlink(h)
	return true
}

func (p *Pool) unlink(h *handshake) {
	if h.prev == nil {
		p.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		p.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.queued, h.prev, h.next = false, nil, nil
}
