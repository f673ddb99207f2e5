package replica

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// network connects servers in memory, for synctest bubbles, or by TCP on
// loopback. Links can be cut, one way or both.
type network struct {
	tcp       bool
	mu        sync.Mutex
	addrs     map[string]string         // running servers, by ID
	listeners map[string]*memoryStreams // the same, in memory
	cut       map[[2]string]bool
	conns     map[*link]struct{}
}

// newNetwork returns a TCP network.
func newNetwork() *network {
	return &network{
		tcp: true, addrs: map[string]string{}, listeners: map[string]*memoryStreams{},
		cut: map[[2]string]bool{}, conns: map[*link]struct{}{},
	}
}

// link is a connection from one server to another.
type link struct {
	net.Conn
	network  *network
	from, to string
}

func (l *link) Close() error {
	l.network.mu.Lock()
	delete(l.network.conns, l)
	l.network.mu.Unlock()
	return l.Conn.Close()
}

// isolate cuts the links between a server and others, or restores them.
func (n *network) isolate(id string, cut bool, others ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range others {
		n.cut[[2]string{id, other}], n.cut[[2]string{other, id}] = cut, cut
	}
	for l := range n.conns {
		if n.cut[[2]string{l.from, l.to}] {
			l.Conn.Close()
		}
	}
}

// testStreams is a server's end of a network. A connection begins with the
// dialer's ID and a newline.
type testStreams struct {
	net.Listener
	id      string
	network *network
}

func (n *network) listen(id string) (StreamLayer, error) {
	if !n.tcp {
		return n.listenInMemory(id), nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.addrs[id] = l.Addr().String()
	n.mu.Unlock()
	return &testStreams{Listener: l, id: id, network: n}, nil
}

func (s *testStreams) Close() error {
	s.network.mu.Lock()
	if s.network.addrs[s.id] == s.Addr().String() {
		delete(s.network.addrs, s.id)
	}
	s.network.mu.Unlock()
	return s.Listener.Close()
}

func (s *testStreams) Dial(id string, timeout time.Duration) (net.Conn, error) {
	s.network.mu.Lock()
	addr, cut := s.network.addrs[id], s.network.cut[[2]string{s.id, id}]
	s.network.mu.Unlock()
	if addr == "" || cut {
		return nil, fmt.Errorf("no route from %s to %s", s.id, id)
	}
	c, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(c, s.id); err != nil {
		return nil, err
	}
	return s.network.track(c, s.id, id)
}

func (s *testStreams) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, err := bufio.NewReaderSize(oneByte{c}, 16).ReadString('\n')
		if err != nil {
			c.Close()
			continue
		}
		if l, err := s.network.track(c, strings.TrimSpace(from), s.id); err == nil {
			return l, nil
		}
	}
}

// oneByte keeps a buffered reader from reading ahead.
type oneByte struct{ net.Conn }

func (o oneByte) Read(b []byte) (int, error) { return o.Conn.Read(b[:1]) }

func (n *network) track(c net.Conn, from, to string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut[[2]string{from, to}] {
		c.Close()
		return nil, fmt.Errorf("the link from %s to %s is cut", from, to)
	}
	l := &link{Conn: c, network: n, from: from, to: to}
	n.conns[l] = struct{}{}
	return l, nil
}
