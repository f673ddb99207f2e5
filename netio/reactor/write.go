package reactor

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Send implements stream.Stream.
func (s *Socket) Send(p []byte) (pending int) { return s.send(p, 0) }

// SendMore is Send for a few bytes that another Send in the same callback
// follows: the kernel waits for it, so that everything leaves as one segment
// and the peer wakes up once.
func (s *Socket) SendMore(p []byte) (pending int) { return s.send(p, unix.MSG_MORE) }

// SetCork holds back what is sent next until it is a full segment, SetCork(false) is
// called or the end is sent: the end then leaves in the segment of the bytes before
// it. On a unix socket it does nothing.
func (s *Socket) SetCork(on bool) {
	if s.flags&(open|unixSocket) != open {
		return
	}
	v := int32(0)
	if on {
		v = 1
	}
	_ = setInt(s.fd, unix.IPPROTO_TCP, unix.TCP_CORK, v) // without it there are two segments
}

func (s *Socket) send(p []byte, flags uintptr) (pending int) {
	if len(p) == 0 || s.flags&(open|shut|closeWrite) != open || s.errno != 0 {
		return s.kept // of a dead one nothing: the owner will hear
	}
	s.flags |= spoke
	if s.flags&writable != 0 && s.out == nil && (s.src == nil || s.src.pipe == nil) {
		n, e := send(s.fd, p, flags)
		if n == len(p) {
			return 0
		}
		// Less than all means as much as there was room for.
		s.flags &^= writable
		if e != 0 && e != syscall.EAGAIN {
			s.broken(e)
			return 0
		}
		p = p[n:]
	}
	s.flags |= wantSent
	s.keep(p)
	return s.kept
}

// flush sends what is pending, then the end if it was asked for.
func (s *Socket) flush() {
	if s.src != nil && s.src.pipe != nil {
		s.loop.enqueue(s.src) // its bytes come first
		return
	}
	for s.out != nil {
		c := s.out.next
		p := c.b[c.off:]
		n, e := send(s.fd, p, 0)
		if e != 0 && e != syscall.EAGAIN {
			s.broken(e)
			return
		}
		if n > 0 {
			s.sent(n)
		}
		if n < len(p) {
			s.flags &^= writable
			return
		}
	}
	if s.flags&(closeWrite|shut) == closeWrite {
		s.shutdown()
	}
	if s.src != nil {
		s.loop.enqueue(s.src)
	}
	if s.flags&wantSent != 0 {
		s.flags &^= wantSent
		s.owner.Sent()
	}
}

// CloseWrite implements stream.Stream.
func (s *Socket) CloseWrite() {
	if s.flags&(open|closeWrite) != open {
		return
	}
	s.flags |= closeWrite
	if s.flags&connecting == 0 && s.out == nil && (s.src == nil || s.src.pipe == nil) {
		s.shutdown()
	}
}

// shutdown passes the end on. It fails only where the peer is gone, which
// reading brings to light.
func (s *Socket) shutdown() {
	s.flags |= shut
	_ = shutdownWrite(s.fd)
}

// Close implements stream.Stream. If the peer may still be sending, the
// descriptor stays open for a while after the end was sent, and arriving bytes
// are discarded: closing with unread input makes the kernel send a reset,
// which may destroy the last bytes on their way to the peer.
func (s *Socket) Close() {
	if !s.isOpen() {
		return
	}
	s.unpipe()
	switch {
	case s.errno != 0:
		s.reset()
	case s.out == nil && (s.flags&ended != 0 || s.flags&(spoke|connecting) != spoke):
		s.close()
	default:
		s.linger()
	}
}

// closing is what is left of a socket after Close: the owner may go, and use
// the Socket again.
type closing struct {
	Socket
	timer        Timer
	older, newer *closing // in the loop's list of those that have sent everything
	listed       bool
}

// closingList are sockets that only wait for their peer's end, the oldest at
// the head. Nobody counts them any more, so a peer that never ends could fill
// the descriptors with them past all limits on connections: there is room for
// the last Config.MaxClosing of them.
type closingList struct {
	head, tail *closing
	n          int
}

func (q *closingList) push(c *closing) {
	c.listed, c.older = true, q.tail
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.newer = c
	}
	q.tail = c
	q.n++
}

func (q *closingList) remove(c *closing) {
	if !c.listed {
		return
	}
	if c.older == nil {
		q.head = c.newer
	} else {
		c.older.newer = c.newer
	}
	if c.newer == nil {
		q.tail = c.older
	} else {
		c.newer.older = c.older
	}
	c.listed, c.older, c.newer = false, nil, nil
	q.n--
}

func (s *Socket) linger() {
	l := s.loop
	c := &closing{Socket: *s} // with its token and generation, so with its reports
	s.vacate()
	c.owner, c.next, c.queued = c, nil, false
	c.flags |= wantSent
	l.sockets[c.token] = &c.Socket
	c.timer.Init(c)
	l.Arm(&c.timer, l.cfg.CloseTimeout)
	c.CloseWrite()
	c.SetReading(true)
	if c.out == nil {
		c.await()
	}
}

// await has it wait for the peer's end, in the place of the oldest if need be.
func (c *closing) await() {
	l := c.loop
	if c.listed {
		return
	}
	if l.closing.n >= l.cfg.MaxClosing {
		l.closing.head.Expired(nil)
	}
	l.closing.push(c)
}

func (c *closing) Connected()      {}
func (c *closing) Received([]byte) {}
func (c *closing) Moved(int)       {}
func (c *closing) Sent()           { c.finish() }
func (c *closing) Ended()          { c.finish() }
func (c *closing) Failed(error)    { c.gone() }

// finish ends it once both ends have been sent.
func (c *closing) finish() {
	switch {
	case c.flags&shut == 0:
	case c.flags&ended != 0:
		c.gone()
		c.close()
	default:
		c.await()
	}
}

func (c *closing) gone() {
	c.loop.Disarm(&c.timer)
	c.loop.closing.remove(c)
}

// Expired ends it: with a reset if bytes are lost by that.
func (c *closing) Expired(*Timer) {
	c.gone()
	if c.out != nil {
		c.reset()
	} else {
		c.close()
	}
}
