package session

import (
	"time"

	"penstock/netio"
	"penstock/netio/relay"
)

// leave is a request to end the session.
type leave struct {
	wanted bool
	why    netio.Reason
	// earliest is when it may end, at when it must: from Start on moments of the
	// session's clock, before it times from then.
	earliest, deadline time.Duration
}

// Leave asks the session to end for a reason. After that time it ends at its
// next quiet moment, between two requests and outside of a transaction; after
// within more it ends in any case, between two responses if there is such a
// moment. Until it ends, a client that asks for Metadata is told to bootstrap
// again. Another call can only make it end sooner. Only the loop of the
// connection may call it.
func (s *Session) Leave(why netio.Reason, after, within time.Duration) {
	if s.closed {
		return
	}
	now := time.Duration(0)
	if s.conn != nil {
		now = s.now()
	}
	l := leave{wanted: true, why: why, earliest: now + after, deadline: now + after + within}
	if s.leave.wanted {
		l.why, l.earliest, l.deadline = s.leave.why, min(l.earliest, s.leave.earliest), min(l.deadline, s.leave.deadline)
	}
	s.leave = l
	if s.conn != nil {
		s.leaveOrArm()
	}
}

// startLeaving starts the times of a Leave that came before Start.
func (s *Session) startLeaving() {
	now := s.now()
	s.leave.earliest += now
	s.leave.deadline += now
	s.leaveOrArm()
}

// leaveOrArm ends the session, or sets the timer for it.
func (s *Session) leaveOrArm() {
	switch now := s.now(); {
	case !s.leave.wanted || s.closed:
	case now < s.leave.earliest:
		s.arm(s.leave.earliest - now)
	case now < s.leave.deadline:
		s.arm(s.leave.deadline - now)
		if !s.inEvent {
			s.leaveIfIdle()
		}
	default:
		s.flushAll()
		s.conn.End(s.leave.why, !s.upstream.inFrame())
	}
}

func (s *Session) leaveIfIdle() {
	if s.leave.wanted && s.now() >= s.leave.earliest && s.Idle() {
		s.conn.End(s.leave.why, true)
	}
}

// Idle implements netio.Session.
func (s *Session) Idle() bool {
	return s.nothingOwed() && s.client.state == readingHeader && s.client.buf == nil &&
		!s.pending[relay.Client] && !s.pending[relay.Upstream] && !s.peer.inTransaction(s.now())
}

// nothingOwed reports whether nothing is owed to the client.
func (s *Session) nothingOwed() bool {
	return s.inFlight.len() == 0 && !s.reply.active && !s.request.active && len(s.client.held) == 0 && len(s.upstream.held) == 0
}

// Ended implements netio.Session.
func (s *Session) Ended(from relay.Side) {
	s.inEvent = true
	s.direction(from).ended = true
	if from == relay.Upstream {
		// What came has been sent; a response that is cut off must not look
		// complete.
		s.conn.End(netio.UpstreamFIN, !s.upstream.inFrame())
	} else if l := &s.client; l.inFrame() {
		// Its last request will never be whole. What is owed for those
		// before is still to come.
		if s.request.queued {
			s.inFlight.dropLast()
		}
		if c := s.request.call; c != nil {
			c.Done()
		}
		s.request = request{}
	}
	s.finishEvent()
}

// endAfterClientFIN ends the connection of a client that has sent its end, once it
// has got what it is owed. The broker is not told before: it would drop the
// rest of its responses.
func (s *Session) endAfterClientFIN() {
	if !s.client.ended || s.client.block != 0 || len(s.client.held) > 0 {
		return
	}
	if s.inFlight.len() == 0 && !s.reply.active && (!s.request.active || s.client.left > 0) {
		s.conn.End(netio.ClientFIN, true)
	}
}

// Failed implements netio.Session. If the broker is lost, the client gets the
// complete responses that have come.
func (s *Session) Failed(from relay.Side, err error) {
	s.flushAll()
	if from == relay.Upstream {
		s.conn.Fail(netio.UpstreamReset, err, !s.upstream.inFrame())
	}
}
