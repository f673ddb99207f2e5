package mux

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// reason is the reason why a connection was refused.
type reason uint8

const (
	reasonEvicted       reason = iota // evicted: too many unauthenticated connections
	reasonNotTLS                      // not TLS
	reasonHandshake                   // failed TLS handshake, such as a certificate of another cluster
	reasonSilent                      // no handshake or first byte in time
	reasonFirstByte                   // unknown first byte
	reasonNoCertificate               // Raft without a node's certificate
	reasonLimit                       // above MaxNodes, MaxClients or MaxProxies, or the queue of Raft or xDS is full
	reasonCount
)

var reasonNames = [reasonCount]string{"crowd", "not_tls", "handshake", "silent", "first_byte", "no_certificate", "limit"}

// Stats holds the counters of a Mux.
type Stats struct {
	Pending  int               // current connections before their first byte
	Nodes    int               // current connections from nodes
	Proxies  int               // current xDS connections
	Accepted uint64            // connections since the start
	Refused  map[string]uint64 // those of them that were refused, by reason
}

// Stats returns the counters. Refused has every reason, also those with 0.
func (p *Mux) Stats() Stats {
	s := Stats{
		Pending: p.pending.Len(), Nodes: int(p.nodes.Load()), Proxies: int(p.proxies.Load()),
		Accepted: p.accepted.Load(), Refused: make(map[string]uint64, reasonCount),
	}
	for r := range reasonCount {
		s.Refused[reasonNames[r]] = p.refused[r].Load()
	}
	return s
}

// helloType is the first byte of every TLS connection: a handshake record.
const helloType = 0x16

// alert is the answer to an admin client without TLS: a fatal TLS alert
// protocol_version, which that client recognizes.
var alert = []byte{0x15, 3, 1, 0, 2, 2, 70}

// serve authenticates a connection and dispatches it by its first byte. handedOver
// reports whether the connection stays open after serve returns.
func (p *Mux) serve(conn net.Conn, leave func()) (handedOver bool) {
	detectDeadPeer(conn)
	_ = conn.SetDeadline(time.Now().Add(p.cfg.HandshakeTimeout))
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		p.refuse(conn, reasonSilent, err)
		return false
	}
	if p.cfg.TLS == nil {
		return p.servePlain(conn, first[0], leave)
	}
	if first[0] != helloType {
		if first[0] == Admin {
			_, _ = conn.Write(alert)
		}
		p.refuse(conn, reasonNotTLS, nil)
		return false
	}
	secure, err := p.handshake(&prefixedConn{Conn: conn, prefix: first[:]})
	if err != nil {
		why := reasonHandshake
		if errors.Is(err, os.ErrDeadlineExceeded) {
			why = reasonSilent
		}
		p.refuse(conn, why, err)
		return false
	}
	if secure.ConnectionState().NegotiatedProtocol == http2 {
		leave() // authenticated
		return p.serveXDS(conn, func(onClose func()) net.Conn { return &XDSConn{Conn: secure, onClose: onClose} })
	}
	if p.cfg.Admin == nil {
		p.refuse(conn, reasonFirstByte, nil)
		return false
	}
	node := ""
	if p.cfg.Peer != nil {
		if id, ok := p.cfg.Peer(secure.ConnectionState()); ok {
			node = id
		}
	}
	if node != "" {
		leave() // authenticated
		if n := p.nodes.Add(1); n > int64(p.cfg.MaxNodes) {
			p.nodes.Add(-1)
			p.refuse(conn, reasonLimit, nil)
			return false
		}
		defer func() {
			if !handedOver {
				p.nodes.Add(-1)
			}
		}()
	}
	_ = conn.SetDeadline(time.Now().Add(p.cfg.FirstByteTimeout))
	if _, err := io.ReadFull(secure, first[:]); err != nil {
		p.refuse(conn, reasonSilent, err)
		return false
	}
	_ = conn.SetDeadline(time.Time{})
	leave()
	return p.dispatch(conn, secure, first[0], node)
}

// http2 is the ALPN protocol of xDS, which is gRPC (RFC 9113, section 3.2).
const http2 = "h2"

// prefaceType is the first byte of HTTP/2's connection preface, "PRI * HTTP/2.0"
// (RFC 9113, section 3.4).
const prefaceType = 'P'

// servePlain is serve without TLS.
func (p *Mux) servePlain(conn net.Conn, first byte, leave func()) (handedOver bool) {
	switch {
	case first == prefaceType:
		leave()
		return p.serveXDS(conn, func(onClose func()) net.Conn {
			return &plainXDSConn{prefixedConn{Conn: conn, prefix: []byte{first}}, onClose}
		})
	case p.cfg.Admin != nil && (first == Admin || first == helloType): // Admin answers TLS clients that there is no TLS
		_ = conn.SetDeadline(time.Time{})
		leave()
		p.serveAdmin(conn, &prefixedConn{Conn: conn, prefix: []byte{first}}, "")
		return false
	}
	p.refuse(conn, reasonFirstByte, nil)
	return false
}

// serveXDS hands an xDS connection over to the listener of XDS. wrap returns it
// with what must happen when it is closed.
func (p *Mux) serveXDS(conn net.Conn, wrap func(onClose func()) net.Conn) (handedOver bool) {
	_ = conn.SetDeadline(time.Time{})
	closed := func() { p.proxies.Add(-1) }
	if p.proxies.Add(1) <= int64(p.cfg.MaxProxies) {
		p.setProtocol(conn, kindXDS, "")
		if p.xds.put(wrap(sync.OnceFunc(func() { p.untrack(conn); closed() }))) {
			return true
		}
	}
	closed()
	p.refuse(conn, reasonLimit, nil)
	return false
}

// serveAdmin runs Config.Admin for a connection.
func (p *Mux) serveAdmin(conn, whole net.Conn, node string) {
	if node == "" {
		defer p.clients.Add(-1)
		if p.clients.Add(1) > int64(p.cfg.MaxClients) {
			p.refuse(conn, reasonLimit, nil)
			return
		}
	}
	p.setProtocol(conn, kindAdmin, node)
	p.cfg.Admin(whole, node)
}

// dispatch dispatches a connection by the first byte inside TLS.
func (p *Mux) dispatch(conn net.Conn, secure *tls.Conn, first byte, node string) (handedOver bool) {
	switch {
	case first == Admin:
		p.serveAdmin(conn, &adminConn{Conn: secure, prefix: []byte{first}}, node)
		return false
	case first == Raft && node == "":
		p.refuse(conn, reasonNoCertificate, nil)
		return false
	case first == Raft:
		p.setProtocol(conn, kindRaft, node)
		stream := &RaftConn{Conn: secure, node: node, onClose: sync.OnceFunc(func() {
			p.untrack(conn)
			p.nodes.Add(-1)
		})}
		if !p.raft.put(stream) {
			p.refuse(conn, reasonLimit, nil)
			return false
		}
		return true
	default:
		p.refuse(conn, reasonFirstByte, nil)
		return false
	}
}

// handshake runs the TLS handshake. It holds one of MaxHandshakes slots while it
// computes, not while it waits for the peer.
func (p *Mux) handshake(conn net.Conn) (*tls.Conn, error) {
	t := &handshakeConn{Conn: conn, slots: p.handshakes}
	secure := tls.Server(t, p.cfg.TLS)
	err := secure.HandshakeContext(context.Background()) // bounded by the deadline of the socket
	t.release()
	t.done = true
	return secure, err
}

// handshakeConn is a connection that holds one of the slots except while it waits in
// Read. Only one goroutine may use it until it is open.
type handshakeConn struct {
	net.Conn
	slots   chan struct{}
	holding bool
	done    bool // the handshake is over: no slot is needed
}

func (t *handshakeConn) Read(b []byte) (int, error) {
	if t.done {
		return t.Conn.Read(b)
	}
	t.release()
	n, err := t.Conn.Read(b)
	t.slots <- struct{}{} // blocks only while others compute
	t.holding = true
	return n, err
}

func (t *handshakeConn) release() {
	if t.holding {
		<-t.slots
		t.holding = false
	}
}

// refuse counts a connection that is about to be closed, and logs it at most once
// per logInterval and source.
func (p *Mux) refuse(conn net.Conn, why reason, err error) {
	if errors.Is(err, net.ErrClosed) {
		return // closed by Close, or evicted and already counted as reasonEvicted
	}
	p.refused[why].Add(1)
	if why == reasonSilent && errors.Is(err, io.EOF) {
		return // a health probe, which connects and disconnects regularly
	}
	source := conn.RemoteAddr().String()
	if a := Source(conn.RemoteAddr()); a.IsValid() {
		source = a.String()
	}
	if !p.logLimit.allow(source, time.Now()) {
		return
	}
	args := []any{"peer", conn.RemoteAddr().String(), "reason", reasonNames[why]}
	if err != nil {
		args = append(args, "error", err)
	}
	p.cfg.Log.Warn("cluster port: connection refused", args...)
}

// logLimiter rate-limits log lines by key.
type logLimiter struct {
	mu     sync.Mutex
	lastAt map[string]time.Time
}

const (
	logInterval = time.Minute // interval between two lines about one source
	maxLogKeys  = 1024        // sources; above it, new ones are not logged until one expires
)

// allow reports whether a line about key may be logged now, and records it.
func (t *logLimiter) allow(key string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, known := t.lastAt[key]
	if known && now.Sub(at) < logInterval {
		return false
	}
	if !known && len(t.lastAt) >= maxLogKeys {
		for k, at := range t.lastAt {
			if now.Sub(at) >= logInterval {
				delete(t.lastAt, k)
			}
		}
		if len(t.lastAt) >= maxLogKeys {
			return false
		}
	}
	if t.lastAt == nil {
		t.lastAt = map[string]time.Time{}
	}
	t.lastAt[key] = now
	return true
}
