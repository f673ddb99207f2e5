package session

import (
	"encoding/binary"
	"time"

	"penstock/kafka/wire"
)

// A Limiter bounds the requests of one client and their bytes, as a broker's quotas do
// (KIP-219): a client that exceeds a rate is told in the response for how long to keep
// still (throttle_time_ms), and its next request is not read before. Its methods are
// called on the loop of the connection and must not block.
type Limiter interface {
	// Request charges a request of size bytes, and Response a response to one. The
	// client id is cut to 64 bytes.
	Request(key int16, clientID string, size int)
	Response(key int16, size int)
	// Wait returns for how long no request may be read; 0: it may be read now.
	Wait() time.Duration
	// Throttle returns for how long the client is to keep still: Wait or less.
	Throttle() time.Duration
	// Close is called once, when the session ends.
	Close()
}

// chargeRequest charges a request whose header is there. A client that has not
// authenticated is not yet who it will be; what it needs for that is small and bounded.
func (s *Session) chargeRequest(h *wire.RequestHeader) {
	if s.limiter != nil && (s.peer.trusted || !inspects(h.Key)) {
		s.charged = true
		s.limiter.Request(h.Key, s.peer.clientID, h.FrameLen())
	}
}

// limited reports whether the client may be held back: one that has neither authenticated
// nor been charged is not yet who it will be.
func (s *Session) limited() bool { return s.limiter != nil && (s.peer.trusted || s.charged) }

// limitCheck is how often a client that is held back is looked at again: its limits may
// have changed.
const limitCheck = time.Second

// holdBack stops reading requests while the client has exceeded a rate. A request that
// has begun goes on.
func (s *Session) holdBack() {
	l := &s.client
	if !s.limited() || s.closed || l.state != readingHeader || l.buf != nil || s.request.active {
		return
	}
	if wait := s.limiter.Wait(); wait > 0 {
		l.block |= blockedByLimit
		s.arm(min(wait, limitCheck))
	} else {
		l.block &^= blockedByLimit
	}
}

// Holds implements netio.HoldingSession.
func (s *Session) Holds() bool { return s.client.block&blockedByLimit != 0 }

// MaxThrottle is the longest time that a client is told to keep still. Clients sleep for as
// long as they are told: one large message over a small quota must not stop a client for
// hours that nothing can end. It is a few of the windows over which brokers measure (11
// samples of 1 s). What is owed beyond it stays owed: the client's next request is not read
// before.
const MaxThrottle = time.Minute

// throttle returns for how long the client is held back, in ms, for its response.
func (s *Session) throttle() int32 {
	if !s.limited() {
		return 0
	}
	ms := (min(s.limiter.Throttle(), MaxThrottle) + time.Millisecond - 1) / time.Millisecond
	return int32(max(ms, 0))
}

// throttleEnd returns how many bytes of a response are needed to tell the client of its
// throttle time while the rest streams: those up to that time, if it is at the beginning.
func (s *Session) throttleEnd(f *inFlightRequest, size, head int) int {
	end := head + throttleLen
	if s.limiter == nil || end > size || !offsets().throttle.has(f.key, f.version) {
		return 0
	}
	return end
}

// throttleLen is the length of a throttle time.
const throttleLen = 4

// setThrottle sets the throttle time in a response's body, unless the broker's is longer.
// body may be the beginning only.
func setThrottle(key, version int16, body []byte, ms int32) {
	if ms == 0 {
		return
	}
	var field []byte
	if key == keyProduce {
		field = wire.ProduceThrottle(version, body)
	} else {
		field = offsets().throttle.find(key, version, body, throttleLen)
	}
	if field != nil && int32(binary.BigEndian.Uint32(field)) < ms {
		binary.BigEndian.PutUint32(field, uint32(ms))
	}
}

// chargeResponse charges the response that begins, and returns the throttle time that it
// is to have. It also says whether it must be collected, because that time is at its end.
func (s *Session) chargeResponse(r *inFlightRequest, size int) (ms int32, collect bool) {
	if s.limiter == nil || r.call != nil && r.call.Own() {
		return 0, false
	}
	s.limiter.Response(r.key, size)
	ms = s.throttle()
	return ms, ms > 0 && r.key == keyProduce
}
