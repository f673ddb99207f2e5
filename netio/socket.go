package netio

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"penstock/netio/reactor"
)

// socket is one listening socket. Which listener it works for may change.
type socket struct {
	key      string // network and address as the specification gives them
	bound    string // the address as bound
	fd       int
	local    netip.AddrPort // invalid for unix sockets
	wildcard bool           // local is no address that a client could have used
	path     string         // of a unix socket in the file system
	file     os.FileInfo    // what was at path when it was bound

	loop  *loop
	owner atomic.Pointer[listener]

	closed chan struct{} // closed when the socket is

	// The loop's own.
	ln      *reactor.Listener
	timer   reactor.Timer // until the end of the grace, when retired
	retired bool
	tries   int // of draining the queue
}

const (
	// retireGrace is how long a socket that takes no new connections still
	// waits for those whose handshake has begun: a round trip, generously.
	retireGrace = 250 * time.Millisecond
	// drainPause and maxDrains bound how long a queue is kept that cannot be
	// drained for want of descriptors.
	drainPause = 50 * time.Millisecond
	maxDrains  = 200
)

// bindKey names what a listener wants to be bound to. Port 0 is a different
// port for everyone who asks.
func bindKey(spec *Listener) string {
	if spec.Network == "tcp" && strings.HasSuffix(spec.Address, ":0") {
		return "tcp " + spec.Address + " " + spec.Name
	}
	return spec.Network + " " + spec.Address
}

// bind makes a listening socket.
func bind(spec *Listener, o reactor.TCPOptions) (*socket, error) {
	s := &socket{key: bindKey(spec), closed: make(chan struct{})}
	var err error
	switch spec.Network {
	case "tcp":
		err = s.bindTCP(spec.Address, o)
	case "unix":
		err = s.bindUnix(spec.Address)
	default:
		err = fmt.Errorf("network %q: neither tcp nor unix", spec.Network)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", spec.Address, err)
	}
	return s, nil
}

func (s *socket) bindTCP(address string, o reactor.TCPOptions) error {
	at, err := parseAddress(address)
	if err != nil {
		return err
	}
	s.fd, s.local, err = reactor.ListenTCP(at, o)
	if isErrno(err, syscall.EAFNOSUPPORT, syscall.EADDRNOTAVAIL) && strings.HasPrefix(address, ":") {
		// No IPv6 here: all addresses are all IPv4 addresses.
		s.fd, s.local, err = reactor.ListenTCP(netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), o)
	}
	if err != nil {
		return err
	}
	s.bound = s.local.String()
	s.wildcard = at.Addr().IsUnspecified()
	return nil
}

// parseAddress takes host:port, where host is an IP address, or empty for all
// addresses of both families.
func parseAddress(address string) (netip.AddrPort, error) {
	if strings.HasPrefix(address, ":") {
		address = "[::]" + address
	}
	return netip.ParseAddrPort(address)
}

func (s *socket) bindUnix(path string) (err error) {
	s.bound = path
	s.fd, err = reactor.ListenUnix(path)
	if strings.HasPrefix(path, "@") {
		return err
	}
	if errors.Is(err, syscall.EADDRINUSE) && isStale(path) {
		// One that is gone by now was removed by the socket that it belonged to.
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.fd, err = reactor.ListenUnix(path)
	}
	if err != nil {
		return err
	}
	s.path = path
	s.file, err = os.Lstat(path)
	if err != nil {
		_ = unix.Close(s.fd)
	}
	return err
}

// isStale tells that a path is a unix socket which nobody listens on: what a
// process leaves behind that did not end in order.
func isStale(path string) bool {
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
		return false
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return errors.Is(unix.Connect(fd, &unix.SockaddrUnix{Name: path}), syscall.ECONNREFUSED)
}

// removeFile removes the socket from the file system, unless what is there
// now is someone else's.
func (s *socket) removeFile() {
	if s.path == "" {
		return
	}
	if info, err := os.Lstat(s.path); err == nil && os.SameFile(info, s.file) {
		_ = os.Remove(s.path)
	}
	s.path = ""
}

// inTheWay tells that the address cannot be bound while s is open: it is the
// same, or one of the two is a wildcard for the port.
func (s *socket) inTheWay(spec *Listener) bool {
	if spec.Network == "unix" || !s.local.IsValid() {
		return spec.Network == "unix" && s.bound == spec.Address
	}
	at, err := parseAddress(spec.Address)
	if err != nil || at.Port() != s.local.Port() {
		return false
	}
	a, b := at.Addr().Unmap().WithZone(""), s.local.Addr().WithZone("")
	return a == b || a.IsUnspecified() || b.IsUnspecified()
}

// open begins to accept. It is called on the socket's loop.
func (s *socket) open() {
	s.loop.sockets[s] = struct{}{}
	s.timer.Init(s)
	ln, err := s.loop.Listen(s.fd, s)
	if err != nil {
		s.AcceptFailed(err, 0)
		return
	}
	s.ln = ln
}

// refuseNew makes the kernel turn away new connections and keep those that it
// has. What close does to a queue, a reset for everyone in it, must happen to
// an empty one only (rule 11); but between a last accept that finds it empty
// and close there is always a moment in which one more can come in.
//
// For TCP a filter closes that gap: it drops segments that open a connection,
// and nothing else. Handshakes under way are completed; whoever comes now
// repeats its SYN after a second and finds nobody, or the successor, on that
// address. (shutdown would reset the queue, as close does.) For unix sockets
// shutdown is right: connecting fails from then on, and the queue stays.
func (s *socket) refuseNew() error {
	if !s.local.IsValid() {
		s.removeFile()
		return unix.Shutdown(s.fd, unix.SHUT_RD)
	}
	const flagsAt, syn, ack = 13, 0x02, 0x10
	program := [...]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flagsAt},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	return unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// retire ends the socket without losing a connection. It is called on the
// socket's loop, and may be called again: one that is in the way of its
// successor gets no grace.
func (s *socket) retire(grace bool) {
	if s.fd < 0 {
		return
	}
	s.retired = true
	err := s.refuseNew()
	if err == nil && grace && s.local.IsValid() {
		s.loop.Arm(&s.timer, retireGrace)
		return
	}
	s.drain()
}

// Expired implements reactor.Expirer.
func (s *socket) Expired(*reactor.Timer) { s.drain() }

// drain accepts what is left in the queue, and closes the socket.
func (s *socket) drain() {
	if s.ln != nil {
		s.ln.Stop()
		_, err := s.ln.Drain()
		if s.tries++; isErrno(err, syscall.EMFILE, syscall.ENFILE) && s.tries < maxDrains {
			s.loop.Arm(&s.timer, drainPause)
			return
		}
	}
	s.close()
}

// close closes the socket at once. It may be called again.
func (s *socket) close() {
	if s.fd < 0 {
		return
	}
	if s.ln != nil {
		s.ln.Stop()
	}
	s.loop.Disarm(&s.timer)
	s.removeFile()
	_ = unix.Close(s.fd)
	s.fd = -1
	delete(s.loop.sockets, s)
	close(s.closed)
}
