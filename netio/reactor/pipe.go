package reactor

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// bulkAfter is how many full reads in a row move a direction to splice(2).
	bulkAfter = 3
	// bulkFrom is how many read buffers must be announced to do so at once.
	bulkFrom = 4
)

// pipe carries bytes from one socket to another inside the kernel. It belongs
// to a socket only while it holds bytes.
type pipe struct {
	next *pipe // in the pool
	r, w int32
	n    int // bytes inside
}

// pipePool keeps empty pipes of a loop.
type pipePool struct {
	free *pipe
	size int // capacity to ask for
	left int // how many more may be made
}

func (p *pipePool) init(limit, size int) { p.left, p.size = max(limit, 0), size }

// get returns nil when there is none to be had; the caller copies then.
func (p *pipePool) get() *pipe {
	if c := p.free; c != nil {
		p.free, c.next = c.next, nil
		return c
	}
	if p.left == 0 {
		return nil
	}
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC) != nil {
		return nil // out of descriptors, for now
	}
	c := &pipe{r: int32(fds[0]), w: int32(fds[1])}
	// Near the user's limit of pipe pages this fails, and a pipe of the usual
	// 64 KiB has to do. Beyond the limit pipes are made with two pages only:
	// then copying is cheaper.
	if _, err := unix.FcntlInt(uintptr(c.w), unix.F_SETPIPE_SZ, p.size); err != nil {
		if n, err := unix.FcntlInt(uintptr(c.w), unix.F_GETPIPE_SZ, 0); err != nil || n < min(p.size, 64<<10) {
			closeFD(c.r)
			closeFD(c.w)
			return nil
		}
	}
	p.left--
	return c
}

// put takes a pipe back; one that still holds bytes is of no use to others.
func (p *pipePool) put(c *pipe) {
	if c.n > 0 {
		closeFD(c.r)
		closeFD(c.w)
		p.left++
		return
	}
	p.free, c.next = c, p.free
}

func (p *pipePool) close() {
	for c := p.free; c != nil; c = c.next {
		closeFD(c.r)
		closeFD(c.w)
	}
	p.free, p.left = nil, 0
}

// pipeThrough moves bytes to dst through a pipe, up to about the budget. It
// keeps the pipe only if bytes are left in it that dst did not take.
func (s *Socket) pipeThrough(budget int) (moved int) {
	l, d := s.loop, s.dst
	if s.pipe == nil {
		if d == nil || d.errno != 0 || !d.takes() {
			return 0
		}
		if s.pipe = l.pipes.get(); s.pipe == nil {
			s.bulk = 0
			return 0
		}
	}
	for {
		if s.pipe.n > 0 {
			n := s.drainPipe()
			moved += n
			if s.pipe == nil || s.pipe.n > 0 {
				return moved
			}
		}
		if moved >= budget || !s.pipes() || s.flags&readMask != readNow || d.errno != 0 || !d.takes() {
			break
		}
		if !s.fillPipe() {
			// A source that had much to give goes on in this way when it has
			// more; one that had little is better served by reading.
			if moved < len(l.buf) {
				s.bulk = 0
			}
			break
		}
	}
	l.pipes.put(s.pipe)
	s.pipe = nil
	if d.out != nil || d.flags&(closeWrite|shut) == closeWrite {
		l.enqueue(d) // what waited behind the pipe
	}
	return moved
}

// drainPipe moves bytes from the pipe to dst.
func (s *Socket) drainPipe() (moved int) {
	p, d := s.pipe, s.dst
	for p.n > 0 && d.flags&writable != 0 {
		n, e := splice(p.r, d.fd, p.n)
		switch {
		case e == syscall.EAGAIN:
			d.flags &^= writable
		case e != 0:
			// The rest has nowhere to go; dst's owner will hear why.
			d.broken(e)
			s.dropPipe()
			return moved
		default:
			p.n -= n
			moved += n
			d.flags |= spoke
		}
	}
	return moved
}

// fillPipe moves bytes from the socket to the empty pipe. It returns false
// when there are none for now, and leaves it to a read to tell an end from an
// error.
func (s *Socket) fillPipe() bool {
	size := s.loop.pipes.size
	if s.flags&bounded != 0 {
		size = min(size, int(s.room))
	}
	n, e := splice(s.fd, s.pipe.w, size)
	s.pipe.n = n
	if n > 0 {
		if s.flags&bounded != 0 {
			s.room -= uint32(n)
		}
		return true
	}
	switch {
	case e == syscall.EAGAIN && s.flags&hungUp == 0:
		s.flags &^= readable
	case e != 0 && e != syscall.EAGAIN:
		s.errno = uint16(e) // the kernel tells it once only
	}
	return false
}

// dropPipe loses what is in the pipe.
func (s *Socket) dropPipe() {
	if s.pipe != nil {
		s.loop.pipes.put(s.pipe)
		s.pipe = nil
	}
}

// unpipeTo ends the direction from s to its dst.
func (s *Socket) unpipeTo() {
	if d := s.dst; d != nil {
		s.dropPipe()
		s.dst, d.src = nil, nil
		if d.isOpen() && (d.out != nil || d.flags&(closeWrite|shut) == closeWrite) {
			s.loop.enqueue(d)
		}
	}
}

// Piping reports whether bytes from s are on their way to where PipeTo leads.
func (s *Socket) Piping() bool { return s.pipe != nil }

// unpipe takes s out of both directions.
func (s *Socket) unpipe() {
	s.unpipeTo()
	if s.src != nil {
		s.src.unpipeTo()
	}
}
