package reactor

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An Acceptor receives the connections of a Listener. It is called on the
// listener's loop.
type Acceptor interface {
	// Accepted brings a connected descriptor, non-blocking and close-on-exec,
	// and the peer's address, which is invalid for a unix socket. The acceptor
	// owns the descriptor: it passes it to Socket.Adopt, on this loop or by
	// Post on another.
	Accepted(fd int, peer netip.AddrPort)
	// AcceptFailed reports that accepting pauses for that long, for lack of
	// descriptors or memory, while connections wait in the kernel's queue. If
	// rest is 0, accepting has ended: the listening socket is unusable.
	AcceptFailed(err error, rest time.Duration)
	// Room reports whether one more connection can be served now. While it
	// returns false, accepting pauses as it does without descriptors.
	Room() bool
}

// A Listener accepts from a listening socket on one loop. Several loops may
// each have a Listener for the same socket.
type Listener struct {
	loop   *Loop
	to     Acceptor
	fd     int32
	token  int32 // index in the loop's table
	gen    uint32
	burst  int // how many to accept in one turn without having seen the queue's end
	rest   time.Duration
	timer  Timer
	on     bool // in the poller
	closed bool
}

const (
	// maxAccepts bounds one turn; what is left makes the poller return again.
	maxAccepts = 64
	minRest    = 5 * time.Millisecond
	maxRest    = time.Second
)

// Listen begins to accept from a listening, non-blocking socket. The caller
// keeps the descriptor and closes it after Stop. Accepted may be called in any
// later turn.
func (l *Loop) Listen(fd int, to Acceptor) (*Listener, error) {
	ln := &Listener{loop: l, to: to, fd: int32(fd), gen: l.nextGen(), burst: 1}
	ln.timer.Init(ln)
	ln.token = int32(slices.Index(l.listeners, nil))
	if ln.token < 0 {
		ln.token = int32(len(l.listeners))
		l.listeners = append(l.listeners, nil)
	}
	if e := ln.start(); e != 0 {
		return nil, fmt.Errorf("listen on descriptor %d: %w", fd, e)
	}
	l.listeners[ln.token] = ln
	return ln, nil
}

func (ln *Listener) start() syscall.Errno {
	e := ln.loop.poll.add(ln.fd, unix.EPOLLIN, tokenListener0-ln.token, ln.gen)
	ln.on = e == 0
	return e
}

func (ln *Listener) pause() {
	if ln.on {
		ln.loop.poll.remove(ln.fd)
		ln.on = false
	}
}

// Stop ends accepting and removes the descriptor from the poller. It does not
// close it, and leaves the connections in its queue for another listener or
// for Drain.
func (ln *Listener) Stop() {
	if ln.closed {
		return
	}
	ln.closed = true
	ln.pause()
	ln.loop.Disarm(&ln.timer)
	ln.loop.listeners[ln.token] = nil
}

// Drain accepts all connections in the queue, also after Stop. It returns
// their number, and the error that stopped it, or nil if the queue is empty.
func (ln *Listener) Drain() (n int, err error) {
	for {
		switch e := ln.acceptOne(); {
		case e == 0:
			n++
		case e == syscall.EAGAIN:
			return n, nil
		case !retry(e):
			return n, e
		}
	}
}

// accept takes connections after the poller reported some. Where they come one
// at a time, trying for one more wastes a call; so accept tries only while
// they come faster than it takes them.
func (ln *Listener) accept() {
	for n := 0; n < ln.burst; n++ {
		if !ln.to.Room() {
			if n == 0 { // else nobody may be waiting: the poller will tell
				ln.failed(syscall.EMFILE)
			}
			return
		}
		switch e := ln.acceptOne(); {
		case ln.closed:
			return
		case e == 0:
			ln.rest = 0
		case e == syscall.EAGAIN:
			ln.burst = max(n, 1)
			return
		case retry(e):
		default:
			ln.failed(e)
			return
		}
	}
	ln.burst = min(2*ln.burst, maxAccepts)
}

func (ln *Listener) acceptOne() syscall.Errno {
	var a sockaddr
	fd, e := accept(ln.fd, &a)
	if e == 0 {
		ln.to.Accepted(int(fd), a.addrPort())
	}
	return e
}

// retry tells errors that concern the one connection that was to be accepted:
// Linux hands its pending network errors to accept.
func retry(e syscall.Errno) bool {
	switch e {
	case syscall.EINTR, syscall.ECONNABORTED, syscall.EPROTO, syscall.EPERM, syscall.ENETDOWN,
		syscall.ENOPROTOOPT, syscall.EHOSTDOWN, syscall.ENONET, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		return true
	}
	return false
}

// failed lets accepting rest where waiting can help, longer each time, and
// ends it where it cannot.
func (ln *Listener) failed(e syscall.Errno) {
	switch e {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC:
		ln.pause()
		ln.rest = min(max(2*ln.rest, minRest), maxRest)
		ln.loop.Arm(&ln.timer, ln.rest)
	default:
		ln.Stop()
		ln.rest = 0
	}
	ln.to.AcceptFailed(e, ln.rest)
}

// Expired resumes after a rest.
func (ln *Listener) Expired(*Timer) {
	if e := ln.start(); e != 0 {
		ln.failed(e)
	}
}
