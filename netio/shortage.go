package netio

import (
	"time"

	"golang.org/x/sys/unix"
)

// shortageLasts is how long after accepting has rested last the engine counts as
// exhausted: whoever asks is a balancer, and must not see it come and go.
const shortageLasts = 5 * time.Second

// Exhausted reports whether new connections have to wait for descriptors or
// for kernel memory. It stays true until accepting has not paused for 5 s, a
// descriptor is available, and a twentieth of the capacity for connections is
// free.
func (e *Engine) Exhausted() bool {
	open, last := e.connections(), e.rested.Load()
	switch {
	case open >= e.files:
		e.rested.Store(time.Now().UnixNano())
		return true
	case last == 0:
		return false
	case time.Since(time.Unix(0, last)) < e.restLasts || open > e.files-e.files/20:
		return true
	case !descriptorLeft():
		e.rested.CompareAndSwap(last, time.Now().UnixNano())
		return true
	}
	return !e.rested.CompareAndSwap(last, 0) // it has rested meanwhile
}

// descriptorLeft tells whether the process can get one.
func descriptorLeft() bool {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// connections are those that are open on all loops.
func (e *Engine) connections() (n int64) {
	for _, l := range e.loops {
		n += l.open.Load()
	}
	return n
}
