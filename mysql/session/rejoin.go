package session

import (
	"errors"
	"fmt"
	"strings"

	"penstock/mysql/wire"
	"penstock/netio/relay"
)

// Errors of moves by reconnecting, which leave the session where it is.
var (
	// ErrNoPassword: the service has no credentials for the session's user.
	ErrNoPassword  = errors.New("mysql.credentials of the service has no password for the user")
	errNotMariaDB  = errors.New("move: reconnect is for MariaDB 10.2 or newer; the new server is another one")
	errOutOfTurn   = errors.New("the new server speaks out of turn")
	errTransaction = fmt.Errorf("the session is %w after a question about its state", ErrInTransaction)
)

// maxRestored is the number of variables that are set at the new server.
const maxRestored = maxNames + 16

// rejoin moves a session that holds nothing by a login of its own at the new server. The
// present server is asked what the session is like, with one query; the new server is
// asked the same, and is given what differs. Only when it answers as the present one
// did, the session moves.
//
//	present server   question ──> facts
//	new server       connect, greeting, TLS ──┴──> login ──> database ──> question ──> SET ──> question ──> swap
type rejoin struct {
	m        *mover
	password string
	step     rejoinStep
	in       []byte // of the new server
	turns    int    // of its authentication
	plugin   string
	salt     []byte
	question question
	was      facts // at the present server; nil: not known yet
	restored []string
}

type rejoinStep uint8

const (
	rejoinWaits rejoinStep = iota
	rejoinLogin
	rejoinDatabase
	rejoinCompare
	rejoinSet
	rejoinVerify
)

func newRejoin(m *mover, password string) *rejoin { return &rejoin{m: m, password: password} }

// fromServer takes the present server's answer.
func (r *rejoin) fromServer(p []byte) {
	m := r.m
	done, err := r.question.read(p, m.s.caps)
	if !done {
		if err != nil {
			m.s.badPacket(relay.Upstream, err)
		}
		return
	}
	m.asked = false
	answer := r.question
	r.question = question{}
	if err != nil {
		err = fmt.Errorf("%w: %w", errNoStates, err)
	} else {
		m.s.status = answer.status
		err = answer.facts.movable()
		var found Hold
		if errors.As(err, &found) {
			m.s.keeps.keep(found)
		}
	}
	if err == nil && answer.status&wire.InTransaction != 0 {
		err = errTransaction
	}
	switch {
	case m.failure != nil:
		m.finish(m.failure)
	case err != nil:
		m.fail(err)
	default:
		r.was = answer.facts
		r.logIn()
	}
}

// login returns the login as the session's user.
func (r *rejoin) login() *wire.Login {
	s := r.m.s
	return &wire.Login{
		Capabilities: s.caps&^(wire.ConnectWithDB|wire.ConnectAttrs) | wire.PluginAuth | wire.PluginAuthLenencClientData | wire.SecureConnection,
		MaxPacket:    wire.MaxPayload, Collation: s.collation, User: s.user, Plugin: r.plugin,
	}
}

// logIn sends the login once the facts are there and the new server has greeted.
func (r *rejoin) logIn() {
	m := r.m
	if r.was == nil || !m.greeted || r.step != rejoinWaits || m.s.tls && !m.standby.Secured() {
		return
	}
	g := &m.greets
	if !strings.Contains(g.ServerVersion, "MariaDB") {
		m.fail(errNotMariaDB)
		return
	}
	if missing := m.s.caps &^ (g.Capabilities | wire.LongPassword | wire.ConnectWithDB | wire.ConnectAttrs); missing != 0 {
		m.fail(fmt.Errorf("the new server lacks what the client uses: %s", missing))
		return
	}
	r.step, r.plugin, r.salt = rejoinLogin, g.Plugin, g.Salt[:]
	if !canAnswer(r.plugin) {
		r.plugin = nativePassword // the account may have another one than the server's default
	}
	l := r.login()
	l.Auth = scramble(r.plugin, r.password, r.salt)
	r.send(wire.AppendLogin(nil, l))
}

// send sends a packet of the connection phase.
func (r *rejoin) send(payload []byte) {
	r.m.seq++
	r.m.send(wire.AppendPacket(nil, r.m.seq, payload))
}

// command sends a command, with the step that its answer belongs to.
func (r *rejoin) command(step rejoinStep, payload []byte) {
	r.step, r.question = step, question{}
	r.m.send(wire.AppendPacket(nil, 0, payload))
}

// received takes bytes of the new server, behind its greeting.
func (r *rejoin) received(p []byte) {
	m := r.m
	if r.step == rejoinCompare || r.step == rejoinVerify {
		done, err := r.question.read(p, m.s.caps)
		switch {
		case err != nil:
			m.fail(fmt.Errorf("the new server: %w", err))
		case done:
			r.compare()
		}
		return
	}
	r.in = append(r.in, p...)
	for m.s.mover == m && m.failure == nil {
		payload, seq, rest, err := packet(r.in)
		if err == nil && payload == nil {
			return
		}
		if err == nil && len(rest) > 0 && r.step != rejoinLogin || r.step == rejoinWaits {
			err = errOutOfTurn
		}
		if err != nil {
			m.fail(err)
			return
		}
		r.in, m.seq = rest, seq
		r.readPacket(payload)
	}
}

// readPacket reads the answer to a login, or to a command without rows.
func (r *rejoin) readPacket(p []byte) {
	m := r.m
	switch {
	case wire.IsError(p):
		e, err := wire.ParseError(p)
		if err == nil {
			err = refusal(fmt.Sprintf("the new server refused %s: error %d", r.attempted(), e.Code))
		}
		m.fail(err)
	case !wire.IsOK(p) && r.step == rejoinLogin:
		r.authenticate(p)
	case len(r.in) > 0:
		m.fail(errOutOfTurn)
	case !wire.IsOK(p):
		m.fail(refusal("the new server refused " + r.attempted()))
	case r.step == rejoinLogin && r.was.database() != "":
		r.command(rejoinDatabase, append([]byte{byte(wire.ComInitDB)}, r.was.database()...))
	case r.step == rejoinSet:
		r.command(rejoinVerify, appendQuestion(nil))
	default:
		r.command(rejoinCompare, appendQuestion(nil))
	}
}

// attempted says what an error answers.
func (r *rejoin) attempted() string {
	switch r.step {
	case rejoinDatabase:
		return "the session's database"
	case rejoinSet:
		return "the session's " + strings.Join(r.restored, ", ")
	}
	return "the login"
}

// authenticate takes a turn of the authentication.
func (r *rejoin) authenticate(p []byte) {
	const (
		moreData = 1
		fast     = 3 // the server knows the password: OK follows
		full     = 4 // it wants the password itself
	)
	m := r.m
	r.turns++
	switch {
	case r.turns > maxTurns:
		m.fail(refusal("the new server asks too much in the authentication"))
	case len(p) > 0 && p[0] == 0xfe:
		a, err := wire.ParseAuthSwitch(p)
		if err == nil && !canAnswer(a.Plugin) {
			err = refusal(fmt.Sprintf("the new server asks for the authentication plugin %.64q; only %s and %s are possible", a.Plugin, nativePassword, cachingSHA2))
		}
		if err != nil {
			m.fail(err)
			return
		}
		r.plugin, r.salt = a.Plugin, trimNUL(a.Data)
		r.send(scramble(r.plugin, r.password, r.salt))
	case r.plugin == cachingSHA2 && len(p) == 2 && p[0] == moreData && p[1] == fast:
	case r.plugin == cachingSHA2 && len(p) == 2 && p[0] == moreData && p[1] == full:
		if !m.s.tls {
			m.fail(refusal("the new server asks for the password itself, which is sent with TLS only"))
			return
		}
		r.send(append([]byte(r.password), 0))
	default:
		m.fail(refusal("the new server does not take the login"))
	}
}

// compare compares the answers of both servers.
func (r *rejoin) compare() {
	m, now := r.m, r.question
	restore, other, err := r.was.differences(now.facts, m.s.keeps.set)
	if err == nil && other != "" && (len(restore) == 0 || r.step == rejoinVerify) {
		err = fmt.Errorf("%w: %s", HoldVariable, strings.ToLower(other))
	}
	switch {
	case err != nil:
		m.fail(err)
	case now.status&wire.InTransaction != 0:
		m.fail(errors.New("the new server begins with a transaction"))
	case len(restore) == 0:
		m.s.status = now.status
		m.finish(nil)
	case r.step == rejoinVerify || len(restore) > maxRestored:
		m.fail(refusal("the new server does not take the session's " + strings.Join(restore, ", ")))
	default:
		r.restored = restore
		r.command(rejoinSet, r.was.appendSet(nil, restore, now.status&wire.NoBackslashEscapes != 0))
	}
}
