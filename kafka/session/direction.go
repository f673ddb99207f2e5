package session

import (
	"encoding/binary"
	"fmt"
	"time"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/netio"
	"penstock/netio/relay"
)

// state is where a direction is in its frame.
type state uint8

const (
	readingHeader state = iota // between frames, or in a header
	passing                    // the rest of the frame goes on as it is
	walking                    // the rest goes on through a Walker
	collecting                 // the frame is kept until it is whole, and while it waits
)

// blockFlags say why a direction is not read, at the end of a frame or while it
// collects one.
type blockFlags uint8

const (
	blockedByFilter   blockFlags = 1 << iota // the request waits in the chain
	blockedByResponse                        // the client's: a response waits in the chain
	blockedByInFlight                        // too much waits for its turn
	blockedByMemory                          // the node has none to collect in
	blockedByLimit                           // the client has exceeded a rate
)

const (
	// minMove is how many bytes of a frame must be left for splicing.
	minMove = 64 << 10
	// maxAnswers is how many bytes of answers may wait for their turn
	// before the client is not read.
	maxAnswers = 1 << 20
	// collectStep is the first buffer of a frame that is mostly still to come.
	collectStep = 8 << 10
	// maxUpfrontBuffer is the largest frame of a broker whose whole buffer is
	// allocated at once.
	maxUpfrontBuffer = 1 << 20
)

// direction is what comes from one side and goes to the other.
type direction struct {
	from       relay.Side
	state      state
	block      blockFlags
	reading    bool
	ended      bool // the side has sent its end
	headerSent bool // walking: the header has been sent
	buf        *buffer
	charged    int64 // to the node's budget, for buf
	need       int   // readingHeader: how long buf must be before it is looked at again
	headerLen  int   // length of the frame's header, its size included
	size       int   // of the whole frame
	left       int   // passing, collecting: bytes that have not come yet
	passLeft   int   // walking: bytes that go on as they are, before the walk goes on
	walker     *wire.Walker
	unsent     []byte        // passes, and is sent in one with what follows
	held       []byte        // what came behind something that waits
	startedAt  time.Duration // when the frame began that is not whole; 0: there is none
}

// feed takes bytes from a side.
func (s *Session) feed(l *direction, p []byte) {
	if l.blocked() || len(l.held) > 0 {
		l.held = append(l.held, p...)
		return
	}
	for len(p) > 0 && !l.blocked() && !s.reordering(l) && !s.closed {
		p = p[s.step(l, p):]
	}
	s.flush(l)
	switch {
	case s.closed:
	case s.reordering(l):
		s.feedReordering(p)
	case len(p) > 0:
		l.held = append(l.held, p...)
	default:
		s.allowMove(l)
	}
}

// step takes some of the bytes, depending on the state of the direction.
func (s *Session) step(l *direction, p []byte) (n int) {
	switch l.state {
	case passing:
		n = min(l.left, len(p))
		l.left -= n
		l.addUnsent(p[:n])
		s.endIfStreamed(l)
		return n
	case walking:
		return s.walk(l, p)
	case collecting:
		s.flush(l)
		return s.collect(l, p)
	}
	// No flush: a frame that passes may follow another.
	if l.from == relay.Client {
		return s.requestHeader(p)
	}
	return s.responseHeader(p)
}

// inFrame reports whether a part of a frame has gone on and the rest has not.
func (l *direction) inFrame() bool { return l.state == passing || l.state == walking }

// blocked reports whether the direction must wait. What waits for a response waits
// between two requests only: a question may have to go to the broker first.
func (l *direction) blocked() bool {
	return l.block&^blockedByResponse != 0 || l.block != 0 && !l.inFrame()
}

// gatherHeader appends p to the beginning of a frame. data is all of it so far, n how
// much of p that took.
func (l *direction) gatherHeader(p []byte) (data []byte, n int) {
	if l.buf == nil {
		return p, 0
	}
	n = min(len(p), l.need-len(l.buf.b))
	l.buf.b = append(l.buf.b, p[:n]...)
	return l.buf.b, n
}

// keepHeader stores the beginning of a frame until there are need bytes of it. It
// returns how much of p that takes, of which gatherHeader took n.
func (l *direction) keepHeader(p []byte, n, need int) int {
	if l.buf == nil {
		l.buf = newBuffer(need)
		l.buf.b = append(l.buf.b, p...)
		n = len(p)
	} else if need > cap(l.buf.b) {
		l.grow(need)
	}
	l.need = need
	return n
}

// grow makes buf hold n bytes.
func (l *direction) grow(n int) {
	b := newBuffer(n)
	if l.buf != nil {
		b.b = append(b.b, l.buf.b...)
		l.buf.release()
	}
	l.buf = b
}

// buffered returns what buf holds of the frame.
func (l *direction) buffered() []byte {
	if l.buf == nil {
		return nil
	}
	return l.buf.b
}

// endFrame resets the direction at the end of a frame.
func (l *direction) endFrame(c Conn) {
	l.release(c)
	l.state, l.headerSent = readingHeader, false
	l.need, l.headerLen, l.size, l.left, l.passLeft, l.startedAt = 0, 0, 0, 0, 0, 0
}

// release gives back the buffer, the memory and the walker of a frame.
func (l *direction) release(c Conn) {
	if l.buf != nil {
		l.buf.release()
		l.buf = nil
	}
	if l.charged > 0 {
		c.Release(l.charged)
		l.charged = 0
	}
	if l.walker != nil {
		walkers.Put(l.walker)
		l.walker = nil
	}
}

// send sends bytes to a side, behind those that pass to it.
func (s *Session) send(to relay.Side, p []byte) {
	s.flush(s.direction(to.Other()))
	s.write(to, p)
}

// sendBoth sends edited bytes and the view that follows them, in one write if
// the stream can.
func (s *Session) sendBoth(to relay.Side, out, view []byte) {
	if m, ok := s.streams[to].(moreSender); ok && len(out) > 0 && len(view) > 0 {
		s.flush(s.direction(to.Other()))
		m.SendMore(out) // Send tells what is pending of both
	} else {
		s.send(to, out)
	}
	s.send(to, view)
}

// moreSender is a stream that can be told that more bytes follow at once.
type moreSender interface{ SendMore(p []byte) (pending int) }

func (s *Session) write(to relay.Side, p []byte) {
	if len(p) > 0 && s.streams[to].Send(p) > 0 {
		s.pending[to] = true
	}
}

// addUnsent adds bytes to those that pass and are not sent yet.
func (l *direction) addUnsent(p []byte) {
	if n := len(l.unsent); n > 0 {
		l.unsent = l.unsent[:n+len(p)]
	} else {
		l.unsent = p
	}
}

func (s *Session) flush(l *direction) {
	if len(l.unsent) > 0 {
		p := l.unsent
		l.unsent = nil
		s.write(l.from.Other(), p)
	}
}

func (s *Session) flushAll() {
	s.flush(&s.client)
	s.flush(&s.upstream)
}

// allowMove lets netio splice the rest of a frame, if it is long.
func (s *Session) allowMove(l *direction) {
	n := l.left
	switch l.state {
	case walking:
		n = l.passLeft
	case passing:
	default:
		return
	}
	if n >= minMove {
		s.conn.MayMove(l.from, n)
	}
}

// endIfStreamed ends a frame that streams once all of it has passed.
func (s *Session) endIfStreamed(l *direction) {
	if l.state == walking {
		if l.passLeft > 0 || !l.walker.Done() {
			return
		}
	} else if l.left > 0 {
		return
	}
	if l.from == relay.Client {
		s.requestSent()
	} else {
		s.responseSent()
	}
}

// startStreaming begins to pass a frame. buf, if there is one, has its beginning.
func (s *Session) startStreaming(l *direction, size int) {
	l.state, l.size, l.left = passing, size, size
	if l.buf != nil {
		b := l.buf
		l.buf = nil
		l.left -= len(b.b)
		s.send(l.from.Other(), b.b)
		b.release()
		s.endIfStreamed(l)
	}
}

// startWalk begins to walk a frame. data is its beginning; startWalk takes n
// bytes of it, unless buf has them.
func (s *Session) startWalk(l *direction, size, head int, data []byte, edits *filter.Edits) (n int) {
	s.flush(l)
	l.state, l.size, l.headerLen = walking, size, head
	d := wire.Request
	key, version := s.request.key, s.request.version
	if l.from == relay.Upstream {
		d, key, version = wire.Response, s.reply.key, s.reply.version
	}
	l.walker, _ = walkers.Get().(*wire.Walker)
	l.walker.Init(d, key, version, size-head, edits)
	var rest []byte
	if l.buf == nil {
		l.buf = newBuffer(head)
		l.buf.b = append(l.buf.b, data[:head]...)
		n = head
	} else {
		rest = l.buf.b[head:]
	}
	for first := true; (first && size == head || len(rest) > 0) && l.state == walking && !s.closed; first = false {
		rest = rest[s.walk(l, rest):]
	}
	return n
}

// walk takes bytes of a frame that is walked.
func (s *Session) walk(l *direction, p []byte) (n int) {
	if l.passLeft > 0 {
		n = min(l.passLeft, len(p))
		l.passLeft -= n
		s.send(l.from.Other(), p[:n])
		s.endIfStreamed(l)
		return n
	}
	scratch := newBuffer(scratchSize)
	defer scratch.release()
	dst := scratch.b
	if !l.headerSent {
		dst = append(dst, l.buf.b[:l.headerLen]...)
	}
	before := len(dst)
	out, view, n, pass, err := l.walker.Next(dst, p)
	if err == nil && n == 0 && pass == 0 && len(p) > 0 && !l.walker.Done() {
		err = fmt.Errorf("%w: the parser made no progress", wire.ErrMalformed)
	}
	if err == nil && !l.headerSent && (len(out) > before || len(view) > 0 || pass > 0 || l.walker.Done()) {
		err = l.writeSize(out)
	}
	if err != nil {
		s.filterFailed(err)
		return n
	}
	if l.headerSent {
		s.sendBoth(l.from.Other(), out, view)
	}
	l.passLeft = pass
	s.endIfStreamed(l)
	return n
}

// writeSize writes the length of a walked frame into its header.
func (l *direction) writeSize(header []byte) error {
	growth, _ := l.walker.Growth()
	size := int64(l.size) - 4 + int64(growth)
	if size < 4 || size > 1<<31-1 {
		return fmt.Errorf("%w: %d bytes after rewriting", errTooLarge, size)
	}
	binary.BigEndian.PutUint32(header, uint32(size))
	l.headerSent = true
	return nil
}

// startCollecting begins to collect a frame.
func (s *Session) startCollecting(l *direction, size, head int) {
	if !s.checkFits(size) {
		return
	}
	l.state, l.size, l.headerLen = collecting, size, head
	if l.left = size - len(l.buffered()); l.left == 0 {
		s.collected(l)
	}
}

// checkFits refuses a frame for which the node could never have memory, however long
// it waited.
func (s *Session) checkFits(size int) bool {
	if budget := s.conn.Budget(); size > unchargedBuffer && int64(bufferSize(size)) > budget {
		s.fail(netio.LimitMemory, fmt.Errorf("%w of %d bytes: the node's budget is %d", errMemory, size, budget))
		return false
	}
	return true
}

// collectable reports whether a request that need not be whole may be
// collected.
func (s *Session) collectable(size int) bool {
	return size <= s.settings.Limits.MaxFrameEarly && (size <= unchargedBuffer || int64(bufferSize(size)) <= s.conn.Budget())
}

// collect takes bytes of a frame that is collected.
func (s *Session) collect(l *direction, p []byte) (n int) {
	n = min(l.left, len(p))
	have := len(l.buffered())
	if room := have + n; l.buf == nil || room > cap(l.buf.b) {
		switch {
		case n == l.left:
		case l.from == relay.Upstream && l.size <= maxUpfrontBuffer:
			room = l.size
		default: // more for what is to come, as it comes
			room = min(l.size, max(2*have, room, collectStep))
		}
		if (room > unchargedBuffer || !s.peer.trusted && n < l.left) && !s.reserve(l, room) {
			return 0
		}
		l.grow(room)
	}
	l.buf.b = append(l.buf.b, p[:n]...)
	if l.left -= n; l.left == 0 {
		l.startedAt = 0
		s.collected(l)
	}
	return n
}

// reserve charges a buffer of n bytes to the budget. It returns false if the
// direction must wait or is refused.
func (s *Session) reserve(l *direction, n int) bool {
	size := int64(bufferSize(n))
	switch {
	case size <= l.charged:
		return true
	case !s.conn.Reserve(s.memoryClass(l), size-l.charged):
		l.block |= blockedByMemory
		return false
	}
	l.charged = size
	return true
}

// memoryClass returns the memory class of a frame. Frames with which a client logs in
// have memory of their own, which large frames cannot take.
func (s *Session) memoryClass(l *direction) netio.Class {
	if !s.peer.trusted && l.size <= s.settings.Limits.MaxFrameAuth {
		return netio.Early
	}
	return netio.Bulk
}

// collected handles a frame that is collected.
func (s *Session) collected(l *direction) {
	if l.from == relay.Client {
		s.requestCollected()
	} else {
		s.responseCollected()
	}
}
