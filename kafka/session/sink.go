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

// joinLimit is the size up to which a frame is joined to be sent in one write.
const joinLimit = 64 << 10

// ToBroker implements filter.Sink.
func (s *Session) ToBroker(c *filter.Call) error {
	if c.Own() {
		if s.client.inFrame() {
			s.own = append(s.own, c) // between two requests
			return nil
		}
		s.sendOwn(c)
		return nil
	}
	l := &s.client
	head, tail := c.Message().Parts()
	l.size = l.head + len(head) + len(tail)
	s.enqueue(l.size)
	s.sendFrame(upstreamSide, l.buf.b[:l.head], head, tail)
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
	s.sendFrame(clientSide, l.buf.b[:l.head], head, tail)
	s.endReply(l.head + len(head) + len(tail))
	return nil
}

// Dropped implements filter.Sink.
func (s *Session) Dropped(c *filter.Call) error {
	r := &s.request
	s.host.Exchanged(Exchange{Key: r.key, Version: r.version, Answered: true, Request: s.client.size, Total: s.now() - r.start})
	c.Done()
	s.endRequest()
	return nil
}

// sendFrame sends a frame with a header, whose size it sets, and a body in two
// pieces.
func (s *Session) sendFrame(to relay.Side, header, head, tail []byte) {
	n := len(header) + len(head)
	if n+len(tail) <= joinLimit {
		n += len(tail)
	}
	out := newBuffer(n)
	defer out.release()
	b := sized(out.b, header, len(head)+len(tail))
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
	raw     []byte
	at      int // raw[:at] are whole frames of others,
	skipped int // to that many of inFlight
	charged int64
}

func (s *Session) reordering(l *direction) bool { return l.from == upstreamSide && s.reorder != nil }

func (s *Session) startReordering() {
	s.reorder = &reorderBuffer{}
	s.client.block |= forReply // or what is kept would have no bound
}

// reorderFeed takes bytes from the broker while a response waits.
func (s *Session) reorderFeed(p []byte) {
	d := s.reorder
	d.raw = append(d.raw, p...)
	s.chargeReordering()
	for s.reorder == d && !s.closed {
		data := d.raw[d.at:]
		size, correlation, need, err := wire.PeekResponse(data)
		if err != nil {
			s.fail(BadFrame, err)
			return
		}
		frame := 4 + int(size)
		if need == 0 && frame-4 > s.set.Limits.MaxFrame {
			s.fail(FrameTooLarge, fmt.Errorf("%w: a response of %d bytes while another is pending, at most %d",
				errTooLarge, size, s.set.Limits.MaxFrame))
			return
		}
		if need == 0 && !s.fits(frame) {
			return
		}
		if need > 0 || len(data) < frame {
			return
		}
		for d.skipped < s.inFlight.len() && s.inFlight.at(d.skipped).answered {
			d.skipped++
		}
		if err := s.turn(d.skipped, correlation); err != nil {
			s.fail(Correlation, err)
			return
		}
		if f := s.inFlight.at(d.skipped); f.call == nil || !f.call.Own() {
			d.skipped++
			d.at += frame
			continue
		}
		s.reorderOwn(data[:frame])
	}
}

// chargeReordering charges the buffer to the budget, or stops reading from the
// broker until it can.
func (s *Session) chargeReordering() {
	d := s.reorder
	if size := int64(cap(d.raw)); size > freeBuffer && size > d.charged {
		if s.conn.Reserve(netio.Bulk, size-d.charged) {
			d.charged = size
		} else {
			s.upstream.block |= forMemory
		}
	}
}

// reorderOwn takes the answer to a question out of the buffer.
func (s *Session) reorderOwn(frame []byte) {
	d := s.reorder
	f := s.inFlight.remove(d.skipped)
	frame = slices.Clone(frame)
	d.raw = slices.Delete(d.raw, d.at, d.at+len(frame))
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
		s.upstream.block &^= forMemory
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
