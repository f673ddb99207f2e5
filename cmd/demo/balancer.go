package demo

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	connectTimeout = 2 * time.Second
	// attemptsPerNode is the number of attempts per node for one connection.
	attemptsPerNode = 3
	// retryPause is the pause between two rounds.
	retryPause = 100 * time.Millisecond
)

// balancer stands in front of the nodes, like HAProxy or a cloud load balancer:
// each new connection goes to the next ready node in turn. If the connect fails
// it tries another node; an established connection stays on its node.
type balancer struct {
	mu              sync.Mutex
	frontends       []*frontend
	backends        []*backend
	next            int // index of the backend to try first
	closed          bool
	carried         map[client]*flow
	carriedByKilled int // connections that killed nodes carried
	// lost are connections that ended after the node that carried them was
	// killed. Clients remove their own entries by opening a connection or
	// calling excused, so the size is bounded by the number of client ports.
	lost map[client]struct{}

	wg sync.WaitGroup
}

// frontend is one listening address of the balancer.
type frontend struct {
	listener net.Listener
	targets  []string // one address per backend
}

// backend is the balancer's view of a node. The balancer's lock guards it.
type backend struct {
	up          bool
	incarnation *incarnation // the current process, or the last one
	open        int
	total       uint64 // connections assigned
	refused     uint64 // failed connects, retried on another node
}

// incarnation is one process of a node. The balancer's lock guards it.
type incarnation struct {
	killed  bool // set just before SIGKILL
	carried int  // connections at the time of the kill
}

// client identifies a connection.
type client struct{ from, to string }

// flow is one proxied connection.
type flow struct {
	client      client
	backend     int
	incarnation *incarnation
	in          *net.TCPConn
	out         *net.TCPConn // nil until connected
}

func newBalancer(backends int) *balancer {
	b := &balancer{carried: map[client]*flow{}, lost: map[client]struct{}{}}
	for range backends {
		b.backends = append(b.backends, &backend{incarnation: &incarnation{}})
	}
	return b
}

// open serves a listener until close.
func (b *balancer) open(l net.Listener, targets []string) {
	f := &frontend{listener: l, targets: targets}
	b.mu.Lock()
	b.frontends = append(b.frontends, f)
	b.mu.Unlock()
	b.wg.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond) // out of descriptors
				continue
			}
			if in, ok := c.(*net.TCPConn); ok {
				b.wg.Go(func() { b.serve(f, in) })
			}
		}
	})
}

// close closes all listeners and connections and waits for their goroutines.
func (b *balancer) close() {
	b.mu.Lock()
	b.closed = true
	for _, f := range b.frontends {
		f.listener.Close()
	}
	for _, f := range b.carried {
		f.close()
	}
	b.mu.Unlock()
	b.wg.Wait()
}

// close closes both sides; the balancer's lock is held.
func (f *flow) close() {
	f.in.Close()
	if f.out != nil {
		f.out.Close()
	}
}

// setReady marks a node as ready or not.
func (b *balancer) setReady(backend int, up bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends[backend].up = up
}

// markKilled must be called before a node is killed: it excuses the connections
// that the node carries.
func (b *balancer) markKilled(backend int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	inc := b.backends[backend].incarnation
	inc.killed = true
	for _, f := range b.carried {
		if f.incarnation == inc && f.out != nil {
			inc.carried++
			b.carriedByKilled++
		}
	}
}

// markStarted must be called before a node is restarted.
func (b *balancer) markStarted(backend int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends[backend].incarnation = &incarnation{}
}

// excused reports whether a client's connection broke because the node that
// carried it was killed.
func (b *balancer) excused(c client) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.carried[c]; f != nil {
		return f.incarnation.killed
	}
	_, lost := b.lost[c]
	delete(b.lost, c)
	return lost
}

// counts are the balancer's counters for a node.
type counts struct {
	up             bool
	open           int
	total, refused uint64
	carriedAtKill  int // carried by the last process when it was killed
}

func (b *balancer) counts(backend int) counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.backends[backend]
	return counts{one.up, one.open, one.total, one.refused, one.incarnation.carried}
}

// carriedByKilledNodes returns the number of connections that killed nodes
// carried.
func (b *balancer) carriedByKilledNodes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.carriedByKilled
}

// serve proxies one connection.
func (b *balancer) serve(to *frontend, in *net.TCPConn) {
	defer in.Close()
	f := &flow{client: client{in.RemoteAddr().String(), in.LocalAddr().String()}, in: in}
	b.mu.Lock()
	delete(b.lost, f.client)
	b.mu.Unlock()
	tried := map[int]bool{}
	for range attemptsPerNode * len(b.backends) {
		if !b.assign(f, tried) {
			return
		}
		d := net.Dialer{Timeout: connectTimeout}
		c, err := d.DialContext(context.Background(), "tcp", to.targets[f.backend])
		out, ok := c.(*net.TCPConn)
		if err != nil || !ok {
			b.release(f, true)
			if tried[f.backend] = true; len(tried) == len(b.backends) {
				time.Sleep(retryPause)
				clear(tried)
			}
			continue
		}
		b.mu.Lock()
		f.out = out
		b.backends[f.backend].total++
		if f.incarnation.killed { // connected just before the kill
			f.incarnation.carried++
			b.carriedByKilled++
		}
		if b.closed {
			f.close()
		}
		b.mu.Unlock()
		relay(in, out)
		b.release(f, false)
		return
	}
}

// assign picks the next node in turn that is ready and not tried yet. If there
// is none, it picks any node that was not tried.
func (b *balancer) assign(f *flow, tried map[int]bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	at := -1
	for i := range b.backends {
		i = (b.next + i) % len(b.backends)
		if tried[i] || at >= 0 && !b.backends[i].up {
			continue
		}
		at = i
		if b.backends[i].up {
			break
		}
	}
	b.next = at + 1
	f.backend, f.incarnation = at, b.backends[at].incarnation
	b.backends[at].open++
	b.carried[f.client] = f
	return true
}

// release undoes assign. A refused connection does not count as carried by the
// node.
func (b *balancer) release(f *flow, refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.backends[f.backend]
	one.open--
	delete(b.carried, f.client)
	if refused {
		one.refused++
		return
	}
	if f.incarnation.killed {
		b.lost[f.client] = struct{}{}
	}
}

// relay copies in both directions until both have ended. It forwards an end of
// stream as a half-close; a reset or any other failure ends both directions.
func relay(a, b *net.TCPConn) {
	var wg sync.WaitGroup
	one := func(to, from *net.TCPConn) {
		_, err := io.Copy(to, from)
		if err == nil {
			err = to.CloseWrite()
		}
		if err != nil {
			for _, c := range []*net.TCPConn{a, b} {
				_ = c.SetLinger(0) // may be closed already
				c.Close()
			}
		}
	}
	wg.Go(func() { one(a, b) })
	wg.Go(func() { one(b, a) })
	wg.Wait()
	a.Close()
	b.Close()
}
