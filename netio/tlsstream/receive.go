package tlsstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"penstock/netio/stream"
)

// Received implements stream.Owner for the under stream.
func (s *Stream) Received(p []byte) {
	switch {
	case s.phase == shaking:
		s.keepForHandshake(p)
		return
	case s.phase != open || s.peerClosed:
		return // what follows close_notify is ignored (RFC 8446 section 6.1)
	case !s.canRead() || s.isWhole(s.held):
		s.hold(p)
	default:
		s.feed(p)
	}
	s.pump()
}

// pump decrypts what was held back and tells what follows.
func (s *Stream) pump() {
	if s.busy {
		return
	}
	for s.phase == open && s.canRead() && s.isWhole(s.held) {
		b := s.held
		s.held = nil
		s.feed(b)
		s.local.give(b)
	}
	s.conclude()
}

// conclude tells the end, once all before it has been told.
func (s *Stream) conclude() {
	switch {
	case s.phase != open || !s.canRead():
	case s.peerClosed:
		if !s.endTold {
			s.endTold = true
			s.owner.Ended()
		}
	case s.underEnded:
		s.fail(fmt.Errorf("tls: truncated, no close_notify: %w", stream.ErrReset), stream.Stream.Abort)
	}
}

// feed decrypts the records in p and tells the owner, in as few calls as the
// buffer allows. What cannot be decrypted now is held.
func (s *Stream) feed(p []byte) {
	l := s.local
	if l.plain == nil {
		l.plain = make([]byte, plainSize)
	}
	s.busy = true
	s.wire.answers = 0
	filled := 0
	var err error
	for err == nil && len(p) > 0 && s.phase == open && s.canRead() {
		var record, own []byte
		if len(s.held) == 0 {
			if !s.isWhole(p) {
				break
			}
			size := s.size(p)
			record, p = p[:size], p[size:]
		} else {
			n := min(s.size(s.held)-len(s.held), len(p))
			s.hold(p[:n])
			p = p[n:]
			if !s.isWhole(s.held) {
				continue
			}
			own, s.held = s.held, nil
			record = own
		}
		var n int
		n, err = s.decrypt(record, l.plain[filled:])
		filled += n
		l.give(own)
		if plainSize-filled < maxPlaintext {
			s.owner.Received(l.plain[:filled])
			filled = 0
		}
	}
	l.inside.release(s.conn)
	if filled > 0 && s.phase == open {
		s.owner.Received(l.plain[:filled])
	}
	s.busy = false
	s.settle(p, err)
}

// settle ends a feed: rest was not decrypted, err is why reading stopped.
func (s *Stream) settle(rest []byte, err error) {
	switch {
	case s.phase != open:
	case errors.Is(err, io.EOF):
		s.peerClosed = true
	case err != nil:
		s.fail(protocolError(err), stream.Stream.Close)
	default:
		s.hold(rest)
		if s.wire.answers > maxAnswers && !s.stalled {
			s.stalled = true
			s.under.SetReading(false)
		}
	}
}

// decrypt gives one record to crypto/tls. It returns the plaintext in dst,
// which has room for it; none when the record was not one of data. The end
// that crypto/tls reports is always close_notify, for wire.Read has no end.
func (s *Stream) decrypt(record, dst []byte) (int, error) {
	if !s.local.inside.lend(s.conn, record) {
		s.wire.view = record
	}
	n, err := s.conn.Read(dst)
	if err == errAgain { //nolint:errorlint // crypto/tls gives it as it is, and this is every read
		err = nil
	}
	return n, err
}

// setLimits notes what records have to be like from now on, so that cutting
// agrees with crypto/tls about those that it refuses by their header.
func (s *Stream) setLimits() {
	s.vers, s.maxRecord = s.conn.ConnectionState().Version, maxCiphertext
	if s.vers == tls.VersionTLS13 {
		s.vers, s.maxRecord = tls.VersionTLS12, maxCiphertext13
	}
}

// size is how much of b crypto/tls needs for its next step: a record, or only
// the header when that is not whole yet or will be refused.
func (s *Stream) size(b []byte) int {
	if len(b) < headerSize || uint16(b[1])<<8|uint16(b[2]) != s.vers {
		return headerSize
	}
	n := int(b[3])<<8 | int(b[4])
	if n > s.maxRecord {
		return headerSize
	}
	return headerSize + n
}

func (s *Stream) isWhole(b []byte) bool { return len(b) >= headerSize && len(b) >= s.size(b) }

// hold keeps a copy of ciphertext for later.
func (s *Stream) hold(p []byte) {
	if len(p) == 0 {
		return
	}
	if need := len(s.held) + len(p); need > cap(s.held) {
		b := append(s.local.take(max(need, s.sizeOf(p))), s.held...)
		s.local.give(s.held)
		s.held = b
	}
	s.held = append(s.held, p...)
}

// sizeOf is the size of the record that is being held, p added; less while
// its header is not whole.
func (s *Stream) sizeOf(p []byte) int {
	if len(s.held) >= headerSize {
		return s.size(s.held)
	}
	if len(s.held) == 0 {
		return s.size(p)
	}
	return headerSize
}

// take is an empty buffer for n bytes of cut records.
func (l *Local) take(n int) []byte {
	if n <= smallRecord || n > largeRecord {
		return make([]byte, 0, n)
	}
	if last := len(l.spare) - 1; last >= 0 {
		b := l.spare[last]
		l.spare = l.spare[:last]
		return b
	}
	return make([]byte, 0, largeRecord)
}

// give takes a buffer of take back.
func (l *Local) give(b []byte) {
	if cap(b) == largeRecord && len(l.spare) < maxSpare {
		l.spare = append(l.spare, b[:0])
	}
}
