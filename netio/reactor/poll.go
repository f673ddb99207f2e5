package reactor

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller waits on epoll, and not through gnet's netpoll: that one reports
// descriptors, so that a late report may reach the next socket of the same
// number, calls back for single reports and has no turns, cannot wait for a
// timer, and makes a second call before each wait that blocks. ../DESIGN.md has
// the comparison and the figures, BenchmarkPollers an echo on either.
type poller struct {
	fd      int
	eventfd int
	events  [256]unix.EpollEvent
}

// Tokens in a report's Fd that are no socket.
const (
	tokenWake      = -1
	tokenListener0 = -2 // and below: listeners
)

func (p *poller) open() (err error) {
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create: %w", err)
	}
	if p.eventfd, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		_ = unix.Close(p.fd)
		return fmt.Errorf("eventfd: %w", err)
	}
	// Edge-triggered, so it has never to be read.
	if e := p.add(int32(p.eventfd), unix.EPOLLIN|unix.EPOLLET, tokenWake, 0); e != 0 {
		p.close()
		return fmt.Errorf("epoll_ctl: %w", e)
	}
	return nil
}

func (p *poller) close() {
	_ = unix.Close(p.fd)
	_ = unix.Close(p.eventfd)
}

// add registers a descriptor; its reports carry the token and the generation.
func (p *poller) add(fd int32, events uint32, token int32, gen uint32) syscall.Errno {
	ev := unix.EpollEvent{Events: events, Fd: token, Pad: int32(gen)}
	_, _, e := syscall.RawSyscall6(syscall.SYS_EPOLL_CTL, uintptr(p.fd), unix.EPOLL_CTL_ADD, uintptr(fd),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

func (p *poller) remove(fd int32) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_EPOLL_CTL, uintptr(p.fd), unix.EPOLL_CTL_DEL, uintptr(fd), 0, 0, 0)
}

func (p *poller) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(p.eventfd, one[:])
}

// wait returns the reports of one turn. A wait that does not block is a raw
// call. Any other tells the scheduler, because a raw call that blocks would
// hold up the garbage collector.
func (p *poller) wait(msec int) ([]unix.EpollEvent, error) {
	call := syscall.Syscall6
	if msec == 0 {
		call = syscall.RawSyscall6
	}
	n, _, e := call(syscall.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)),
		uintptr(len(p.events)), uintptr(msec), 0, 0)
	switch e {
	case 0:
		return p.events[:n], nil
	case syscall.EINTR:
		return nil, nil
	}
	return nil, fmt.Errorf("epoll_wait: %w", e)
}

// Run serves the loop until Close. It is the loop's goroutine.
func (l *Loop) Run() error {
	defer l.release()
	for !l.closed.Load() {
		events, err := l.poll.wait(l.sleep())
		if err != nil {
			return fmt.Errorf("reactor: %w", err)
		}
		l.asleep.Store(false)
		l.now = time.Since(epoch)
		for i := range events {
			l.report(&events[i])
		}
		if l.hasPosted.Load() {
			l.runPosted()
		}
		l.wheel.advance(int64(l.now)>>tickShift, l.fire)
		l.serveQueue()
	}
	return nil
}

// sleep returns the number of milliseconds to wait for reports: 0 while there
// is work, otherwise until the next timer, or -1 without one.
func (l *Loop) sleep() (msec int) {
	if l.ready.head != nil || l.tasks.head != nil {
		return 0
	}
	// From here on a Post writes to the eventfd; one before it is seen here.
	l.asleep.Store(true)
	if l.hasPosted.Load() || l.closed.Load() {
		return 0
	}
	tick, ok := l.wheel.next()
	if !ok {
		return -1
	}
	d := time.Duration(tick)<<tickShift - l.now
	return int(min(max(d+time.Millisecond-1, 0)/time.Millisecond, 1<<30))
}

// report passes a report to the socket or listener that it is for, if that
// still exists.
func (l *Loop) report(ev *unix.EpollEvent) {
	defer l.recovered()
	switch {
	case ev.Fd >= 0:
		if s := l.sockets[ev.Fd]; s != nil && s.gen == uint32(ev.Pad) {
			l.current = s
			s.event(ev.Events)
			l.current = nil
		}
	case ev.Fd <= tokenListener0:
		if ln := l.listeners[tokenListener0-ev.Fd]; ln != nil && ln.gen == uint32(ev.Pad) {
			ln.accept()
		}
	}
}
