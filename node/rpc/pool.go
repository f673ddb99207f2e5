package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// PoolConfig configures a pool. Zero fields take the defaults.
type PoolConfig struct {
	// Dial connects to the node with the ID. Its context ends after DialTimeout.
	Dial func(ctx context.Context, id string) (*Client, error)

	DialTimeout time.Duration // 2s
	Idle        time.Duration // unused connections are closed after it; must be below the servers' IdleTimeout: 2m
	Backoff     time.Duration // after a failed dial, doubled after each further one: 100ms
	MaxBackoff  time.Duration // 2s
}

// Pool keeps one connection to each node, shared by all callers. A stream gets
// its own connection, so that a slow reader does not delay other calls.
type Pool struct {
	cfg  PoolConfig
	ctx  context.Context // ends with the pool
	stop context.CancelFunc
	work sync.WaitGroup // dials and the sweeper

	mu     sync.Mutex
	closed bool
	peers  map[string]*peer
}

// peer is the connection to one node. The pool's lock guards all fields.
type peer struct {
	client  *Client       // nil: none
	dialing chan struct{} // closed when the current dial ends; nil: no dial
	err     error         // of the last dial
	retry   time.Time     // no dial before this time
	backoff time.Duration
	used    time.Time // last Get
}

// NewPool returns an empty pool. The caller must close it.
func NewPool(cfg PoolConfig) *Pool {
	wait := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	wait(&cfg.DialTimeout, 2*time.Second)
	wait(&cfg.Idle, 2*time.Minute)
	wait(&cfg.Backoff, 100*time.Millisecond)
	wait(&cfg.MaxBackoff, 2*time.Second)
	p := &Pool{cfg: cfg, peers: map[string]*peer{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.work.Go(p.sweep)
	return p
}

// Get returns the connection to the node with the ID, which the caller must not
// close. Concurrent callers share a dial. For an unreachable node Get takes at
// most DialTimeout, and fails at once during the backoff after a failed dial.
func (p *Pool) Get(ctx context.Context, id string) (*Client, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, fmt.Errorf("%w %s: this node is stopping", ErrUnreachable, id)
		}
		e := p.peers[id]
		if e == nil {
			e = new(peer)
			p.peers[id] = e
		}
		now := time.Now()
		e.used = now
		switch {
		case e.client != nil && !isClosed(e.client):
			defer p.mu.Unlock()
			return e.client, nil
		case e.dialing == nil && now.Before(e.retry):
			defer p.mu.Unlock()
			return nil, e.err
		case e.dialing == nil:
			e.client, e.dialing = nil, make(chan struct{})
			p.work.Go(func() { p.dial(id, e) })
		}
		wait := e.dialing
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		p.mu.Lock()
		client, err := e.client, e.err
		p.mu.Unlock()
		if client != nil || err != nil {
			return client, err
		} // dropped during the dial: try again
	}
}

// dial connects to a peer and wakes the waiting callers.
func (p *Pool) dial(id string, e *peer) {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.DialTimeout)
	defer cancel()
	client, err := p.cfg.Dial(ctx, id)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(e.dialing)
	e.dialing = nil
	if err == nil && (p.closed || p.peers[id] != e) { // closed or dropped during the dial
		client.Close()
		client = nil
	}
	e.client, e.err = client, err
	if err == nil {
		if client != nil {
			client.dialStream = func(ctx context.Context) (*Client, error) {
				ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
				defer cancel()
				return p.cfg.Dial(ctx, id)
			}
		}
		e.backoff, e.retry = 0, time.Time{}
		return
	}
	e.backoff = min(max(2*e.backoff, p.cfg.Backoff), p.cfg.MaxBackoff)
	e.retry = time.Now().Add(e.backoff)
}

func isClosed(c *Client) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// Drop closes the connection to a node that has left or has a new address.
// Calls in flight on it fail, and the next Get dials at once.
func (p *Pool) Drop(id string) {
	p.mu.Lock()
	var client *Client
	if e := p.peers[id]; e != nil {
		client = e.client
	}
	delete(p.peers, id)
	p.mu.Unlock()
	if client != nil {
		client.Close()
	}
}

// sweep closes idle connections.
func (p *Pool) sweep() {
	ticker := time.NewTicker(max(p.cfg.Idle/4, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			p.closeIdle(now)
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *Pool) closeIdle(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, e := range p.peers {
		if e.dialing != nil || now.Sub(e.used) < p.cfg.Idle {
			continue
		}
		if e.client != nil && !isClosed(e.client) {
			if since, ok := e.client.idle(); !ok || now.Sub(since) < p.cfg.Idle {
				continue
			}
			closeAsync(e.client.conn)
		}
		delete(p.peers, id)
	}
}

// Close closes all connections; calls in flight fail.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	var open []*Client
	for _, e := range p.peers {
		if e.client != nil {
			open = append(open, e.client)
		}
	}
	p.mu.Unlock()
	p.stop()
	for _, c := range open {
		closeAsync(c.conn)
	}
	p.work.Wait()
}
