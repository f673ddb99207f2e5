package replica

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// memoryStreams is a server's end of an in-memory network.
type memoryStreams struct {
	id       string
	network  *network
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (n *network) listenInMemory(id string) *memoryStreams {
	s := &memoryStreams{id: id, network: n, incoming: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[id] = s
	return s
}

// Network and String implement net.Addr; the address is the ID.
func (s *memoryStreams) Network() string { return "memory" }
func (s *memoryStreams) String() string  { return s.id }
func (s *memoryStreams) Addr() net.Addr  { return s }

func (s *memoryStreams) Close() error {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if s.network.listeners[s.id] == s {
		delete(s.network.listeners, s.id)
	}
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *memoryStreams) Dial(id string, timeout time.Duration) (net.Conn, error) {
	s.network.mu.Lock()
	door := s.network.listeners[id]
	s.network.mu.Unlock()
	if door == nil {
		return nil, fmt.Errorf("no route from %s to %s", s.id, id)
	}
	here, there := net.Pipe()
	dialled, err := s.network.track(here, s.id, id)
	if err != nil {
		return nil, err
	}
	accepted, err := s.network.track(there, s.id, id)
	if err != nil {
		dialled.Close()
		return nil, err
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case door.incoming <- accepted:
		return dialled, nil
	case <-door.closed:
		err = net.ErrClosed
	case <-late.C:
		err = fmt.Errorf("%s does not accept", id)
	}
	dialled.Close()
	accepted.Close()
	return nil, err
}

func (s *memoryStreams) Accept() (net.Conn, error) {
	select {
	case conn := <-s.incoming:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}
