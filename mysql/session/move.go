package session

import (
	"errors"
	"fmt"
	"time"

	"penstock/mysql/wire"
	"penstock/netio"
	"penstock/netio/relay"
	streams "penstock/netio/stream"
)

// Errors of moves, which leave the session where it is.
var (
	errMoveTimeout = errors.New("the move took too long")
	errMoveMemory  = errors.New("no memory for the session states")
	errNoStates    = errors.New("the server does not give the session's states")
	errNoToken     = fmt.Errorf("%w: no token", errNoStates)
	errStatesSize  = fmt.Errorf("%w: they have more than %d MiB", errNoStates, maxStates>>20)
)

// mover is one move: the present server is asked for the session's states while the
// new one is connected; the client's commands wait meanwhile.
//
//	present server   SHOW SESSION_STATES ──> states and token
//	new server       connect, greeting, TLS ──────┴──> login with the token ──> SET SESSION_STATES ──> swap
type mover struct {
	s       *Session
	standby *netio.Standby
	rejoin  *rejoin // in place of states and token; nil: with these
	began   time.Duration
	in      []byte // of the new server
	answers []byte // of the present one; nil once they are too many
	states  wire.States
	step    moveStep
	seq     byte
	greeted bool
	asked   bool  // the present server owes its answer; then states have it
	lost    bool  // the present server has gone
	failure error // the move has failed; the present server's answer is still awaited
	greets  wire.Greeting
}

type moveStep uint8

const (
	movePreparing moveStep = iota
	moveLogin
	moveStates
)

// Move moves the session to another server, at its next safe point. Host.Moved follows,
// unless the connection ends before. Another call before then does nothing. Host.Moved
// may call it where Safe tells why the session waits.
func (s *Session) Move() {
	s.wanted, s.done = true, false
	s.tryMove()
}

// Stay takes Move back, if the move has not begun.
func (s *Session) Stay() { s.wanted = false }

// Wanted reports whether the session is to move.
func (s *Session) Wanted() bool { return s.wanted || s.mover != nil }

// tryMove begins the move if one is wanted and this is a safe point.
func (s *Session) tryMove() bool {
	if s.mover != nil || !s.wanted || s.ended || s.bound() != nil {
		return s.mover != nil
	}
	s.wanted = false
	m := &mover{s: s, began: s.conn.Now()}
	target, err := s.host.MoveTarget(s.conn)
	if err != nil {
		s.host.Moved(s.conn, err, 0)
		return false
	}
	question := wire.AppendShowStates(nil)
	if s.keeps != nil {
		password, ok := s.host.Password(s.user)
		if !ok {
			s.host.Moved(s.conn, ErrNoPassword, 0)
			return false
		}
		m.rejoin = newRejoin(m, password)
		question = appendQuestion(nil)
		s.keeps.asked()
	} else {
		s.command, s.answer, s.stmt = wire.ComQuery, result, 0
	}
	s.mover = m
	s.conn.Arm(&s.timer, s.host.Settings().MoveTimeout)
	m.asked = true
	s.send(relay.Upstream, wire.AppendPacket(nil, 0, question))
	m.standby = s.conn.DialStandby(target, m)
	return true
}

// fromServer takes the present server's answer to SHOW SESSION_STATES. Where it ends
// is read as in every answer, so that the session can stay whatever is in it.
func (m *mover) fromServer(p []byte) {
	if m.rejoin != nil {
		m.rejoin.fromServer(p)
		return
	}
	s := m.s
	switch {
	case m.failure != nil:
	case len(m.answers)+len(p) > maxStates:
		m.fail(errStatesSize)
	default:
		if m.answers = append(m.answers, p...); !s.charge() {
			m.fail(errMoveMemory)
		}
	}
	if err := s.scan(p); err != nil {
		s.badPacket(relay.Upstream, err)
		return
	}
	if s.answer == infile || s.answer == refused {
		s.badPacket(relay.Upstream, errors.New("a request for a file in answer to SHOW SESSION_STATES"))
		return
	}
	if !s.settled() {
		return
	}
	m.asked = false
	if m.failure != nil {
		m.finish(m.failure)
		return
	}
	states, err := readStates(m.answers, s.caps)
	m.answers = nil
	switch {
	case err != nil:
		m.fail(err)
	case len(states.Token) == 0:
		m.fail(errNoToken)
	default:
		m.states = states
		m.logIn()
	}
}

// readStates reads the whole answer to SHOW SESSION_STATES.
func readStates(answer []byte, caps wire.Capabilities) (wire.States, error) {
	var r wire.StatesReader
	for len(answer) >= wire.HeaderSize {
		n, _ := wire.ParseHeader(answer)
		if n > len(answer)-wire.HeaderSize {
			break
		}
		payload := answer[wire.HeaderSize:][:n]
		answer = answer[wire.HeaderSize+n:]
		if done, err := r.Add(payload, caps); done || err != nil {
			return r.States, stateError(err)
		}
	}
	return wire.States{}, errors.New("SHOW SESSION_STATES: the answer has no end")
}

// stateError leaves the message out of a server's error: it may have parts of a
// statement.
func stateError(err error) error {
	var refusal wire.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		return fmt.Errorf("%w: error %d", errNoStates, refusal.Code)
	}
	return fmt.Errorf("%w: SHOW SESSION_STATES: %w", errNoStates, err)
}

// Connected implements stream.Owner for the standby: it is connected, or TLS stands.
func (m *mover) Connected() {
	if m.greeted {
		m.logIn()
	}
	m.standby.Stream().SetReading(true)
}

// Received implements stream.Owner for the standby.
func (m *mover) Received(p []byte) {
	if m.rejoin != nil && m.greeted {
		m.rejoin.received(p)
		return
	}
	m.in = append(m.in, p...)
	payload, seq, rest, err := packet(m.in)
	if payload == nil && err == nil {
		return
	}
	if err == nil && len(rest) > 0 {
		err = errors.New("the new server speaks out of turn")
	}
	if err != nil {
		m.fail(err)
		return
	}
	m.in, m.seq = nil, seq
	switch {
	case wire.IsError(payload):
		e, err := wire.ParseError(payload)
		if err == nil {
			err = fmt.Errorf("%w: error %d", errMoveRefused, e.Code)
		}
		m.fail(err)
	case !m.greeted:
		m.readGreeting(payload)
	case !wire.IsOK(payload):
		m.fail(fmt.Errorf("%w: it does not take the token", errMoveRefused))
	case m.step == moveLogin:
		m.step = moveStates
		m.send(wire.AppendPacket(nil, 0, wire.AppendSetStates(nil, m.states.JSON)))
		m.states = wire.States{}
	case m.step == moveStates:
		ok, err := wire.ParseOK(payload, m.s.caps)
		if err != nil {
			m.fail(err)
			return
		}
		m.s.status = ok.Status
		m.finish(nil)
	default:
		m.fail(errors.New("the new server speaks out of turn"))
	}
}

// readGreeting reads the new server's greeting and goes on with TLS if the present
// server has it.
func (m *mover) readGreeting(payload []byte) {
	g, err := wire.ParseGreeting(payload)
	s := m.s
	switch missing := s.caps & mustHave &^ g.Capabilities; {
	case err != nil:
		m.fail(err)
		return
	case missing != 0:
		m.fail(fmt.Errorf("the new server lacks what the client uses: %s", missing))
		return
	}
	m.greets, m.greeted = g, true
	if !s.tls {
		m.logIn()
		return
	}
	config := m.standby.TLS()
	if config == nil || g.Capabilities&wire.SSL == 0 {
		m.fail(errors.New("the new server does not offer TLS"))
		return
	}
	m.seq++
	m.send(wire.AppendPacket(nil, m.seq, wire.AppendSSLRequest(nil, m.login())))
	m.standby.StartTLS(config, nil)
}

// login returns the login with the token.
func (m *mover) login() *wire.Login {
	if m.rejoin != nil {
		return m.rejoin.login()
	}
	l := wire.TokenLogin(wire.Login{
		Capabilities: m.s.caps & m.greets.Capabilities &^ (wire.ConnectWithDB | wire.ConnectAttrs),
		MaxPacket:    wire.MaxPayload, Collation: m.s.collation, User: m.s.user,
	}, m.states.Token)
	return &l
}

// logIn sends the login once the token is there and the new server has greeted.
func (m *mover) logIn() {
	if m.rejoin != nil {
		m.rejoin.logIn()
		return
	}
	if m.asked || !m.greeted || m.step != movePreparing || m.s.tls && !m.standby.Secured() {
		return
	}
	m.step = moveLogin
	m.seq++
	m.send(wire.AppendPacket(nil, m.seq, wire.AppendLogin(nil, m.login())))
}

func (m *mover) send(p []byte) { m.standby.Stream().Send(p) }

// Moved, Sent and Ended implement stream.Owner for the standby.
func (m *mover) Moved(int) {}

// Sent implements stream.Owner.
func (m *mover) Sent() {}

// Ended implements stream.Owner.
func (m *mover) Ended() { m.fail(errors.New("the new server closed the connection")) }

// Failed implements stream.Owner.
func (m *mover) Failed(err error) { m.fail(fmt.Errorf("the new server: %w", err)) }

var _ streams.Owner = (*mover)(nil)

// fail leaves the session where it is, once its server has answered.
func (m *mover) fail(err error) {
	if m.s.mover != m || m.failure != nil {
		return
	}
	m.failure, m.answers = err, nil
	m.abort()
	if !m.asked {
		m.finish(err)
	}
}

func (m *mover) abort() {
	if m.standby != nil {
		m.standby.Abort()
	}
}

// finish ends the move: the new server takes over, or the present one stays.
func (m *mover) finish(err error) {
	s := m.s
	s.mover = nil
	s.conn.Disarm(&s.timer)
	if err == nil {
		old := s.streams[relay.Upstream]
		if !m.lost {
			old.Send(wire.AppendPacket(nil, 0, []byte{byte(wire.ComQuit)}))
		}
		s.pending[relay.Upstream] = false
		s.conn.Adopt(m.standby)
		s.streams[relay.Upstream] = m.standby.Stream()
		s.server = packets{}
		s.streams[relay.Upstream].SetReading(true)
	}
	s.host.Moved(s.conn, err, s.conn.Now()-m.began)
	if err != nil && m.lost {
		s.serverGone(netio.UpstreamFIN, err)
		return
	}
	s.resume()
}
