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

// Config is the configuration of a Mux. Zero bounds mean the defaults.
type Config struct {
	Listener net.Listener // closed by the Mux
	// TLS is the node's server configuration; nil: no TLS, for admin RPC and xDS
	// only. A connection for which it negotiates ALPN "h2" is xDS; the configuration
	// must have authenticated its proxy.
	TLS *tls.Config
	// Peer returns the node of the cluster that a client certificate belongs
	// to.
	Peer func(tls.ConnectionState) (nodeID string, ok bool)
	// Admin serves an admin RPC connection until it ends; nodeID is empty
	// without a node's certificate. It must close the connection, and bound
	// those that are not from nodes. Nil: the listener is for xDS alone.
	Admin func(conn net.Conn, nodeID string)
	Log   *slog.Logger // default: none

	MaxHandshakes    int           // handshakes that compute at once: 4
	HandshakeTimeout time.Duration // from accept to the end of the handshake: 5s
	FirstByteTimeout time.Duration // from there to the first byte: 5s
	// MaxConns bounds the connections before their first byte, MaxPerSource
	// those of them from one address: 512, 256. At either bound the oldest is
	// closed.
	MaxConns     int
	MaxPerSource int
	MaxNodes     int // concurrent connections from nodes: 2048
	MaxClients   int // concurrent admin connections without a node's certificate: 1024
	MaxProxies   int // concurrent xDS connections: 16384
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
	def(&c.MaxClients, 1024)
	def(&c.MaxProxies, 16384)
	wait(&c.HandshakeTimeout, 5*time.Second)
	wait(&c.FirstByteTimeout, 5*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Mux serves one listener. Its methods are safe for concurrent use.
type Mux struct {
	cfg        Config
	handshakes chan struct{} // semaphore of the handshakes that compute
	pending    *UnauthenticatedPool
	raft, xds  *queue
	logLimit   logLimiter

	ctx  context.Context // ends at Close
	stop context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]connInfo // all open connections, by their sockets

	nodes    atomic.Int64
	clients  atomic.Int64
	proxies  atomic.Int64
	accepted atomic.Uint64
	refused  [reasonCount]atomic.Uint64
}

// kind is the protocol of a connection.
type kind uint8

const (
	kindPending kind = iota
	kindAdmin
	kindRaft
	kindXDS
)

// connInfo describes an open connection.
type connInfo struct {
	kind kind
	node string // ID of the node; "": not from a node
}

// New makes a Mux and starts to serve the listener.
func New(cfg Config) *Mux {
	p := &Mux{cfg: cfg.withDefaults(), conns: map[net.Conn]connInfo{}}
	p.handshakes = make(chan struct{}, p.cfg.MaxHandshakes)
	p.pending = NewUnauthenticatedPool(p.cfg.MaxConns, p.cfg.MaxPerSource)
	p.raft, p.xds = newQueue(p.cfg.Listener.Addr()), newQueue(p.cfg.Listener.Addr())
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p
}

// Addr returns the address of the listener.
func (p *Mux) Addr() net.Addr { return p.cfg.Listener.Addr() }

// Raft returns the listener of the connections whose first byte is 'R', as
// *RaftConn, all from authenticated nodes. Once it is closed, they are refused.
func (p *Mux) Raft() net.Listener { return p.raft }

// XDS returns the listener of the xDS connections: *XDSConn, with the handshake
// behind them, or plain ones without TLS. Once it is closed, they are refused.
func (p *Mux) XDS() net.Listener { return p.xds }

// accept accepts connections until Close.
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
			// Most likely out of descriptors, which is transient.
			if p.logLimit.allow("accept", time.Now()) {
				p.cfg.Log.Warn("cluster port: cannot accept connections", "error", err)
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
			p.refused[reasonEvicted].Add(1)
			conn.Close()
		})
		p.work.Go(func() {
			defer leave()
			if !p.serve(conn, leave) {
				conn.Close() // the socket: closing the tls.Conn sends close_notify, which may block
				p.untrack(conn)
			}
		})
	}
}

// track registers a connection for Close. It returns false if Close has begun.
func (p *Mux) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.conns[conn] = connInfo{}
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
		p.conns[conn] = connInfo{k, node}
	}
	p.mu.Unlock()
}

// Drop closes the connections of a node, such as one that was removed. It does not
// prevent new ones; TLS or the servers must refuse these.
func (p *Mux) Drop(nodeID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn, is := range p.conns {
		if is.node == nodeID && nodeID != "" {
			conn.Close()
		}
	}
}

// Close closes the listener and every connection, those of Raft first: Raft must
// not wait for streams that nothing reads. It returns when all calls of Admin have
// returned.
func (p *Mux) Close() error {
	p.mu.Lock()
	p.stop()
	p.mu.Unlock() // from here on track refuses connections
	err := p.cfg.Listener.Close()
	p.raft.Close()
	p.xds.Close()
	p.mu.Lock()
	for _, k := range []kind{kindRaft, kindPending, kindXDS, kindAdmin} {
		for conn, is := range p.conns {
			if is.kind == k {
				conn.Close() // the socket: closing the tls.Conn sends close_notify, which may block
			}
		}
	}
	p.mu.Unlock()
	p.work.Wait()
	return err
}
