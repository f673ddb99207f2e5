package session

import (
	"penstock/mysql/wire"
	"penstock/netio"
	"penstock/netio/relay"
)

// What a session holds of its peers beyond a few KiB is charged to the memory budget of
// the node: a login, commands that wait, a COM_CHANGE_USER, frames, session states. If
// the budget has no room, neither side is read until it has; a move fails instead.
const (
	// uncharged is what a session may hold without being charged, as most logins are.
	uncharged = 4 << 10
	// maxUnpaidLogin is the size of a login that waits for memory. It has been read
	// already, and may be one of many.
	maxUnpaidLogin = 16 << 10
)

// holding returns how many bytes the session holds.
func (s *Session) holding() int {
	n := 0
	if s.held != nil {
		n = cap(*s.held)
	}
	if s.part != nil {
		n += cap(s.part.command) + cap(s.part.answer)
	}
	if l := s.login; l != nil {
		n += cap(l.client) + cap(l.server)
	}
	if m := s.mover; m != nil {
		n += cap(m.answers) + len(m.states.JSON) + cap(m.in)
	}
	if z := s.compressed; z != nil {
		n += cap(z.frames) + z.reader.Held()
	}
	return n
}

// charge makes the session's charge what it holds. It returns false if there is no room
// for that.
func (s *Session) charge() bool {
	n := s.holding()
	if n <= uncharged {
		n = 0
	}
	class := netio.Bulk
	if s.phase < open {
		class = netio.Early
	}
	switch d := n - int(s.charged); {
	case d < 0:
		s.conn.Release(int64(-d))
	case d > 0 && !s.conn.Reserve(class, int64(d)):
		return false
	}
	s.charged = uint32(n)
	return true
}

// pay charges what the session holds, and has it wait where there is no room, or ends it
// if there never will be.
func (s *Session) pay() {
	s.unpaid = !s.charge()
	if n := s.holding(); s.unpaid && (int64(n) > s.conn.Budget() || s.phase < open && n > maxUnpaidLogin) {
		s.end(netio.LimitMemory, &wire.Error{Code: codeNoMemory, State: "HY000", Message: "Penstock: out of memory"})
	}
}

// MemoryAvailable implements netio.Session.
func (s *Session) MemoryAvailable() { s.pause() }

// Holds implements netio.HoldingSession.
func (s *Session) Holds() bool { return s.unpaid }

var _ netio.HoldingSession = (*Session)(nil)

// pause reads from a side while the other one takes what comes, and from the client
// while it has sent nothing that waits.
func (s *Session) pause() {
	if s.phase == open && s.compressed.waits() {
		s.decompress(nil)
	}
	if s.phase == closed {
		return
	}
	if s.charged > 0 || s.holding() > uncharged {
		if s.pay(); s.phase == closed {
			return
		}
	}
	client, server := s.streams[relay.Client], s.streams[relay.Upstream]
	switch {
	case s.phase == wantLogin || s.phase == wantHello:
		client.SetReading(!s.unpaid)
	case s.phase == wantGreeting:
		server.SetReading(!s.unpaid)
	case s.phase >= authenticating:
		client.SetReading(!s.pending[relay.Upstream] && !s.holds() && !s.unpaid)
		server.SetReading(!s.pending[relay.Client] && !s.unpaid)
	}
}
