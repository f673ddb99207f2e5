package mux

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Config is what a port needs. Zero bounds take the defaults.
type Config struct {
	Listener net.Listener // closed by the port
	// TLS is the node's own; nil runs the port plain, for admin RPC alone.
	TLS *tls.Config
	// Peer tells which node of the cluster has shown its certificate.
	Peer func(tls.ConnectionState) (nodeID string, ok bool)
	// Admin serves a connection of admin RPC until it ends; nodeID is empty
	// where no node's certificate was shown. It must close the connection,
	// and bound those that are not from nodes.
	Admin func(conn net.Conn, nodeID string)
	Log   *slog.Logger // default: none

	MaxHandshakes    int           // handshakes that compute at once: 4
	HandshakeTimeout time.Duration // from accept to the end of the handshake: 5s
	FirstByteTimeout time.Duration // from there to the first byte: 5s
	// MaxConns is how many connections there are at once before their first
	// byte, MaxPerSource how many of them from one address: 512, 256. At
	// either bound the oldest goes.
	MaxConns     int
	MaxPerSource int
	MaxNodes     int // connections of nodes at once: 2048
	MaxGuests    int // connections that Admin has at once without a node's certificate: 1024
}

func (c Config) withDefaults() Config {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	wait := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.MaxHandshakes, 4)
	def(&c.MaxConns, 512)
	def(&c.MaxPerSource, 256)
	def(&c.MaxNodes, 2048)
	def(&c.MaxGuests, 1024)
	wait(&c.HandshakeTimeout, 5*time.Second)
	wait(&c.FirstByteTimeout, 5*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Mux serves one listener.
type Mux struct {
	cfg        Config
	handshakes chan struct{} // those that compute
	pending    *UnauthenticatedPool
	raft       *queue
	told       lastTold

	ctx  context.Context // ends with the port
	stop context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]open // all that there are, by their sockets

	nodes    atomic.Int64
	guests   atomic.Int64
	accepted atomic.Uint64
	refused  [reasons]atomic.Uint64
}

// kind is what a connection turned out to be.
type kind uint8

const (
	kindPending kind = iota
	kindAdmin
	kindRaft
)

// open is what is known of a connection.
type open struct {
	kind kind
	node string // ID; "": not a node's
}

// New serves the listener from now on.
func New(cfg Config) *Mux {
	p := &Mux{cfg: cfg.withDefaults(), conns: map[net.Conn]open{}}
	p.handshakes = make(chan struct{}, p.cfg.MaxHandshakes)
	p.pending = NewUnauthenticatedPool(p.cfg.MaxConns, p.cfg.MaxPerSource)
	p.raft = newQueue(p.cfg.Listener.Addr())
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p
}

// Addr is the listener's.
func (p *Mux) Addr() net.Addr { return p.cfg.Listener.Addr() }

// Raft gives the connections whose first byte is 'R', each of a node that has
// shown its certificate. Closing it refuses them from then on.
func (p *Mux) Raft() net.Listener { return p.raft }

// accept takes connections until the port is closed.
func (p *Mux) accept() {
	pause := time.Duration(0)
	for {
		conn, err := p.cfg.Listener.Accept()
		switch {
		case err == nil:
			pause = 0
		case errors.Is(err, net.ErrClosed) || p.ctx.Err() != nil:
			return
		default:
			// Out of descriptors, most likely: this passes, the node must not.
			if p.told.due("accept", time.Now()) {
				p.cfg.Log.Warn("cluster port: accept", "error", err)
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-p.ctx.Done():
				return
			}
			continue
		}
		p.accepted.Add(1)
		if !p.track(conn) {
			conn.Close()
			return
		}
		leave := p.pending.Add(conn.RemoteAddr(), func() {
			p.refused[byCrowd].Add(1)
			conn.Close()
		})
		p.work.Go(func() {
			defer leave()
			if !p.serve(conn, leave) {
				conn.Close() // the socket itself: TLS would say goodbye, which may block
				p.untrack(conn)
			}
		})
	}
}

// track notes a connection that Close must close, unless that has begun.
func (p *Mux) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.conns[conn] = open{}
	return true
}

func (p *Mux) untrack(conn net.Conn) {
	p.mu.Lock()
	delete(p.conns, conn)
	p.mu.Unlock()
}

func (p *Mux) setProtocol(conn net.Conn, k kind, node string) {
	p.mu.Lock()
	if _, ok := p.conns[conn]; ok {
		p.conns[conn] = open{k, node}
	}
	p.mu.Unlock()
}

// Drop closes the connections of a node, such as one that was removed. New
// ones are for TLS to refuse, or for those who serve them.
func (p *Mux) Drop(nodeID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn, is := range p.conns {
		if is.node == nodeID && nodeID != "" {
			conn.Close()
		}
	}
}

// Close closes the listener and every connection, those of Raft first: Raft
// must not wait for streams that nobody reads. It returns when all of Admin's
// calls have.
func (p *Mux) Close() error {
	p.mu.Lock()
	p.stop()
	p.mu.Unlock() // from here on nothing is kept any more
	err := p.cfg.Listener.Close()
	p.raft.Close()
	p.mu.Lock()
	for _, k := range []kind{kindRaft, kindPending, kindAdmin} {
		for conn, is := range p.conns {
			if is.kind == k {
				conn.Close() // the socket itself: TLS would say goodbye, which may block
			}
		}
	}
	p.mu.Unlock()
	p.work.Wait()
	return err
}
