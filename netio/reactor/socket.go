package reactor

import (
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"penstock/netio/stream"
)

// ErrPanic is the error that an owner's Failed gets after one of its callbacks
// panicked (see Config.OnPanic).
var ErrPanic = stream.ErrPanic

// A Socket is one stream socket on a loop. Embed it by value, so that several
// share one allocation. It must not be copied. After it was closed or aborted,
// or has failed, Init makes it usable again. Only the goroutine of its loop
// may call its methods. It implements stream.Stream.
type Socket struct {
	loop  *Loop
	owner stream.Owner
	next  *Socket // in the loop's queue
	out   *chunk  // tail of the ring of pending output, nil: none
	kept  int     // bytes in out
	pipe  *pipe   // bytes on their way from here to dst, nil: none
	dst   *Socket // where PipeTo leads
	src   *Socket // whose dst this is

	fd     int32
	token  int32  // where it is in the loop's table
	gen    uint32 // of this incarnation: a method sees after a callback, and the loop for a report, whether it is still the same
	flags  flags
	errno  uint16 // what killed the socket, not told yet as something is still readable
	bulk   uint8  // full reads in a row
	queued bool   // in the loop's queue
	room   uint32 // with bounded: bytes that may yet go to dst unseen
}

var _ stream.Stream = (*Socket)(nil)

type flags uint16

const (
	open       flags = 1 << iota // there is a descriptor
	connecting                   // dialed, not connected yet
	unixSocket                   // not TCP
	reading                      // the owner wants to be told of bytes
	readable                     // the kernel may have bytes, or an end, or an error
	writable                     // the kernel may take bytes
	hungUp                       // a short read does not mean that nothing is left
	ended                        // the peer's end was read
	spoke                        // something was sent
	wantSent                     // the owner was told of pending bytes
	closeWrite                   // the owner ends its direction
	shut                         // and the kernel was told
	dying                        // there is an errno, and a wake
	bounded                      // room counts
)

// readNow is what makes reading possible, of readMask.
const (
	readNow  = open | reading | readable
	readMask = readNow | ended | connecting
)

// Init sets the socket's loop and owner.
func (s *Socket) Init(l *Loop, o stream.Owner) {
	if s.isOpen() {
		s.reset()
	}
	*s = Socket{loop: l, owner: o, fd: -1, gen: l.nextGen(), next: s.next, queued: s.queued}
}

// SetOwner replaces the owner, for example by a layer on top of the socket.
// The new owner gets all later events.
func (s *Socket) SetOwner(o stream.Owner) { s.owner = o }

// Loop returns the loop of the socket.
func (s *Socket) Loop() *Loop { return s.loop }

// Adopt takes over a connected descriptor, which must be non-blocking and
// close-on-exec. peer is the address from accept; an invalid one means a unix
// socket. If registering the descriptor fails, the owner's Failed follows.
func (s *Socket) Adopt(fd int, peer netip.AddrPort) {
	s.flags = open | writable
	if !peer.IsValid() {
		s.flags |= unixSocket | hungUp
	}
	s.register(int32(fd))
}

func (s *Socket) isOpen() bool { return s.flags&open != 0 }

// register enters the socket into the loop's table and into the poller.
func (s *Socket) register(fd int32) {
	l := s.loop
	s.fd = fd
	l.enter(s)
	const events = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET
	if e := l.poll.add(fd, events, s.token, s.gen); e != 0 {
		s.broken(e)
	}
}

// enter gives the socket a token.
func (l *Loop) enter(s *Socket) {
	n := len(l.free)
	if n == 0 {
		s.token = int32(len(l.sockets))
		l.sockets = append(l.sockets, s)
		return
	}
	s.token, l.free = l.free[n-1], l.free[:n-1]
	l.sockets[s.token] = s
}

// leave gives the token back.
func (l *Loop) leave(s *Socket) {
	l.sockets[s.token] = nil
	l.free = append(l.free, s.token)
}

// nextGen returns the next generation. It repeats after four billion sockets
// and listeners of the loop.
func (l *Loop) nextGen() uint32 {
	l.gen++
	return l.gen
}

// event is called with what the poller reports.
func (s *Socket) event(ev uint32) {
	const hup = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | unix.EPOLLPRI
	if s.flags&connecting != 0 {
		if gen := s.gen; !s.finishDial(ev) || s.gen != gen {
			return
		}
	}
	if ev&(unix.EPOLLIN|hup) != 0 {
		s.flags |= readable
		if ev&hup != 0 {
			s.flags |= hungUp
		}
	}
	if ev&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 && s.flags&writable == 0 && s.errno == 0 {
		s.flags |= writable
		gen := s.gen
		if s.resume(); s.gen != gen {
			return
		}
	}
	gen := s.gen
	if s.flags&readMask == readNow {
		s.pump()
	}
	if ev&unix.EPOLLERR != 0 && s.gen == gen {
		s.checkError()
	}
}

// resume goes on with what waited for the socket to be writable.
func (s *Socket) resume() {
	if s.src != nil {
		s.loop.enqueue(s.src)
	}
	if s.out != nil || s.flags&(closeWrite|shut|wantSent) != 0 {
		s.flush()
	}
}

// visit is the socket's turn in the loop's queue.
func (s *Socket) visit() {
	if !s.isOpen() {
		return
	}
	if s.errno != 0 {
		s.die()
		return
	}
	if s.flags&connecting != 0 {
		return
	}
	if s.flags&writable != 0 && (s.out != nil || s.flags&(closeWrite|shut) == closeWrite) {
		gen := s.gen
		if s.flush(); s.gen != gen {
			return
		}
	}
	if s.pipe != nil || s.flags&readMask == readNow {
		s.pump()
	}
}

// checkError looks, where reading did not do so, whether an error that the
// poller reported means that the socket is dead.
func (s *Socket) checkError() {
	if e := socketError(s.fd); e != 0 {
		s.broken(e)
	}
}

// broken notes an error that ends the socket. The owner is told later, from
// the queue: first comes what is still readable. What is sent meanwhile is
// thrown away and counts as done; to hold it back could make two broken
// sockets wait for each other.
func (s *Socket) broken(e syscall.Errno) {
	if s.errno == 0 {
		s.errno = uint16(e)
	}
	s.flags &^= writable
	s.dropPending()
	s.loop.enqueue(s)
	if s.src != nil {
		s.loop.enqueue(s.src)
	}
}

// die tells the owner of the noted error, once nothing is left to be told
// before it: a peer that answers and then resets, because it refuses the rest
// of the request, must be heard first. While the owner does not read, or dst
// takes nothing, that may take until it does, but see wake.
func (s *Socket) die() {
	gen := s.gen
	if s.flags&(wantSent|connecting) == wantSent {
		s.flags &^= wantSent
		if s.owner.Sent(); s.gen != gen {
			return
		}
	}
	if s.flags&(connecting|ended) == 0 {
		// Where it is read, that ends in an end or in nothing more, and then
		// failWith is called.
		s.flags |= readable | hungUp
		if s.pump(); s.gen != gen {
			return
		}
		if left := s.untold(); left > 0 {
			s.watch(left)
			return
		}
	}
	s.failWith(syscall.Errno(s.errno))
}

// untold is how many bytes came from the peer and have not gone on.
func (s *Socket) untold() int {
	n := unread(s.fd)
	if s.pipe != nil {
		n += s.pipe.n
	}
	return n
}

// wake watches a dead socket whose owner has not read everything yet. Bytes
// sent to that socket are discarded, so this must end: if the owner reads
// nothing for CloseTimeout, the rest is lost.
type wake struct {
	s     *Socket
	gen   uint32
	left  int // untold at the last look
	timer Timer
}

func (s *Socket) watch(left int) {
	if s.flags&dying != 0 {
		return
	}
	s.flags |= dying
	w := &wake{s: s, gen: s.gen, left: left}
	w.timer.Init(w)
	s.loop.Arm(&w.timer, s.loop.cfg.CloseTimeout)
}

// Expired checks whether the owner has read something since the last look.
func (w *wake) Expired(*Timer) {
	s := w.s
	if s.gen != w.gen {
		return
	}
	if left := s.untold(); left < w.left {
		w.left = left
		s.loop.Arm(&w.timer, s.loop.cfg.CloseTimeout)
		return
	}
	s.failWith(syscall.Errno(s.errno))
}

// Unsent returns the number of bytes in the kernel's send queue. It asks the
// kernel.
func (s *Socket) Unsent() int {
	if !s.isOpen() {
		return 0
	}
	return queued(s.fd, unix.SIOCOUTQ)
}

// Unread returns the number of bytes that the peer has sent and that were not read
// yet. It asks the kernel.
func (s *Socket) Unread() int {
	if !s.isOpen() {
		return 0
	}
	return queued(s.fd, unix.SIOCINQ)
}

// Settled reports whether nothing is known to be under way: no bytes are
// pending, in a pipe, or readable and not read yet.
func (s *Socket) Settled() bool {
	return s.out == nil && s.pipe == nil && s.errno == 0 && s.flags&readMask != readNow
}

// Readable reports whether the peer is known to have sent bytes, or its end,
// that were not read yet.
func (s *Socket) Readable() bool { return s.flags&readable != 0 }

func (s *Socket) failWith(e syscall.Errno) {
	switch e {
	case syscall.ECONNRESET:
		s.fail(stream.ErrReset)
	case syscall.EPIPE:
		s.fail(fmt.Errorf("%w (%w)", stream.ErrReset, e))
	default:
		s.fail(e)
	}
}

// fail closes the socket and tells its owner, which may use it anew at once.
func (s *Socket) fail(err error) {
	o := s.owner
	s.reset()
	o.Failed(err)
}

// reset closes the socket so that the peer sees RST.
func (s *Socket) reset() {
	// Also while connecting: the peer may have taken the connection already.
	if s.fd >= 0 && s.flags&unixSocket == 0 {
		resetOnClose(s.fd)
	}
	s.close()
}

// close closes the descriptor and lets go of everything else.
func (s *Socket) close() {
	l, fd := s.loop, s.fd
	s.dropPending()
	s.unpipe()
	s.vacate()
	if fd >= 0 {
		l.leave(s)
		closeFD(fd)
	}
}

// vacate leaves the socket without a descriptor.
func (s *Socket) vacate() {
	s.fd, s.flags, s.errno = -1, 0, 0
	s.out, s.kept = nil, 0
	s.gen = s.loop.nextGen()
}

// Abort implements stream.Stream.
func (s *Socket) Abort() {
	if s.isOpen() {
		s.reset()
	}
}

// LocalAddr returns the address of this end, invalid for unix sockets and
// closed ones. It asks the kernel.
func (s *Socket) LocalAddr() netip.AddrPort { return s.addr(syscall.SYS_GETSOCKNAME) }

// PeerAddr returns the address of the other end, invalid for unix sockets,
// closed ones, and when the peer is gone. It asks the kernel.
func (s *Socket) PeerAddr() netip.AddrPort { return s.addr(syscall.SYS_GETPEERNAME) }

func (s *Socket) addr(call uintptr) netip.AddrPort {
	var a sockaddr
	if !s.isOpen() || name(call, s.fd, &a) != 0 {
		return netip.AddrPort{}
	}
	return a.addrPort()
}
