package tlsstream

import (
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"penstock/netio/stream"
)

const (
	// maxInbox is where reading pauses while a step is under way; ordinary
	// flights are smaller.
	maxInbox = 16 << 10
	// cheapFlight is the length up to which what a client sends is dealt
	// with at once: a Finished, a TLS 1.2 key exchange, an alert. First
	// hellos are not among it; certificates and second hellos are longer.
	cheapFlight = 160
	// maxWaiting is how many steps may wait for their loop; from there on
	// the workers help.
	maxWaiting = 16
	// offloadSteps is how many steps go to the workers after some that were long.
	offloadSteps = 64
)

// A handshake is the coroutine of one handshake, suspended in wire.Read or
// running. The loop owns it, except between give and
// stepped.
type handshake struct {
	s     *Stream
	state atomic.Int32
	inbox []byte // the loop's: what came and was not given to the coroutine
	given bool   // the loop's: it was given away, and stepped is still to come
	turn  bool   // the loop's: given to the loop itself, for one of its next turns

	resume func() (struct{}, bool) // nil until the first step
	stop   func()
	over   bool  // the coroutine has ended, with err
	err    error // of the handshake

	queued     bool       // in the pool's queue; with the links guarded by its mutex
	prev, next *handshake // in the queue
}

// The states of a handshake. A worker that is done goes from running to
// parked; when the loop has set cancelled meanwhile, the worker ends the
// coroutine instead.
const (
	parked int32 = iota
	running
	cancelled
)

// start begins the handshake with what has been read so far.
func (s *Stream) start(early []byte) {
	if !s.local.pool.enter() {
		s.post((*Stream).refuse)
		return
	}
	s.phase = shaking
	s.hs = &handshake{s: s}
	s.hs.inbox = append(s.hs.inbox, early...)
	s.under.SetReading(true)
	if s.client {
		s.give(nil)
		return
	}
	s.advance()
}

func (s *Stream) refuse() {
	if s.phase == waiting {
		s.fail(ErrBusy, stream.Stream.Abort)
	}
}

// advance resumes the coroutine when there is something for it.
func (s *Stream) advance() {
	h := s.hs
	n := readable(h.inbox)
	if n == 0 {
		if s.underEnded {
			s.fail(fmt.Errorf("tls handshake: peer closed the connection: %w", stream.ErrReset), stream.Stream.Abort)
		}
		return
	}
	flight := h.inbox[:n:n]
	h.inbox = append([]byte(nil), h.inbox[n:]...)
	cheap := !s.client && h.resume != nil && len(flight) <= cheapFlight
	if !cheap {
		s.give(flight)
		return
	}
	s.wire.view = flight
	h.run()
	s.stepped()
}

// give has the coroutine resumed, by the loop or by a worker.
func (s *Stream) give(flight []byte) {
	h, l := s.hs, s.local
	s.wire.view = flight
	h.given = true
	if l.takesStep() {
		h.turn = true
		l.steps = append(l.steps, h)
		l.schedule()
		return
	}
	h.state.Store(running)
	l.pool.submit(h)
}

// takesStep tells whether the loop does the next step itself. To hand one to
// a worker costs two wake-ups, half as much as the step itself; so a loop does
// them as long as they are short and few are waiting.
func (l *Local) takesStep() bool {
	if l.offload > 0 {
		l.offload--
		return false
	}
	return l.StepLimit > 0 && len(l.steps) < maxWaiting
}

func (l *Local) schedule() {
	if !l.scheduled {
		l.scheduled = l.loop.Post(l.turn)
	}
}

// turn does one step. Between two of them the loop serves everyone else.
func (l *Local) turn() {
	l.scheduled = false
	var h *handshake
	for h == nil && len(l.steps) > 0 {
		if h = l.steps[0]; !h.turn {
			h = nil // cancelled
		}
		l.steps = append(l.steps[:0], l.steps[1:]...)
	}
	if len(l.steps) > 0 {
		l.schedule()
	}
	if h == nil {
		return
	}
	h.turn = false
	begin := time.Now()
	h.run()
	l.pace(time.Since(begin))
	h.s.guard((*Stream).stepped)
}

// pace notes how long a step took. What makes one long is not known before: an
// RSA key, a costly curve that the peer chose, a callback. A single one may
// also have been interrupted, so it takes some in a row, short ones counting
// against them.
func (l *Local) pace(took time.Duration) {
	if took <= l.StepLimit {
		l.long = max(0, l.long-1)
		return
	}
	if l.long += 2; l.long >= 6 {
		l.long, l.offload = 0, offloadSteps
	}
}

// step is what a worker does.
func (h *handshake) step() {
	if h.state.Load() == running {
		h.run()
	}
	if h.state.CompareAndSwap(running, parked) {
		if h.s.post((*Stream).stepped) || !h.state.CompareAndSwap(parked, cancelled) {
			return
		}
	}
	h.release()
}

// run runs the coroutine until it waits for input or ends.
func (h *handshake) run() {
	if h.resume == nil {
		h.resume, h.stop = iter.Pull(h.body)
	}
	_, more := h.resume()
	h.over = !more
}

// body is the coroutine.
func (h *handshake) body(yield func(struct{}) bool) {
	w := &h.s.wire
	w.yield = yield
	defer func() {
		w.yield = nil
		if v := recover(); v != nil {
			h.err = fmt.Errorf("internal fault: %v", v)
		}
	}()
	h.err = w.unmask(h.s.conn.Handshake())
}

// release ends the coroutine, wherever it is, and gives its place in the pool
// back. It is called once, by the owner of the handshake.
func (h *handshake) release() {
	if h.stop != nil {
		h.stop()
	}
	h.s.local.pool.leave()
}

// cancel ends the handshake of a stream that is given up.
func (s *Stream) cancel() {
	h := s.hs
	if h == nil {
		return
	}
	s.hs = nil
	switch {
	case !h.given, h.turn, s.local.pool.withdraw(h):
		h.turn = false
		h.release()
	case h.state.CompareAndSwap(running, cancelled):
		// The worker that has it ends it.
	case h.state.CompareAndSwap(parked, cancelled):
		h.release() // its step is over and stepped on the way
	}
}

// stepped is called on the loop when a step is over.
func (s *Stream) stepped() {
	h := s.hs
	if s.phase != shaking {
		return // given up meanwhile
	}
	h.given = false
	if out := s.wire.out; len(out) > 0 {
		s.wire.out = nil
		s.under.Send(out)
	}
	if h.over {
		s.finish(h)
		return
	}
	if s.inboxFull {
		s.inboxFull = false
		s.under.SetReading(true)
	}
	s.advance()
}

// finish moves the connection to the loop.
func (s *Stream) finish(h *handshake) {
	s.hs = nil
	h.release()
	if h.err != nil {
		s.fail(handshakeError(h.err), stream.Stream.Close)
		return
	}
	s.phase = open
	s.setLimits()
	if rest := append(s.wire.view, h.inbox...); len(rest) > 0 {
		s.held = rest
	}
	s.wire.view, s.wire.left = nil, 0
	s.local.inside.release(s.conn)
	if !s.canRead() {
		s.under.SetReading(false)
	} else if s.inboxFull {
		s.under.SetReading(true)
	}
	s.inboxFull = false
	s.busy = true
	s.owner.Connected()
	s.busy = false
	s.pump()
}

// keepForHandshake takes bytes that come during the handshake.
func (s *Stream) keepForHandshake(p []byte) {
	h := s.hs
	h.inbox = append(h.inbox, p...)
	if !h.given {
		s.advance()
		return
	}
	if len(h.inbox) > maxInbox && !s.inboxFull {
		s.inboxFull = true
		s.under.SetReading(false)
	}
}
