package admin

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// PoolConfig bounds a pool. Zero fields take the defaults.
type PoolConfig struct {
	// Dial connects to the node of an ID. Its context ends after DialTimeout.
	Dial func(ctx context.Context, id string) (*Client, error)

	DialTimeout time.Duration // 2s
	Idle        time.Duration // without a call, after which a connection is closed: 2m, less than servers wait
	Backoff     time.Duration // after a dial that failed, doubled after each: 100ms
	MaxBackoff  time.Duration // 2s
}

// Pool keeps one connection to each node, shared by all who call it. Streams
// get one each: a slow reader of one must not hold up what others asked.
type Pool struct {
	cfg  PoolConfig
	ctx  context.Context // ends with the pool
	stop context.CancelFunc
	work sync.WaitGroup // dials and the sweeper

	mu     sync.Mutex
	closed bool
	peers  map[string]*peer
}

// peer is the connection to one node. All of it is under the pool's lock.
type peer struct {
	client  *Client       // nil: none
	dialing chan struct{} // closed when the dial under way has ended; nil: none
	err     error         // of the last dial
	retry   time.Time     // no dial before
	backoff time.Duration
	used    time.Time // last asked for
}

// NewPool makes an empty pool. It must be closed.
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

// Get gives the connection to the node of an ID, which the caller must not
// close. Callers at the same time share a dial. A node that cannot be reached
// costs a caller DialTimeout at most, and nothing while the pool waits before
// it tries again.
func (p *Pool) Get(ctx context.Context, id string) (*Client, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, fmt.Errorf("%w %s: the node is stopping", ErrUnreachable, id)
		}
		e := p.peers[id]
		if e == nil {
			e = new(peer)
			p.peers[id] = e
		}
		now := time.Now()
		e.used = now
		switch {
		case e.client != nil && !ended(e.client):
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
		} // dropped while it was dialled: once more
	}
}

// dial connects to a peer and tells those who wait.
func (p *Pool) dial(id string, e *peer) {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.DialTimeout)
	defer cancel()
	client, err := p.cfg.Dial(ctx, id)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(e.dialing)
	e.dialing = nil
	if err == nil && (p.closed || p.peers[id] != e) { // meanwhile
		client.Close()
		client = nil
	}
	e.client, e.err = client, err
	if err == nil {
		if client != nil {
			client.another = func(ctx context.Context) (*Client, error) {
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

func ended(c *Client) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// Drop closes the connection to a node that is gone or has another address;
// calls in flight on it fail, and the next Get dials at once.
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

// sweep closes what nobody uses.
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
		if e.client != nil && !ended(e.client) {
			if since, ok := e.client.idle(); !ok || now.Sub(since) < p.cfg.Idle {
				continue
			}
			hangUp(e.client.conn)
		}
		delete(p.peers, id)
	}
}

// Close closes every connection; calls in flight fail.
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
		hangUp(c.conn)
	}
	p.work.Wait()
}
