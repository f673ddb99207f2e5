package session

import (
	"fmt"
	"time"

	"penstock/kafka/wire"
	"penstock/netio"
	"penstock/netio/reactor"
	"penstock/netio/relay"
)

// armDeadlines starts the deadlines of frames that are not complete, and of the
// question that the broker is to answer next.
func (s *Session) armDeadlines() {
	for _, l := range [...]*direction{&s.client, &s.upstream} {
		switch {
		case !l.unfinished():
			l.startedAt = 0
		case l.startedAt == 0:
			l.startedAt = s.now()
			s.arm(s.frameTimeout(l))
		}
	}
	switch q := s.dueOwnRequest(); {
	case q == nil:
		s.dueAnswer = dueAnswer{}
	case s.dueAnswer.id != q.correlation:
		s.dueAnswer = dueAnswer{q.correlation, s.now()}
		s.arm(s.settings.Limits.AskTimeout)
	}
}

// unfinished reports whether a frame has begun and must be complete to go on,
// or waits for memory.
func (l *direction) unfinished() bool {
	return l.state == readingHeader && l.buf != nil || l.state == collecting && l.left > 0 || l.block&blockedByMemory != 0
}

// frameTimeout is the time for the frame that a direction is in.
func (s *Session) frameTimeout(l *direction) time.Duration {
	if l.from == relay.Client && !s.peer.trusted && (l.state == readingHeader || s.request.key != keyProduce) {
		return s.settings.Limits.FrameTimeoutEarly
	}
	return s.settings.Limits.FrameTimeout
}

// dueAnswer identifies the filter's request whose response is due next.
type dueAnswer struct {
	id    int32 // its correlation id, which is negative; 0: there is none
	since time.Duration
}

// dueOwnRequest returns the filter's request that the broker is to answer next. It
// returns nil if there is none, if another response is due first, or if the
// client does not take what comes before.
func (s *Session) dueOwnRequest() *inFlightRequest {
	i := 0
	switch {
	case s.inFlight.len() == 0 || !s.upstream.reading:
		return nil
	case s.reorder != nil:
		i = s.reorder.skipped
	case s.reply.active:
		return nil
	}
	for ; i < s.inFlight.len(); i++ {
		if f := s.inFlight.at(i); !f.answeredLocally {
			if f.call == nil || !f.call.Own() {
				return nil
			}
			return f
		}
	}
	return nil
}

// arm sets the timer to expire after d at the latest.
func (s *Session) arm(d time.Duration) {
	if due := s.now() + d; s.timerDue == 0 || due < s.timerDue {
		s.timerDue = due
		s.conn.Arm(&s.timer, d)
	}
}

// Expired implements reactor.Expirer.
func (s *Session) Expired(*reactor.Timer) { s.conn.Guard(s.expired) }

func (s *Session) expired() {
	s.timerDue = 0
	if s.checkFrameTimeout() || s.checkAskTimeout() {
		return
	}
	if s.client.block&blockedByLimit != 0 {
		s.inEvent = true
		s.finishEvent()
	}
	s.leaveOrArm()
}

// checkFrameTimeout ends the connection if a frame takes too long.
func (s *Session) checkFrameTimeout() bool {
	now := s.now()
	for _, l := range [...]*direction{&s.client, &s.upstream} {
		if l.startedAt == 0 {
			continue
		}
		limit := s.frameTimeout(l)
		left := l.startedAt + limit - now
		switch {
		case left > 0:
		case l.block&blockedByMemory != 0:
			s.fail(netio.LimitMemory, fmt.Errorf("%w of %d bytes", errMemory, l.size))
			return true
		case !l.reading: // the other side's fault
			l.startedAt, left = now, limit
		default:
			s.fail(FrameTimeout, fmt.Errorf("%w: %d of %d bytes from the %s in %v",
				errTimeout, len(l.buffered()), max(l.size, l.need), l.from, limit))
			return true
		}
		s.arm(left)
	}
	return false
}

// checkAskTimeout ends the connection if the broker does not answer a filter's
// question in time. Clients give up their own requests by themselves; nobody
// else would give up this one and what waits for it.
func (s *Session) checkAskTimeout() bool {
	q := s.dueOwnRequest()
	if q == nil || q.correlation != s.dueAnswer.id {
		return false
	}
	limit := s.settings.Limits.AskTimeout
	if left := s.dueAnswer.since + limit - s.now(); left > 0 {
		s.arm(left)
		return false
	}
	s.fail(AskTimeout, fmt.Errorf("%w: %s v%d, in %v", errUnanswered, wire.Name(q.key), q.version, limit))
	return true
}

// epoch is the origin of the sessions' clock.
var epoch = time.Now()

func (s *Session) now() time.Duration {
	if s.settings.clock != nil {
		return s.settings.clock()
	}
	return time.Since(epoch)
}
