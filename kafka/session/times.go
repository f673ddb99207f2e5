package session

import (
	"fmt"
	"time"

	"penstock/kafka/wire"
	"penstock/netio"
	"penstock/netio/reactor"
	"penstock/netio/relay"
)

// watch starts the deadlines of frames that are not complete, and of the
// question that the broker is to answer next.
func (s *Session) watch() {
	for _, l := range [...]*direction{&s.client, &s.upstream} {
		switch {
		case !l.unfinished():
			l.since = 0
		case l.since == 0:
			l.since = s.now()
			s.arm(s.frameTimeout(l))
		}
	}
	switch q := s.question(); {
	case q == nil:
		s.asked = asked{}
	case s.asked.id != q.correlation:
		s.asked = asked{q.correlation, s.now()}
		s.arm(s.set.Limits.AskTimeout)
	}
}

// unfinished reports whether a frame has begun and must be complete to go on,
// or waits for memory.
func (l *direction) unfinished() bool {
	return l.state == heading && l.buf != nil || l.state == collecting && l.left > 0 || l.block&forMemory != 0
}

// frameTimeout is the time for the frame that a direction is in.
func (s *Session) frameTimeout(l *direction) time.Duration {
	if l.from == relay.Client && !s.peer.trusted && (l.state == heading || s.request.key != keyProduce) {
		return s.set.Limits.FrameTimeoutEarly
	}
	return s.set.Limits.FrameTimeout
}

// asked is the question whose answer is due.
type asked struct {
	id    int32 // its correlation id, which is negative; 0: there is none
	since time.Duration
}

// question returns the filter's request that the broker is to answer next. It
// returns nil if there is none, if another response is due first, or if the
// client does not take what comes before.
func (s *Session) question() *inFlightRequest {
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
		if f := s.inFlight.at(i); !f.answered {
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
	if due := s.now() + d; s.due == 0 || due < s.due {
		s.due = due
		s.conn.Arm(&s.timer, d)
	}
}

// Expired implements reactor.Expirer.
func (s *Session) Expired(*reactor.Timer) { s.conn.Guard(s.expired) }

func (s *Session) expired() {
	s.due = 0
	if s.lateFrame() || s.lateAnswer() {
		return
	}
	s.leaveInTime()
}

// lateFrame ends the connection if a frame takes too long.
func (s *Session) lateFrame() bool {
	now := s.now()
	for _, l := range [...]*direction{&s.client, &s.upstream} {
		if l.since == 0 {
			continue
		}
		limit := s.frameTimeout(l)
		left := l.since + limit - now
		switch {
		case left > 0:
		case l.block&forMemory != 0:
			s.fail(netio.LimitMemory, fmt.Errorf("%w of %d bytes", errMemory, l.size))
			return true
		case !l.reading: // the other side's fault
			l.since, left = now, limit
		default:
			s.fail(FrameTimeout, fmt.Errorf("%w: %d of %d bytes from the %s in %v", errTimeout, len(l.have()), max(l.size, l.need), l.from, limit))
			return true
		}
		s.arm(left)
	}
	return false
}

// lateAnswer ends the connection if the broker does not answer a filter's
// question in time. Clients give up their own requests by themselves; nobody
// else would give up this one and what waits for it.
func (s *Session) lateAnswer() bool {
	q := s.question()
	if q == nil || q.correlation != s.asked.id {
		return false
	}
	limit := s.set.Limits.AskTimeout
	if left := s.asked.since + limit - s.now(); left > 0 {
		s.arm(left)
		return false
	}
	s.fail(AskTimeout, fmt.Errorf("%w: %s v%d, in %v", errUnanswered, wire.Name(q.key), q.version, limit))
	return true
}

// epoch is the origin of the sessions' clock.
var epoch = time.Now()

func (s *Session) now() time.Duration {
	if s.set.clock != nil {
		return s.set.clock()
	}
	return time.Since(epoch)
}
