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

// Limits of inbound streams. Their peers are not authenticated when the first
// bytes are read.
const (
	maxStreams     = 128      // at a time
	maxStreamsFrom = 16       // at a time from one IP address
	maxStreamBytes = 8 << 20  // received on one
	maxReceived    = 32 << 20 // received on all open ones
)

var (
	errTooMuch = errors.New("too many bytes on gossip streams")
	errCut     = errors.New("cut")
)

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// transport is memberlist's NetTransport with limits on inbound data. Shutdown
// also closes open streams, so that nothing waits for a timeout.
type transport struct {
	*memberlist.NetTransport
	port    int
	reach   func(addr string) bool // nil: all are reachable
	ctx     context.Context
	cancel  context.CancelFunc
	streams chan net.Conn
	pump    sync.WaitGroup
	drain   sync.WaitGroup
	stopped chan struct{}
	once    sync.Once // for stopped

	received atomic.Int64 // bytes received on open streams
	sent     atomic.Int64 // bytes sent, including the IP and UDP headers of packets

	mu    sync.Mutex
	open  map[*stream]struct{}
	from  map[string]int // inbound streams by IP address
	count int            // all inbound streams
}

// listen binds UDP and TCP to the same port.
func listen(bind netip.AddrPort, logger *log.Logger, reach func(string) bool) (*transport, error) {
	var nt *memberlist.NetTransport
	var err error
	for range 10 { // a port free for TCP may be taken for UDP
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

// accept forwards inbound streams within the limits.
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

// StreamCh implements memberlist.Transport, with the admitted inbound streams.
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
	// memberlist sends the label before it sets a deadline.
	return s, c.SetDeadline(time.Now().Add(timeout))
}

// Shutdown closes everything. Until NetTransport.Shutdown returns, memberlist
// receives what the listeners hand over.
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

// abort is Shutdown before memberlist runs: it drops what the listeners hand
// over meanwhile.
func (t *transport) abort() {
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

// stream is one connection with a limit on the bytes received.
type stream struct {
	net.Conn
	t    *transport
	from string // IP address of an inbound stream; "": outbound

	mu       sync.Mutex
	received int64 // bytes
	closed   bool
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return n, err
	}
	s.received += int64(n)
	if all := s.t.received.Add(int64(n)); s.received > maxStreamBytes || all > maxReceived {
		return 0, errTooMuch
	}
	return n, err
}

func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.t.sent.Add(int64(n))
	return n, err
}

// Close releases the stream's share of the limits.
func (s *stream) Close() error {
	err := s.Conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return err
	}
	s.closed = true
	s.t.received.Add(-s.received)
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
