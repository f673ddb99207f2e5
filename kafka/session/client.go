package session

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/netio"
)

// request is the client's request that is on its way to the broker, or
// collected.
type request struct {
	active        bool
	call          *filter.Call // nil: no filter is concerned
	key, version  int16
	correlation   int32
	noResponse    bool
	queued        bool // it is the last in inFlight
	answerLocally bool // the session itself answers it: see localAnswer
	start         time.Duration
}

// requestHeader takes the beginning of a request.
func (s *Session) requestHeader(p []byte) int {
	l := &s.client
	if l.buf == nil {
		s.updateChain()
	}
	data, n := l.gatherHeader(p)
	if len(data) < l.need {
		return n
	}
	h, need, err := wire.PeekRequest(data)
	if why, fault := s.check(&h, data, err); fault != nil {
		s.fail(why, fault)
		return n
	}
	acks := int16(-1)
	if need == 0 && h.Key == int16(kmsg.Produce) {
		end := min(len(data), h.FrameLen())
		if acks, need, err = wire.ProduceAcks(h.Version, data[h.HeaderLen:end]); err == nil && need > h.BodyLen() {
			err = fmt.Errorf("%w: Produce of %d bytes", wire.ErrMalformed, h.Size)
		}
		if err != nil {
			s.fail(BadFrame, err)
			return n
		}
		if need > 0 {
			need += h.HeaderLen
		} else {
			s.peer.recordProduce(h.Version, data[h.HeaderLen:end], s.now())
		}
	}
	if need > 0 {
		if need > unchargedHeader && !s.reserve(l, need) {
			return n
		}
		return l.keepHeader(p, n, need)
	}
	return n + s.beginRequest(&h, data, acks == 0)
}

// check validates as much of a header as there is.
func (s *Session) check(h *wire.RequestHeader, data []byte, err error) (netio.Reason, error) {
	if s.requests == 0 && len(data) >= 4 {
		if guess := wire.GuessProtocol(data); guess != "" {
			return NotKafka, fmt.Errorf("%w: it looks like %s", errNotKafka, guess)
		}
	}
	if err != nil {
		return BadFrame, err
	}
	if h.Size < 0 {
		return netio.OK, nil
	}
	if limit := s.settings.Limits.MaxFrame; int64(h.Size) > int64(limit) {
		return FrameTooLarge, fmt.Errorf("%w: a request of %d bytes, at most %d", errTooLarge, h.Size, limit)
	}
	if len(data) < 12 {
		return netio.OK, nil
	}
	if limit := s.peer.maxRequest(h.Key, &s.settings.Limits); int64(h.Size) > int64(limit) {
		return FrameTooLarge, fmt.Errorf("%w: %s of %d bytes before the client has authenticated, at most %d",
			errTooLarge, wire.Name(h.Key), h.Size, limit)
	}
	chain := s.conns.Chain()
	switch offered := chain.Offered(h.Key); {
	case chain.Offers(h.Key, h.Version), h.Key == int16(kmsg.ApiVersions):
		return netio.OK, nil
	case offered == filter.Hidden:
		if why := wire.Withheld(h.Key); why != "" {
			return UnknownAPI, fmt.Errorf("%s (key %d) is %w: %s", wire.Name(h.Key), h.Key, errNotOffered, why)
		}
		return UnknownAPI, fmt.Errorf("%s (key %d) is %w", wire.Name(h.Key), h.Key, errNotOffered)
	default:
		return UnsupportedVersion, fmt.Errorf("%s v%d is %w: v%d to v%d are", wire.Name(h.Key), h.Version, errNotOffered,
			offered.Min, offered.Max)
	}
}

// beginRequest decides whether a request passes, is walked or is collected,
// once its header is there. It returns how many bytes it took of data, unless
// the buffer of the direction has them.
func (s *Session) beginRequest(h *wire.RequestHeader, data []byte, noResponse bool) int {
	l, chain := &s.client, s.conns.Chain()
	s.requests++
	s.peer.setClientID(h.ClientID)
	s.chargeRequest(h)
	s.request = request{
		active: true, key: h.Key, version: h.Version, correlation: h.Correlation, noResponse: noResponse, start: s.now(),
		answerLocally: !chain.Offers(h.Key, h.Version) || s.needsRebootstrap(h.Key, h.Version),
	}
	interest := chain.Interest(filter.Request, h.Key, h.Version)
	if chain.Concerns(h.Key, h.Version) && !s.request.answerLocally {
		s.request.call = s.conns.Begin(h.Key, h.Version, s.peer.clientID, noResponse)
	}
	if inspects(h.Key) || s.request.answerLocally {
		interest = filter.Whole
	}
	var edits *filter.Edits
	if interest == filter.Walk && s.collectable(h.FrameLen()) && s.request.call.MayBuffer() {
		interest = filter.Whole
	}
	if interest == filter.Walk {
		if edits = s.request.call.Edits(filter.Request); edits == nil {
			interest = filter.Nothing
		}
	}
	if interest == filter.Whole {
		if limit := s.settings.Limits.maxEarly(h.Key); !s.peer.trusted && int64(h.Size) > int64(limit) {
			s.fail(FrameTooLarge, fmt.Errorf("%w: %s of %d bytes before the broker has answered anything, at most %d",
				errTooLarge, wire.Name(h.Key), h.Size, limit))
			return 0
		}
		s.startCollecting(l, h.FrameLen(), h.HeaderLen)
		return 0
	}
	s.enqueue(h.FrameLen())
	if interest == filter.Walk {
		return s.startWalk(l, h.FrameLen(), h.HeaderLen, data, edits)
	}
	s.startStreaming(l, h.FrameLen())
	return 0
}

// enqueue adds the request to the queue of those in flight, unless it expects
// no response.
func (s *Session) enqueue(size int) {
	r := &s.request
	s.peer.recordRequest(r.key)
	if r.noResponse {
		return
	}
	r.queued = true
	s.inFlight.push(inFlightRequest{
		call: r.call, start: r.start, correlation: r.correlation, size: int32(size), key: r.key, version: r.version,
	})
}

// requestSent is called when all of a request has gone to the broker.
func (s *Session) requestSent() {
	now, r := s.now(), &s.request
	if r.queued {
		s.inFlight.last().sent = now
	} else {
		s.host.Exchanged(Exchange{Key: r.key, Version: r.version, Correlation: r.correlation, Request: s.client.size, Total: now - r.start, Sent: now - r.start})
		if r.call != nil {
			r.call.Done()
		}
	}
	s.endRequest()
}

// endRequest prepares for the next request.
func (s *Session) endRequest() {
	s.request = request{}
	s.client.endFrame(s.conn)
	s.client.block &^= blockedByFilter
	if s.inFlight.len() >= s.settings.Limits.MaxInFlight || s.answerBytes >= maxAnswers {
		s.client.block |= blockedByInFlight
	}
	s.holdBack()
	for len(s.queuedOwn) > 0 && !s.closed {
		c := s.queuedOwn[0]
		s.queuedOwn = s.queuedOwn[1:]
		s.sendOwn(c)
	}
	s.queuedOwn = nil
}

// requestCollected handles a request that is collected.
func (s *Session) requestCollected() {
	l, r := &s.client, &s.request
	frame := l.buf.b
	body := frame[l.headerLen:]
	s.flush(l)
	if r.answerLocally {
		s.answer(s.localAnswer(r.key), nil)
		return
	}
	if err := s.peer.inspectRequest(r.key, r.version, body); err != nil {
		s.fail(BadFrame, err)
		return
	}
	if r.call == nil || r.call.Interest(filter.Request) == filter.Nothing {
		s.enqueue(len(frame))
		s.send(l.from.Other(), frame)
		s.requestSent()
		return
	}
	if err := r.call.Request(body); err != nil {
		s.filterFailed(err)
		return
	}
	if r.active && r.call != nil && r.call.Waiting() {
		l.block |= blockedByFilter
	}
}

// localAnswer returns the body of an answer that needs neither broker nor
// filters: to ApiVersions of a version that is not offered, or to Metadata from
// a client that is to bootstrap again.
func (s *Session) localAnswer(key int16) []byte {
	if key == keyMetadata {
		return s.rebootstrap()
	}
	offered := s.conns.Chain().Offered(key)
	return wire.AppendUnsupportedApiVersions(nil, offered.Min, offered.Max)
}

// answer queues an answer to the client's request, which leaves in its turn.
func (s *Session) answer(head, tail []byte) {
	r := &s.request
	frame := wire.AppendResponseHeader(make([]byte, 0, 16+len(head)+len(tail)), r.key, r.version, r.correlation, len(head)+len(tail))
	frame = append(append(frame, head...), tail...)
	setThrottle(r.key, r.version, frame[len(frame)-len(head)-len(tail):], s.throttle())
	s.answerBytes += len(frame)
	code, _ := outcome(r.key, r.version, frame[len(frame)-len(head)-len(tail):])
	s.inFlight.push(inFlightRequest{
		answer: frame, answeredLocally: true, answerCode: code, start: r.start, correlation: r.correlation,
		size: int32(s.client.size), key: r.key, version: r.version,
	})
	s.endRequest()
	s.flushAnswers()
}

// flushAnswers sends the answers whose turn it is.
func (s *Session) flushAnswers() {
	for !s.closed && s.upstream.state == readingHeader && !s.reply.active && s.inFlight.len() > 0 && s.inFlight.first().answeredLocally {
		f := s.inFlight.pop()
		s.answerBytes -= len(f.answer)
		s.send(clientSide, f.answer)
		s.host.Exchanged(Exchange{
			Key: f.key, Version: f.version, Correlation: f.correlation, Answered: true, Error: f.answerCode, Request: int(f.size),
			Response: len(f.answer), Total: s.now() - f.start,
		})
	}
}

// appendSized appends a header, with the size of a frame that has body bytes behind
// it.
func appendSized(dst, header []byte, body int) []byte {
	dst = append(dst, header...)
	binary.BigEndian.PutUint32(dst[len(dst)-len(header):], uint32(len(header)-4+body))
	return dst
}
