package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Bounds of the streams that others open. Nobody has proven anything when the
// first bytes are read.
const (
	maxStreams     = 128      // at a time
	maxStreamsFrom = 16       // of these from one address
	maxStreamBytes = 8 << 20  // that one may bring
	maxUnread      = 32 << 20 // that all may have brought at a time
)

var (
	errTooMuch = errors.New("a gossip stream brings too much")
	errCut     = errors.New("cut")
)

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// transport is memberlist's own with bounds on what comes in, and with an end:
// Shutdown breaks off whatever is open, so that nothing waits for a timeout.
type transport struct {
	*memberlist.NetTransport
	port    int
	reach   func(addr string) bool // nil: all
	ctx     context.Context
	cancel  context.CancelFunc
	streams chan net.Conn
	pump    sync.WaitGroup
	drain   sync.WaitGroup
	stopped chan struct{}
	once    sync.Once // of stopped

	unread atomic.Int64 // bytes that open streams have brought
	sent   atomic.Int64 // bytes sent in packets and streams, with IP and UDP headers of packets

	mu    sync.Mutex
	open  map[*stream]struct{}
	from  map[string]int // streams that others opened, by IP address
	count int            // and in all
}

// listen binds UDP and TCP to the same port.
func listen(bind netip.AddrPort, logger *log.Logger, reach func(string) bool) (*transport, error) {
	var nt *memberlist.NetTransport
	var err error
	for range 10 { // a port that is free for TCP may be taken for UDP
		nt, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{bind.Addr().String()}, BindPort: int(bind.Port()), Logger: logger,
		})
		if err == nil || bind.Port() != 0 || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %v: %w", bind, err)
	}
	t := &transport{
		NetTransport: nt, port: nt.GetAutoBindPort(), reach: reach,
		streams: make(chan net.Conn), stopped: make(chan struct{}),
		open: map[*stream]struct{}{}, from: map[string]int{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.pump.Go(t.accept)
	return t, nil
}

// accept takes the streams that others open, as many as there may be.
func (t *transport) accept() {
	for {
		select {
		case c := <-t.NetTransport.StreamCh():
			s := t.admit(c)
			if s == nil {
				c.Close()
				continue
			}
			select {
			case t.streams <- s:
			case <-t.stopped:
				s.Close()
			}
		case <-t.stopped:
			return
		}
	}
}

func (t *transport) admit(c net.Conn) *stream {
	ip, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count >= maxStreams || t.from[ip] >= maxStreamsFrom || t.ctx.Err() != nil {
		return nil
	}
	t.count++
	t.from[ip]++
	s := &stream{Conn: c, t: t, from: ip}
	t.open[s] = struct{}{}
	return s
}

// StreamCh gives memberlist the streams that others opened.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo sends a packet.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress sends a packet.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if t.reach != nil && !t.reach(a.Addr) {
		return time.Now(), nil // lost
	}
	t.sent.Add(int64(len(b)) + 28)
	return t.NetTransport.WriteToAddress(b, a)
}

// DialTimeout opens a stream.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if t.reach != nil && !t.reach(a.Addr) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errCut}
	}
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(t.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	s := &stream{Conn: c, t: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		c.Close()
		return nil, net.ErrClosed
	}
	t.open[s] = struct{}{}
	// The label goes out before memberlist sets a deadline.
	return s, c.SetDeadline(time.Now().Add(timeout))
}

// Shutdown ends everything. memberlist still takes what the listeners hand
// over until it returns.
func (t *transport) Shutdown() error {
	t.cancel()
	err := t.NetTransport.Shutdown()
	t.once.Do(func() { close(t.stopped) })
	t.pump.Wait()
	t.mu.Lock()
	var open []*stream
	for s := range t.open {
		open = append(open, s)
	}
	t.mu.Unlock()
	for _, s := range open {
		s.Close()
	}
	return err
}

// end is Shutdown where memberlist never came to be: what the listeners hand
// over meanwhile is dropped.
func (t *transport) end() {
	done := make(chan struct{})
	t.drain.Go(func() {
		for {
			select {
			case <-t.PacketCh():
			case c := <-t.streams:
				c.Close()
			case <-done:
				return
			}
		}
	})
	_ = t.Shutdown()
	close(done)
	t.drain.Wait()
}

// stream is one connection, with a bound on what it brings.
type stream struct {
	net.Conn
	t    *transport
	from string // IP address of whoever opened it; "": this node did

	mu     sync.Mutex
	read   int64 // bytes
	closed bool
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return n, err
	}
	s.read += int64(n)
	if all := s.t.unread.Add(int64(n)); s.read > maxStreamBytes || all > maxUnread {
		return 0, errTooMuch
	}
	return n, err
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.t.sent.Add(int64(n))
	return n, err
}

// Close gives back what the stream held.
func (s *stream) Close() error {
	err := s.Conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return err
	}
	s.closed = true
	s.t.unread.Add(-s.read)
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	delete(s.t.open, s)
	if s.from != "" {
		s.t.count--
		if s.t.from[s.from]--; s.t.from[s.from] == 0 {
			delete(s.t.from, s.from)
		}
	}
	return err
}
