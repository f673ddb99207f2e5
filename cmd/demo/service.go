package demo

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// service answers each line with its own name and that line. It can stop and
// restart at the same address.
type service struct {
	name string
	addr string // fixed once newService returns

	mu   sync.Mutex
	l    *net.TCPListener // nil while stopped
	open map[net.Conn]struct{}
	wg   sync.WaitGroup
}

func newService(name string) (*service, error) {
	s := &service{name: name, addr: "127.0.0.1:0", open: map[net.Conn]struct{}{}}
	if err := s.start(); err != nil {
		return nil, err
	}
	s.addr = s.l.Addr().String()
	return s, nil
}

// start starts to listen.
func (s *service) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.l != nil {
		return nil
	}
	l, err := listenPlain(s.addr)
	if err != nil {
		return err
	}
	s.l = l
	s.wg.Go(func() { s.accept(l) })
	return nil
}

func listenPlain(addr string) (*net.TCPListener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // MPTCP sockets take no filter, see die
	made, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	l, ok := made.(*net.TCPListener)
	if !ok {
		return nil, errors.New("not a TCP listener")
	}
	return l, nil
}

// stop stops accepting new connections; established ones continue. Closing the
// listening socket alone would reset the connections in its queue, which no
// node could have prevented. So a filter first drops new packets, and then the
// queue is served until it is empty.
func (s *service) stop() error {
	s.mu.Lock()
	l := s.l
	s.l = nil
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	err := dropNew(l)
	return errors.Join(err, l.SetDeadline(time.Now().Add(50*time.Millisecond)))
}

// dropNew attaches a one-instruction filter that drops every packet.
func dropNew(l *net.TCPListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	refuse := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	program := unix.SockFprog{Len: 1, Filter: &refuse[0]}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	}); err != nil {
		return err
	}
	return set
}

func (s *service) close() {
	s.mu.Lock()
	if s.l != nil {
		s.l.Close()
		s.l = nil
	}
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *service) accept(l *net.TCPListener) {
	defer l.Close()
	for {
		c, err := l.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c, err = acceptQueued(l)
		}
		if errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors
			continue
		}
		s.mu.Lock()
		s.open[c] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() {
			s.serve(c)
			s.mu.Lock()
			delete(s.open, c)
			s.mu.Unlock()
		})
	}
}

// acceptQueued accepts a waiting connection, or returns EAGAIN. Accept does not
// try once its deadline has passed.
func acceptQueued(l *net.TCPListener) (net.Conn, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	if e := raw.Control(func(listener uintptr) {
		fd, _, err = unix.Accept4(int(listener), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	}); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, os.NewSyscallError("accept", err)
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	return net.FileConn(f)
}

func (s *service) serve(c net.Conn) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if _, err := c.Write([]byte(s.name + ": " + lines.Text() + "\n")); err != nil {
			return
		}
	}
}
