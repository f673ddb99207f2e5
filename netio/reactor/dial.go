package reactor

import (
	"errors"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// TCPOptions are set when a socket is created. Accepted sockets inherit them
// from the listening one at no cost. TCP_NODELAY is always set.
type TCPOptions struct {
	// KeepAlive is the idle time before the first probe, and the interval
	// of probes; 0: no probes, which saves three calls.
	KeepAlive time.Duration
}

func (o *TCPOptions) set(fd int32) syscall.Errno {
	e := setInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	if e == 0 {
		e = setKeepAlive(fd, o.KeepAlive)
	}
	return e
}

// SetKeepAlive sets TCPOptions.KeepAlive later, on a socket that turns out to
// live long.
func (s *Socket) SetKeepAlive(d time.Duration) {
	if s.flags&(open|unixSocket) == open {
		_ = setKeepAlive(s.fd, d) // without it a dead peer is found later
	}
}

func setKeepAlive(fd int32, d time.Duration) (e syscall.Errno) {
	if d > 0 {
		secs := int32(max(d/time.Second, 1))
		for _, set := range [...]struct {
			level, opt int
			v          int32
		}{
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, secs},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, secs},
		} {
			if e == 0 {
				e = setInt(fd, set.level, set.opt, set.v)
			}
		}
	}
	return e
}

// Dial begins to connect, from an address and port that the system chooses;
// connections to different peers may share a port. The owner's Connected or
// Failed follows; Abort cancels the attempt. The only deadline is the
// system's, so arm a timer. Send, CloseWrite and SetReading may be called at
// once.
func (s *Socket) Dial(to netip.AddrPort, o TCPOptions) {
	var a sockaddr
	if err := a.setTCP(to); err != nil {
		s.dialFailed(syscall.EAFNOSUPPORT)
		return
	}
	fd, e := newSocket(int(a.family()))
	if e == 0 {
		s.fd = fd
		e = o.set(fd)
	}
	s.dial(&a, e, 0)
}

// DialUnix is Dial to a unix socket: a path, or "@name" for an abstract one.
// A listener whose queue is full makes it fail with EAGAIN.
func (s *Socket) DialUnix(path string) {
	var a sockaddr
	if err := a.setUnix(path); err != nil {
		s.dialFailed(syscall.EINVAL)
		return
	}
	fd, e := newSocket(syscall.AF_UNIX)
	if e == 0 {
		s.fd = fd
	}
	s.dial(&a, e, unixSocket|hungUp)
}

func (s *Socket) dial(a *sockaddr, e syscall.Errno, f flags) {
	if e == 0 {
		e = connect(s.fd, a)
	}
	if e != 0 && e != syscall.EINPROGRESS && e != syscall.EINTR {
		s.dialFailed(e)
		return
	}
	// Also when it is connected already the poller reports it, as nothing
	// may be told before this returns.
	s.flags = open | connecting | f
	s.register(s.fd)
}

// dialFailed has the owner told from the queue.
func (s *Socket) dialFailed(e syscall.Errno) {
	if s.fd >= 0 {
		closeFD(s.fd)
		s.fd = -1
	}
	s.flags = open | connecting
	s.broken(e)
}

// finishDial looks whether the socket is connected. A writable one without an
// error or a hang-up is: there is no other such state. Otherwise it must have
// a peer, and no error. It returns false when it is not connected.
func (s *Socket) finishDial(ev uint32) bool {
	if ev&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		e := socketError(s.fd)
		if e == 0 {
			var a sockaddr
			e = name(syscall.SYS_GETPEERNAME, s.fd, &a)
		}
		if e != 0 {
			s.failWith(e)
			return false
		}
	} else if ev&unix.EPOLLOUT == 0 {
		return false
	}
	s.flags = s.flags&^connecting | writable
	gen := s.gen
	if s.owner.Connected(); s.gen != gen {
		return true
	}
	s.resume()
	return true
}

// ListenTCP returns a listening socket with the options, which accepted
// sockets inherit, and the bound address, with the real port in place of port
// 0. An IPv6 wildcard accepts IPv4 as well.
func ListenTCP(at netip.AddrPort, o TCPOptions) (fd int, bound netip.AddrPort, err error) {
	var a sockaddr
	if err := a.setTCP(at); err != nil {
		return -1, bound, err
	}
	sock, e := newSocket(int(a.family()))
	if e != 0 {
		return -1, bound, e
	}
	if a.family() == syscall.AF_INET6 {
		only := int32(1)
		if at.Addr().IsUnspecified() {
			only = 0
		}
		e = setInt(sock, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, only)
	}
	if e == 0 {
		e = setInt(sock, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if e == 0 {
		e = o.set(sock)
	}
	if e == 0 {
		e = listen(sock, &a)
	}
	if e == 0 {
		e = name(syscall.SYS_GETSOCKNAME, sock, &a)
	}
	if e != 0 {
		closeFD(sock)
		return -1, bound, e
	}
	return int(sock), a.addrPort(), nil
}

// ListenUnix returns a listening unix socket: path must not exist, or is
// "@name" for an abstract socket.
func ListenUnix(path string) (fd int, err error) {
	var a sockaddr
	if err := a.setUnix(path); err != nil {
		return -1, err
	}
	sock, e := newSocket(syscall.AF_UNIX)
	if e != 0 {
		return -1, e
	}
	if e := listen(sock, &a); e != 0 {
		closeFD(sock)
		return -1, e
	}
	return int(sock), nil
}

// listen binds and listens with the longest queue that the system allows.
func listen(fd int32, a *sockaddr) syscall.Errno {
	if e := bind(fd, a); e != 0 {
		return e
	}
	var e syscall.Errno
	if err := unix.Listen(int(fd), 1<<16-1); err != nil {
		errors.As(err, &e)
	}
	return e
}
