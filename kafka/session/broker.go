package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/netio/relay"
)

const (
	clientSide   = relay.Client
	upstreamSide = relay.Upstream
)

// reply is the response that is on its way to the client, or collected.
type reply struct {
	inFlightRequest
	active    bool
	broker    time.Duration // that it took to begin
	errorCode int16         // its error code
	throttled bool          // the broker slows the client down
	throttle  int32         // that Penstock sets, in ms
}

// responseHeader takes the beginning of a response, and finds its request.
func (s *Session) responseHeader(p []byte) int {
	l := &s.upstream
	data, n := l.gatherHeader(p)
	if len(data) < l.need {
		return n
	}
	size, correlation, need, err := wire.PeekResponse(data)
	if err != nil {
		s.fail(BadFrame, err)
		return n
	}
	if need > 0 {
		return l.keepHeader(p, n, need)
	}
	if err := s.checkTurn(0, correlation); err != nil {
		s.fail(Correlation, err)
		return n
	}
	f := s.inFlight.first()
	head, need, err := wire.ResponseHeaderLen(data, f.key, f.version)
	if err != nil {
		s.fail(BadFrame, fmt.Errorf("response to %s v%d: %w", wire.Name(f.key), f.version, err))
		return n
	}
	if need = max(need, s.throttleEnd(f, 4+int(size), head)); need > len(data) {
		return l.keepHeader(p, n, need)
	}
	return n + s.beginResponse(4+int(size), head, data)
}

// checkTurn checks that a response belongs to the i-th request.
func (s *Session) checkTurn(i int, correlation int32) error {
	if s.inFlight.len() <= i || s.inFlight.at(i).answeredLocally {
		return fmt.Errorf("%w: correlation id %d, but no request is in flight", errCorrelation, correlation)
	}
	switch f := s.inFlight.at(i); {
	case f.sent == 0:
		return fmt.Errorf("%w: %s v%d was answered before it was sent", errCorrelation, wire.Name(f.key), f.version)
	case f.correlation != correlation:
		return fmt.Errorf("%w: correlation id %d, want %d of %s v%d", errCorrelation, correlation, f.correlation, wire.Name(f.key), f.version)
	}
	return nil
}

// beginResponse decides whether a response passes, is walked or is collected,
// once its header is there. It returns the same as beginRequest.
func (s *Session) beginResponse(size, head int, data []byte) int {
	l, r := &s.upstream, &s.reply
	*r = reply{inFlightRequest: s.inFlight.pop(), active: true}
	r.broker = s.now() - r.sent
	throttle, collect := s.chargeResponse(&r.inFlightRequest, size)
	r.throttle = throttle
	interest := filter.Nothing
	var edits *filter.Edits
	if r.call != nil {
		interest = r.call.Interest(filter.Response)
	}
	switch {
	case inspects(r.key) || collect || r.call != nil && r.call.Own():
		interest = filter.Whole
	case interest == filter.Walk:
		if edits = r.call.Edits(filter.Response); edits == nil {
			interest = filter.Nothing
		}
	}
	switch interest {
	case filter.Whole:
		if limit := s.settings.Limits.MaxFrame; size-4 > limit {
			s.fail(FrameTooLarge, fmt.Errorf("%w: a response to %s of %d bytes, at most %d", errTooLarge, wire.Name(r.key), size-4, limit))
			return 0
		}
		s.startCollecting(l, size, head)
		return 0
	case filter.Walk:
		r.recordOutcome(data[head:min(size, len(data))])
		setThrottle(r.key, r.version, data[head:min(size, len(data))], r.throttle)
		return s.startWalk(l, size, head, data, edits)
	default:
		r.recordOutcome(data[head:min(size, len(data))])
		setThrottle(r.key, r.version, data[head:min(size, len(data))], r.throttle)
		s.startStreaming(l, size)
		return 0
	}
}

// responseSent is called when all of a streaming response was sent.
func (s *Session) responseSent() { s.endReply(s.upstream.size) }

// endReply ends an exchange. size bytes went to the client.
func (s *Session) endReply(size int) {
	r := s.reply
	s.reply = reply{}
	s.upstream.endFrame(s.conn)
	if r.call != nil {
		r.call.Done()
	}
	s.peer.recordResponse(r.key)
	s.host.Exchanged(Exchange{
		Key: r.key, Version: r.version, Correlation: r.correlation, Error: r.errorCode, Throttled: r.throttled,
		Request: int(r.size), Response: size, Total: s.now() - r.start, Broker: r.broker, Sent: r.sent - r.start,
	})
	s.client.block &^= blockedByResponse
	s.endReordering()
	s.flush(&s.upstream)
	s.flushAnswers()
}

// responseCollected handles a response that is collected.
func (s *Session) responseCollected() {
	l, r := &s.upstream, &s.reply
	frame := l.buf.b
	body := frame[l.headerLen:]
	s.flush(l)
	if r.call != nil && r.call.Own() {
		own := r.inFlightRequest
		size := l.size
		l.buf = nil // it may be looked at for longer than the answer lives here
		s.reply = reply{}
		l.endFrame(s.conn)
		s.respondOwn(own, size, body)
		return
	}
	r.recordOutcome(body)
	setThrottle(r.key, r.version, body, r.throttle)
	if err := s.peer.inspectResponse(r.key, r.version, body); err != nil {
		why := BadFrame
		if errors.Is(err, filter.ErrDenied) {
			why = Denied
		}
		s.fail(why, err)
		return
	}
	if r.call == nil || r.call.Interest(filter.Response) == filter.Nothing {
		s.forwardCollected(frame, body)
		return
	}
	if err := r.call.Respond(body); err != nil {
		s.filterFailed(err)
		return
	}
	if r.active && r.call != nil && r.call.Waiting() {
		s.startReordering()
	}
}

// forwardCollected sends a response that only the session wanted to see. It narrows
// the offer of ApiVersions.
func (s *Session) forwardCollected(frame, body []byte) {
	l := &s.upstream
	if s.reply.key != int16(kmsg.ApiVersions) {
		s.send(clientSide, frame)
		s.endReply(len(frame))
		return
	}
	scratch := newBuffer(len(body))
	defer scratch.release()
	narrowed, err := s.conns.Chain().NarrowVersions(scratch.b, s.reply.version, body)
	if err != nil {
		s.fail(BadFrame, err)
		return
	}
	s.sendFrame(clientSide, frame[:l.headerLen], narrowed, nil)
	s.endReply(l.size)
}

// respondOwn gives a filter the answer to its question.
func (s *Session) respondOwn(f inFlightRequest, size int, body []byte) {
	s.host.Exchanged(Exchange{
		Key: f.key, Version: f.version, Own: true, Request: int(f.size), Response: size, Total: s.now() - f.start, Broker: s.now() - f.sent,
	})
	if err := f.call.Respond(body); err != nil {
		s.filterFailed(err)
		f.call.Abandon()
	}
}

// filterFailed ends the connection: a message that a filter was to see never
// goes on without it.
func (s *Session) filterFailed(err error) { s.fail(reasonOf(err), err) }

// recordOutcome records the error of the response and whether it throttles the
// client. body may be its beginning only.
func (r *reply) recordOutcome(body []byte) {
	r.errorCode, r.throttled = outcome(r.key, r.version, body)
}
