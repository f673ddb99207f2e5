package session

import (
	"fmt"
	"math"
	"slices"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/netio"
	"penstock/netio/relay"
)

// maxJoined is the size up to which a frame is joined to be sent in one write.
const maxJoined = 64 << 10

// ToBroker implements filter.Sink.
func (s *Session) ToBroker(c *filter.Call) error {
	if c.Own() {
		if s.client.inFrame() {
			s.queuedOwn = append(s.queuedOwn, c) // between two requests
			return nil
		}
		s.sendOwn(c)
		return nil
	}
	l := &s.client
	head, tail := c.Message().Parts()
	l.size = l.headerLen + len(head) + len(tail)
	s.enqueue(l.size)
	s.sendFrame(upstreamSide, l.buf.b[:l.headerLen], head, tail)
	s.requestSent()
	return nil
}

// sendOwn sends a filter's own request.
func (s *Session) sendOwn(c *filter.Call) {
	if s.ownID++; s.ownID == math.MaxInt32 {
		s.ownID = 1
	}
	body := c.Message().Body()
	header := wire.AppendRequestHeader(nil, c.Key(), c.Version(), -s.ownID, c.ClientID(), len(body))
	now := s.now()
	s.inFlight.push(inFlightRequest{
		call: c, start: now, sent: now, correlation: -s.ownID, size: int32(len(header) + len(body)), key: c.Key(), version: c.Version(),
	})
	s.sendFrame(upstreamSide, header, body, nil)
}

// ToClient implements filter.Sink.
func (s *Session) ToClient(c *filter.Call) error {
	head, tail := c.Message().Parts()
	if c != s.reply.call {
		s.answer(head, tail)
		c.Done()
		return nil
	}
	l := &s.upstream
	s.sendFrame(clientSide, l.buf.b[:l.headerLen], head, tail)
	s.endReply(l.headerLen + len(head) + len(tail))
	return nil
}

// Dropped implements filter.Sink.
func (s *Session) Dropped(c *filter.Call) error {
	r := &s.request
	s.host.Exchanged(Exchange{Key: r.key, Version: r.version, Correlation: r.correlation, Answered: true, Request: s.client.size, Total: s.now() - r.start})
	c.Done()
	s.endRequest()
	return nil
}

// sendFrame sends a frame with a header, whose size it sets, and a body in two
// pieces.
func (s *Session) sendFrame(to relay.Side, header, head, tail []byte) {
	n := len(header) + len(head)
	if n+len(tail) <= maxJoined {
		n += len(tail)
	}
	out := newBuffer(n)
	defer out.release()
	b := appendSized(out.b, header, len(head)+len(tail))
	b = append(b, head...)
	if n > len(b) {
		b, tail = append(b, tail...), nil
	}
	s.send(to, b)
	s.send(to, tail)
}

// reorderBuffer holds what the broker sends while a response waits in the chain
// for the answer to a question. Responses are kept until their turn; answers to
// questions are taken out.
type reorderBuffer struct {
	raw      []byte
	wholeLen int // raw[:wholeLen] are whole frames of others,
	skipped  int // which belong to that many of inFlight
	charged  int64
}

func (s *Session) reordering(l *direction) bool { return l.from == upstreamSide && s.reorder != nil }

func (s *Session) startReordering() {
	s.reorder = &reorderBuffer{}
	s.client.block |= blockedByResponse // or what is kept would have no bound
}

// feedReordering takes bytes from the broker while a response waits.
func (s *Session) feedReordering(p []byte) {
	d := s.reorder
	d.raw = append(d.raw, p...)
	s.chargeReordering()
	for s.reorder == d && !s.closed {
		data := d.raw[d.wholeLen:]
		size, correlation, need, err := wire.PeekResponse(data)
		if err != nil {
			s.fail(BadFrame, err)
			return
		}
		frame := 4 + int(size)
		if need == 0 && frame-4 > s.settings.Limits.MaxFrame {
			s.fail(FrameTooLarge, fmt.Errorf("%w: a response of %d bytes while another is pending, at most %d",
				errTooLarge, size, s.settings.Limits.MaxFrame))
			return
		}
		if need == 0 && !s.checkFits(frame) {
			return
		}
		if need > 0 || len(data) < frame {
			return
		}
		for d.skipped < s.inFlight.len() && s.inFlight.at(d.skipped).answeredLocally {
			d.skipped++
		}
		if err := s.checkTurn(d.skipped, correlation); err != nil {
			s.fail(Correlation, err)
			return
		}
		if f := s.inFlight.at(d.skipped); f.call == nil || !f.call.Own() {
			d.skipped++
			d.wholeLen += frame
			continue
		}
		s.takeOwnAnswer(data[:frame])
	}
}

// chargeReordering charges the buffer to the budget, or stops reading from the
// broker until it can.
func (s *Session) chargeReordering() {
	d := s.reorder
	if size := int64(cap(d.raw)); size > unchargedBuffer && size > d.charged {
		if s.conn.Reserve(netio.Bulk, size-d.charged) {
			d.charged = size
		} else {
			s.upstream.block |= blockedByMemory
		}
	}
}

// takeOwnAnswer takes the answer to a question out of the buffer.
func (s *Session) takeOwnAnswer(frame []byte) {
	d := s.reorder
	f := s.inFlight.remove(d.skipped)
	frame = slices.Clone(frame)
	d.raw = slices.Delete(d.raw, d.wholeLen, d.wholeLen+len(frame))
	head, _, err := wire.ResponseHeaderLen(frame, f.key, f.version)
	if err != nil || head > len(frame) {
		f.call.Abandon()
		s.fail(BadFrame, err)
		return
	}
	s.respondOwn(f, len(frame), frame[head:])
}

// endReordering puts the kept responses back, to be read in their turn.
func (s *Session) endReordering() {
	if d := s.reorder; d != nil {
		raw := d.raw
		s.dropReordering()
		s.upstream.held = append(raw, s.upstream.held...)
		s.upstream.block &^= blockedByMemory
	}
}

func (s *Session) dropReordering() {
	if d := s.reorder; d != nil {
		if d.charged > 0 {
			s.conn.Release(d.charged)
		}
		s.reorder = nil
	}
}
