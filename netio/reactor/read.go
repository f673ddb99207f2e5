package reactor

import (
	"math"
	"syscall"

	"penstock/netio/stream"
)

// SetReading implements stream.Stream.
func (s *Socket) SetReading(on bool) {
	if !on {
		s.flags &^= reading
		return
	}
	if !s.isOpen() {
		return
	}
	s.flags |= reading
	if s.flags&readMask == readNow || s.errno != 0 {
		s.loop.enqueue(s)
	}
}

// pump moves what the kernel has: to the owner, or to dst. It stops when
// there is nothing more, when dst takes nothing more, when the owner does not
// want more, or when the budget is used; then it queues itself.
func (s *Socket) pump() {
	l, gen := s.loop, s.gen
	for budget := l.cfg.Budget; ; {
		if s.pipe != nil || s.bulk >= bulkAfter && s.pipes() && s.flags&readMask == readNow {
			n := s.pipeThrough(budget)
			budget -= n
			if n > 0 {
				if s.owner.Moved(n); s.gen != gen {
					return
				}
			}
		}
		if s.pipe != nil || s.flags&readMask != readNow || s.pipes() && !s.dst.takes() {
			return // dst queues this socket when it takes more
		}
		if budget <= 0 {
			l.enqueue(s)
			return
		}
		n, e := recv(s.fd, l.buf, 0)
		if n <= 0 {
			s.stopped(e)
			return
		}
		budget -= n
		if n == len(l.buf) {
			s.bulk = min(s.bulk+1, bulkAfter)
		} else {
			s.bulk = 0
			if s.flags&hungUp == 0 {
				s.flags &^= readable
			}
		}
		if s.flags&bounded != 0 {
			s.room -= min(s.room, uint32(n))
		}
		if s.owner.Received(l.buf[:n]); s.gen != gen {
			return
		}
	}
}

// stopped handles a read that brought nothing: no bytes for now, the end, or
// an error.
func (s *Socket) stopped(e syscall.Errno) {
	switch {
	case s.errno != 0:
		// Everything that was readable has been read. That the kernel now
		// says end, having told its error before, does not make it one.
		s.failWith(syscall.Errno(s.errno))
	case e == syscall.EAGAIN:
		// A hang-up stays readable for ever, so it was none.
		s.flags &^= readable
		if s.flags&unixSocket == 0 {
			s.flags &^= hungUp
		}
	case e != 0:
		s.failWith(e)
	default:
		s.flags |= ended
		s.owner.Ended()
	}
}

// takes tells whether bytes for s would not end up on the heap.
func (s *Socket) takes() bool {
	return s.flags&writable != 0 && s.out == nil || s.errno != 0
}

// PipeTo implements stream.Stream: dst must be a Socket of the same loop, not
// s itself, and open. While it holds, s reads only when dst has nothing
// pending and can take more. PipeTo(nil) ends it, after what is on its way.
func (s *Socket) PipeTo(dst stream.Stream) bool {
	d, ok := dst.(*Socket)
	if !ok || d == nil || d == s || d.loop != s.loop || !d.isOpen() || !s.isOpen() {
		if dst == nil && s.pipe == nil {
			s.unpipeTo()
		}
		return false
	}
	if s.dst == d {
		return true
	}
	if s.pipe != nil || d.src != nil {
		return false
	}
	s.unpipeTo()
	s.dst, d.src = d, s
	s.flags &^= bounded
	return true
}

// PipeUpTo is PipeTo for the next n bytes at most, of those that the owner has
// not been told of yet; what is told by Received counts as well. After them
// the socket goes on with Received alone. Each call replaces what is left of
// the one before; with 0 nothing more goes unseen but what is on its way.
func (s *Socket) PipeUpTo(dst *Socket, n int) bool {
	if n == 0 && s.dst == nil {
		return true
	}
	if s.dst != dst && !s.PipeTo(dst) {
		return false
	}
	gated := s.pipes()
	s.flags |= bounded
	s.room = uint32(min(max(n, 0), math.MaxUint32))
	if n >= bulkFrom*len(s.loop.buf) {
		s.bulk = bulkAfter // so much is worth a pipe from the first byte on
	}
	if gated && !s.pipes() && s.flags&readMask == readNow {
		s.loop.enqueue(s) // it may wait for dst, which is no reason now
	}
	return true
}

// pipes tells whether bytes may go to dst unseen now.
func (s *Socket) pipes() bool {
	return s.dst != nil && (s.flags&bounded == 0 || s.room > 0)
}
