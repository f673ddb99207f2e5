package tlsstream

import (
	"crypto/tls"
	"fmt"
	"time"

	"penstock/netio/stream"
)

// A Loop calls functions one after the other. Post may be called from any
// goroutine and returns false when fn will not be called. The loop's goroutine
// must not be locked to its thread (runtime.LockOSThread): the coroutine of a
// handshake is resumed on the loop and on other goroutines in turn, which Go
// forbids to locked ones.
type Loop interface {
	Post(fn func()) bool
}

// Local holds what the streams of one loop share. Only that loop may call its
// methods and those of its streams.
type Local struct {
	// StepLimit is how long a step of a handshake may hold the loop. Where
	// some take longer, the next ones run on the pool's workers; with 0 all
	// but the smallest do. NewLocal sets 500 us: on a common processor the
	// first flight with a P-256 or Ed25519 key takes a third of it, with an
	// RSA key twice as much.
	StepLimit time.Duration

	loop   Loop
	pool   *Pool
	inside layout

	steps     []*handshake // that wait for a turn of the loop
	scheduled bool         // turn is on the way
	long      int          // rises with steps over StepLimit, see pace
	offload   int          // steps that still go to workers

	plain []byte // where plaintext is put for Received; made when needed
	out   []byte // records of one Send
	spare [][]byte
}

const (
	// plainSize holds what a read of 64 KiB decrypts to, with a record
	// whose beginning came before: the owner then sends it on in one call.
	plainSize = 64<<10 + 2*maxPlaintext
	// sendChunk is how much of one Send is encrypted before it goes to the
	// under stream; the collected records stay within the processor's cache.
	sendChunk = 64 << 10
	// gatherFrom is the size from which a Send is collected. A smaller one
	// is a single record even while crypto/tls keeps records small.
	gatherFrom = 1 << 10
	// maxSpare is how many buffers for cut records a loop keeps.
	maxSpare = 64
	// smallRecord is up to which size a cut record gets a buffer of its own;
	// larger ones get a spare one that holds any record.
	smallRecord = 2 << 10
	largeRecord = headerSize + maxCiphertext
	// maxAnswers is how many bytes may be pending when crypto/tls answers a
	// peer by itself (key updates, alerts) before reading stops: a peer that
	// asks and never reads must not fill the memory.
	maxAnswers = 64 << 10
)

// NewLocal returns the Local of a loop.
func NewLocal(loop Loop, pool *Pool) *Local {
	return &Local{loop: loop, pool: pool, inside: tlsLayout, StepLimit: 500 * time.Microsecond}
}

// A Stream is TLS on top of another stream. To its owner it is a
// stream.Stream, to the stream below it is the stream.Owner. Before Connected
// the owner may call SetReading, Close and Abort only. Handshakes have no
// deadline of their own: the caller sets a timer and calls Abort. Whoever ends
// a loop aborts its streams before, or handshakes are left behind.
//
// A Stream decrypts in the buffer that it is given by Received.
type Stream struct {
	local *Local
	under stream.Stream
	owner stream.Owner
	conn  *tls.Conn
	wire  wire
	hs    *handshake // nil but during the handshake

	// held is ciphertext that was not decrypted yet: the beginning of one
	// record, and more while the owner does not read.
	held []byte

	phase      phase
	client     bool
	reading    bool // the owner wants Received
	busy       bool // pump follows at the end of what is being done
	posted     bool // pump is on the way
	stalled    bool // too many answers are pending
	wantsSent  bool // the owner was told of pending bytes
	inboxFull  bool // the handshake's
	underEnded bool // the stream below ended
	peerClosed bool // close_notify came
	endTold    bool
	endSent    bool // close_notify was sent

	vers      uint16 // on every record's header, from the handshake on
	maxRecord int    // bytes of a record without its header
}

type phase uint8

const (
	waiting phase = iota // for the under stream to connect
	shaking
	open
	dead
)

var (
	_ stream.Stream = (*Stream)(nil)
	_ stream.Owner  = (*Stream)(nil)
)

// Server begins a handshake as a server on a connected stream, from which
// early (the ClientHello, or a part) has been read already; it is copied. The
// caller makes the result the owner of under. Connected or Failed is told
// later; the latter with ErrBusy where the pool has no place. Callbacks of
// config see no addresses, and should not block: they may run on the loop.
func (l *Local) Server(under stream.Stream, config *tls.Config, early []byte, owner stream.Owner) *Stream {
	s := l.stream(under, owner)
	s.conn = tls.Server(&s.wire, config)
	s.start(early)
	return s
}

// Client makes a stream whose handshake as a client begins when under tells
// Connected. For one that is connected already call the result's Connected. A
// server of TLS 1.3 may refuse the client's certificate after its Connected.
func (l *Local) Client(under stream.Stream, config *tls.Config, owner stream.Owner) *Stream {
	s := l.stream(under, owner)
	s.client = true
	s.conn = tls.Client(&s.wire, config)
	return s
}

func (l *Local) stream(under stream.Stream, owner stream.Owner) *Stream {
	if u, ok := under.(*Stream); ok && u.local == l {
		// What it tells lies in plain, where this one would write.
		limit := l.StepLimit
		l = NewLocal(l.loop, l.pool)
		l.StepLimit = limit
	}
	s := &Stream{local: l, under: under, owner: owner}
	s.wire.s = s
	return s
}

// ConnectionState returns what was negotiated; it is zero before Connected.
func (s *Stream) ConnectionState() tls.ConnectionState {
	if s.vers == 0 {
		return tls.ConnectionState{}
	}
	return s.conn.ConnectionState()
}

// Send implements stream.Stream.
func (s *Stream) Send(p []byte) (pending int) {
	if s.phase != open || s.endSent {
		return 0
	}
	s.wire.pending, s.wire.sending = 0, true
	for len(p) > 0 {
		chunk := p[:min(len(p), sendChunk)]
		p = p[len(chunk):]
		if err := s.encrypt(chunk); err != nil {
			s.post(func(s *Stream) {
				s.fail(protocolError(err), stream.Stream.Close)
			})
			break
		}
	}
	s.wire.sending = false
	if s.wire.pending > 0 {
		s.wantsSent = true
	}
	return s.wire.pending
}

// encrypt sends p, all its records at once.
func (s *Stream) encrypt(p []byte) error {
	if len(p) < gatherFrom {
		_, err := s.conn.Write(p)
		return err
	}
	l := s.local
	if l.out == nil {
		l.out = make([]byte, 0, sendChunk+8<<10) // with room for the overhead of small records
	}
	s.wire.gather = true
	_, err := s.conn.Write(p)
	s.wire.gather = false
	if len(l.out) > 0 {
		s.wire.pending = s.under.Send(l.out)
		l.out = l.out[:0]
	}
	return err
}

// SetReading implements stream.Stream.
func (s *Stream) SetReading(on bool) {
	if s.reading == on {
		return
	}
	s.reading = on
	if s.phase == open {
		s.applyReading()
	}
}

// applyReading passes the wish to read on, after it changed.
func (s *Stream) applyReading() {
	on := s.canRead()
	s.under.SetReading(on)
	if on && !s.busy && !s.posted && (s.isWhole(s.held) || s.peerClosed != s.endTold || s.underEnded) {
		s.posted = true
		s.post(func(s *Stream) {
			s.posted = false
			s.pump()
		})
	}
}

func (s *Stream) canRead() bool { return s.reading && !s.stalled }

// PipeTo implements stream.Stream. It always returns false: every byte must
// pass through TLS.
func (s *Stream) PipeTo(stream.Stream) bool { return false }

// CloseWrite implements stream.Stream: close_notify, and the end of the under
// stream in this direction.
func (s *Stream) CloseWrite() {
	if s.phase != open || s.endSent {
		return
	}
	s.sendEnd()
	s.under.CloseWrite()
}

// sendEnd sends close_notify. It fails only where an alert went before it,
// which ends the stream as well.
func (s *Stream) sendEnd() {
	s.endSent = true
	_ = s.conn.CloseWrite()
}

// Close implements stream.Stream. It cancels a handshake that is under way.
func (s *Stream) Close() {
	if s.phase == dead {
		return
	}
	if s.phase == open && !s.endSent {
		s.sendEnd()
	}
	s.die()
	s.under.Close()
}

// Abort implements stream.Stream.
func (s *Stream) Abort() {
	if s.phase == dead {
		return
	}
	s.die()
	s.under.Abort()
}

// Connected implements stream.Owner for the under stream.
func (s *Stream) Connected() {
	if s.phase == waiting && s.client && s.hs == nil {
		s.start(nil)
	}
}

// Sent implements stream.Owner for the under stream.
func (s *Stream) Sent() {
	if s.phase != open {
		return
	}
	if s.wantsSent {
		s.wantsSent = false
		s.owner.Sent()
	}
	if s.phase == open && s.stalled {
		s.stalled = false
		s.busy = true
		s.applyReading()
		s.busy = false
		s.pump()
	}
}

// Moved implements stream.Owner. It is never called: no byte bypasses TLS.
func (s *Stream) Moved(int) {}

// Ended implements stream.Owner for the under stream.
func (s *Stream) Ended() {
	s.underEnded = true
	switch s.phase {
	case waiting:
		s.fail(fmt.Errorf("before the tls handshake: %w", stream.ErrReset), stream.Stream.Abort)
	case shaking:
		if !s.hs.given {
			s.advance()
		}
	case open:
		s.pump()
	}
}

// Failed implements stream.Owner for the under stream.
func (s *Stream) Failed(err error) {
	if s.phase == dead {
		return
	}
	if s.phase == shaking {
		err = fmt.Errorf("tls handshake: %w", err)
	}
	s.die()
	s.owner.Failed(err)
}

// fail ends the stream in the way given and tells the owner why. It is for
// the loop's callbacks only.
func (s *Stream) fail(err error, end func(stream.Stream)) {
	if s.phase == dead {
		return
	}
	s.die()
	end(s.under)
	s.owner.Failed(err)
}

// die lets go of everything that an ended stream does not need.
func (s *Stream) die() {
	s.phase = dead
	s.cancel()
	s.local.give(s.held)
	s.held = nil
}

// post has fn called from the loop; false: it has ended.
func (s *Stream) post(fn func(*Stream)) bool {
	return s.local.loop.Post(func() { s.guard(fn) })
}

// guard calls fn, which is no event of the stream below. So nobody else would end the
// stream if the owner panics in it.
func (s *Stream) guard(fn func(*Stream)) {
	done := false
	defer func() {
		if !done && s.phase != dead {
			s.fail(stream.ErrPanic, stream.Stream.Abort)
		}
	}()
	fn(s)
	done = true
}
