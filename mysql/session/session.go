// Package session carries one connection of a MySQL client. It greets the client, has
// its login routed, relays the authentication without knowing a password, and then
// relays commands and answers, of which it reads the headers and the status flags only.
// Between two commands it can move the client to another server, with TiDB's session
// states; see Move.
//
// The protocol is that of package wire. A Session is a netio.Greeter: the loop of its
// connection calls it, and nothing in it blocks or does I/O of its own.
package session

import (
	"crypto/tls"
	"errors"
	"time"

	"penstock/mysql/wire"
	"penstock/netio"
	"penstock/netio/clienthello"
	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// Host serves one session. Its methods are called on the loop of the connection and
// must not block.
type Host interface {
	// Plan finds the server: Next and Connected, after Login.
	netio.Plan
	// Settings returns how the client is greeted. It is called at the greeting, and when a
	// move begins.
	Settings() Settings
	// TLSConfig returns the configuration for a client's ClientHello, or the reason to
	// refuse it.
	TLSConfig(h *clienthello.Hello) (*tls.Config, netio.Reason)
	// Login routes the client, which logs in as user. It is called once.
	Login(c *netio.Conn, user string) netio.Reason
	// RequiresTLS reports whether servers are spoken to with TLS even where the client
	// has none. It is called after Login.
	RequiresTLS() bool
	// Greeted reports the version of the server in its greeting.
	Greeted(version string)
	// LoggedIn reports that the server has accepted the client.
	LoggedIn(c *netio.Conn)
	// MoveTarget returns the server to which the session is to move, or why there is none.
	MoveTarget(c *netio.Conn) (netio.Target, error)
	// Reconnects reports whether the session moves by a login of its own in place of
	// session states. It is called after the client's login.
	Reconnects() bool
	// Password returns the user's password for such a login, after MoveTarget; false:
	// there is none.
	Password(user string) (string, bool)
	// Moved reports that the session is at the last MoveTarget, or why it is not. Until
	// then it counts at both. held is how long commands of the client had to wait at most.
	Moved(c *netio.Conn, err error, held time.Duration)
}

// Settings say how a client is greeted.
type Settings struct {
	// ServerVersion is what the greeting says. "": it is not known yet; GreetAs follows.
	ServerVersion string
	// TLS: the client may use TLS. RequireTLS: it must.
	TLS, RequireTLS bool
	// LoginTimeout bounds the time from the greeting to the server's OK.
	LoginTimeout time.Duration
	// MoveTimeout bounds a move, from its first packet to its last.
	MoveTimeout time.Duration
}

// Bounds of what is held of a session.
const (
	// maxLogin is the size of a packet of the connection phase.
	maxLogin = 64 << 10
	// maxTurns is the number of packets of the connection phase that each side may send.
	maxTurns = 64
	// maxStates is the size of what SHOW SESSION_STATES answers.
	maxStates = 16 << 20
	// maxWaiting is the number of statements of which it is known that they wait. A
	// session with more does not move until it resets its statements.
	maxWaiting = 1024
	// maxRead is what one read of a stream brings at most.
	maxRead = 64 << 10
	// minMove is the size from which the rest of a packet may go through splice.
	minMove = 64 << 10
)

type phase uint8

const (
	wantVersion  phase = iota // for the greeting; see GreetAs
	wantLogin                 // from the client: SSLRequest or login
	wantHello                 // the ClientHello that follows an SSLRequest
	securing                  // TLS with the client
	connecting                // to a server
	wantGreeting              // from the server
	wantAnswer                // the server answered SSLRequest by TLS
	authenticating
	open
	closed
)

// Session carries one connection. Only the loop of that connection may call its
// methods.
type Session struct {
	host       Host
	conn       *netio.Conn
	streams    [2]stream.Stream
	login      *login       // nil once open
	mover      *mover       // nil but during a move
	keeps      *keeper      // nil: the session does not move by a login of its own
	compressed *compression // with the client; nil: none
	part       *part        // of a packet that has to be seen whole; nil: none
	user       string
	held       *[]byte  // of the client, behind the command that is being answered; nil: nothing
	waiting    *waiting // statements that wait
	timer      reactor.Timer
	client     packets
	server     packets
	count      uint32 // packets of definitions that are still to come
	charged    uint32 // bytes that the session is charged for
	caps       wire.Capabilities
	status     wire.Status
	stmt       uint32 // the statement of the command that is being answered
	phase      phase
	answer     answer
	command    wire.Command
	seq        byte // the last number that either side used
	collation  byte
	pending    [2]bool // a side has not taken all that was sent to it
	tls        bool    // towards the server
	unpaid     bool    // the session waits for memory
	wanted     bool    // a move
	committed  bool    // for the command that comes next
	owned      bool    // what fromClient takes is memory of the session
	stuck      bool    // it can never move again
	quit       bool    // COM_QUIT was seen
	ended      bool    // the client has sent its end
	setting    bool    // the command is SET: a first step of something
	done       bool    // see Answered
}

// waiting is a list of the statements that are not at rest.
type waiting struct {
	next            *waiting
	id              uint32
	longData, fetch bool
}

// part is what has come of a packet that has to be seen whole.
type part struct {
	command []byte // of the client, which is not relayed until it is whole
	answer  []byte // of the server to the proxy's own COMMIT
	commits bool   // that is awaited

	change *wire.ChangeUser // that the server answers; nil: none
	sha2   bool             // it has asked for caching_sha2_password
}

var (
	_ netio.Greeter          = (*Session)(nil)
	_ netio.AnsweringSession = (*Session)(nil)
	_ reactor.Expirer        = (*Session)(nil)
)

// New returns a session, which is the plan of its connection.
func New(h Host) *Session {
	s := &Session{host: h}
	s.timer.Init(s)
	return s
}

// Host returns the host that the session was made with.
func (s *Session) Host() Host { return s.host }

// Next implements netio.Plan.
func (s *Session) Next(c *netio.Conn, err error) (netio.Target, netio.Reason) {
	return s.host.Next(c, err)
}

// Connected implements netio.Plan.
func (s *Session) Connected(c *netio.Conn, took time.Duration) { s.host.Connected(c, took) }

// Description implements netio.Described where the host does.
func (s *Session) Description() string {
	if d, ok := s.host.(netio.Described); ok {
		return d.Description()
	}
	return ""
}

// User returns the name with which the client logged in; "" before.
func (s *Session) User() string { return s.user }

// Received implements netio.Session.
func (s *Session) Received(from relay.Side, p []byte) {
	switch {
	case s.phase == closed:
	case from == relay.Client && s.phase < authenticating:
		s.clientLogin(p)
	case from == relay.Client && s.phase == authenticating:
		s.relayAuth(relay.Client, p)
	case from == relay.Client && s.compressed != nil:
		s.decompress(p)
	case from == relay.Client:
		s.fromClient(p)
	case s.phase < authenticating:
		s.serverLogin(p)
	case s.phase == authenticating:
		s.relayAuth(relay.Upstream, p)
	default:
		s.fromServer(p)
	}
	s.pause()
}

// Moved implements netio.Session.
func (s *Session) Moved(from relay.Side, n int) {
	d := &s.client
	if from == relay.Upstream {
		d = &s.server
	}
	d.left -= uint32(n)
	if d.left == 0 && from == relay.Client {
		s.commandSent()
	} else if d.left == 0 && s.answer == idle {
		s.answered()
	}
	s.pause()
}

// Sent implements netio.Session.
func (s *Session) Sent(to relay.Side) {
	s.pending[to] = false
	s.pause()
	s.endIfDone()
}

// send sends bytes to a side.
func (s *Session) send(to relay.Side, p []byte) {
	if len(p) == 0 {
		return
	}
	send := s.streams[to].Send
	if to == relay.Client && s.compressed != nil {
		send = s.sendFrames
	}
	if send(p) > 0 {
		s.pending[to] = true
	}
}

// holds reports whether bytes of the client wait until its last command is answered.
func (s *Session) holds() bool {
	return s.held != nil || s.compressed != nil && len(s.compressed.frames) > 0
}

// Ended implements netio.Session.
func (s *Session) Ended(from relay.Side) {
	switch {
	case s.phase != open && from == relay.Client:
		s.end(netio.ClientGone, nil)
	case s.phase == wantGreeting:
		s.tryNext(errors.New("the server closed the connection before its greeting"))
	case s.phase != open:
		s.serverGone(netio.UpstreamFIN, nil)
	case from == relay.Client:
		s.ended = true
		if !s.endIfDone() && s.stuck {
			s.conn.End(netio.ClientFIN, true)
		}
	case s.quit:
		s.conn.End(netio.ClientFIN, true)
	default:
		s.serverGone(netio.UpstreamFIN, nil)
	}
}

// Failed implements netio.Session.
func (s *Session) Failed(from relay.Side, err error) {
	switch {
	case s.phase == closed:
	case s.quit: // many close TLS without close_notify, which the other side answers with a reset
		s.conn.End(netio.ClientFIN, true)
	case from == relay.Client:
	case s.phase == wantAnswer || s.phase == wantGreeting:
		s.tryNext(err)
	default:
		s.serverGone(netio.UpstreamReset, err)
	}
}

// tryNext asks for a server, after err with the one before, if there was one: it has
// got nothing of the client.
func (s *Session) tryNext(err error) {
	s.phase = connecting
	s.conn.Connect(err)
}

// serverGone ends the session of a server that has died. A client that waits for an
// answer gets an error in its place, unless it has got a part of a packet.
func (s *Session) serverGone(why netio.Reason, err error) {
	if s.mover != nil && !s.mover.asked {
		s.mover.lost = true // the states have been given: the move may still succeed
		return
	}
	whole := s.server.left == 0 && s.server.n == 0
	if whole && s.phase != closed {
		s.sayError(&wire.Error{Code: codeLost, State: "08S01", Message: "Penstock: the server closed the connection"})
	}
	s.conn.Fail(why, err, whole)
}

// The codes of errors that the proxy itself gives, as in MySQL's list.
const (
	codeUnknown      = 1105 // ER_UNKNOWN_ERROR
	codeLost         = 1105
	codeShutdown     = 1053 // ER_SERVER_SHUTDOWN: drivers connect anew
	codeHandshake    = 1043 // ER_HANDSHAKE_ERROR
	codeAuthMode     = 1251 // ER_NOT_SUPPORTED_AUTH_MODE
	codeSecure       = 3159 // ER_SECURE_TRANSPORT_REQUIRED
	codeOutOfOrder   = 1156 // ER_NET_PACKETS_OUT_OF_ORDER
	codeUnknownCom   = 1047 // ER_UNKNOWN_COM_ERROR
	codeAccessDenied = 1045 // ER_ACCESS_DENIED_ERROR
	codeNoMemory     = 1041 // ER_OUT_OF_RESOURCES
)

// sayError sends the client an error packet of the proxy, behind the last number. While
// the server answers nothing, it answers the command that the client sends next: that is
// how the client will read it, and PyMySQL takes no other number.
func (s *Session) sayError(e *wire.Error) {
	if s.phase == open && s.client.between() && (s.settled() || s.mover != nil || s.committing()) {
		s.seq = 0
		if s.compressed != nil {
			s.compressed.restart()
		}
	}
	s.seq++
	s.send(relay.Client, wire.AppendPacket(nil, s.seq, wire.AppendError(nil, e)))
}

// end ends the connection with a last word to the client, if there is one.
func (s *Session) end(why netio.Reason, say *wire.Error) {
	if s.phase == closed {
		return
	}
	if say != nil {
		s.sayError(say)
	}
	s.conn.End(why, true)
}

// badPacket ends the session of a peer whose bytes are not the protocol's.
func (s *Session) badPacket(from relay.Side, err error) {
	why := BadPacket
	if from == relay.Upstream {
		why = BadServerPacket
	}
	clean := s.server.left == 0
	if clean {
		s.sayError(&wire.Error{Code: codeOutOfOrder, State: "08S01", Message: "Penstock: " + err.Error()})
	}
	s.conn.Fail(why, err, clean)
}

// Idle implements netio.Session: the client may be closed or moved without a loss.
func (s *Session) Idle() bool { return s.Safe() == nil && s.mover == nil && !s.pending[relay.Client] }

// The reasons why a session cannot move now.
var (
	ErrNotOpen       = errors.New("the login is not complete")
	ErrBusy          = errors.New("a command is being answered")
	ErrInTransaction = errors.New("in a transaction")
	ErrWaiting       = errors.New("a cursor is open, or long data waits for its statement")
	ErrStuck         = errors.New("a replication stream, or too many statements wait")
)

// Safe returns nil at a safe point, where the session holds nothing that is bound to its
// server, and otherwise what it holds.
func (s *Session) Safe() error {
	if err := s.bound(); err != nil {
		return err
	}
	if s.holds() || s.part != nil || !s.compressed.between() {
		return ErrBusy
	}
	return nil
}

// bound is Safe but for commands that no server has seen: these can wait for a move.
func (s *Session) bound() error {
	switch {
	case s.phase != open:
		return ErrNotOpen
	case s.stuck || s.quit:
		return ErrStuck
	case !s.settled() || !s.client.between():
		return ErrBusy
	case s.status&wire.InTransaction != 0:
		return ErrInTransaction
	case s.waiting != nil:
		return ErrWaiting
	case s.keeps != nil:
		return s.keeps.holds()
	}
	return nil
}

// Answered implements netio.AnsweringSession. What drivers send within one call of
// the program does not end in the middle: COM_STMT_PREPARE is followed by the
// execution, SET TRANSACTION by the transaction, and after COM_STMT_CLOSE, which has no
// answer, the next command may be on its way.
func (s *Session) Answered() bool { return s.done }

// Leaving implements netio.Greeter: drivers connect anew on this error. Where the
// client has a part of a packet it gets none, and the connection is reset. Otherwise
// the error completes whatever answer was under way, so the client's end is a clean one.
func (s *Session) Leaving(why netio.Reason, _ bool) {
	if s.phase != open || !s.server.between() {
		return
	}
	s.sayError(&wire.Error{Code: codeShutdown, State: "08S01", Message: "Server shutdown in progress"})
	if s.answer != idle || !s.client.between() || s.mover != nil {
		s.conn.Fail(why, nil, true)
		return
	}
	// Without it, MySQL counts and logs an aborted client.
	s.send(relay.Upstream, wire.AppendPacket(nil, 0, []byte{byte(wire.ComQuit)}))
	s.conn.End(why, true)
}

// Expired implements reactor.Expirer.
func (s *Session) Expired(*reactor.Timer) {
	s.conn.Guard(func() {
		switch {
		case s.phase == open && s.mover != nil:
			s.mover.fail(errMoveTimeout)
		case s.phase != open && s.phase != closed:
			s.end(LoginTimeout, &wire.Error{Code: codeHandshake, State: "08S01", Message: "Penstock: the login took too long"})
		}
	})
}

// Closed implements netio.Session.
func (s *Session) Closed(netio.Reason) {
	s.phase = closed
	s.conn.Disarm(&s.timer)
	if m := s.mover; m != nil {
		s.mover = nil
		m.abort()
		s.host.Moved(s.conn, ErrNotOpen, 0)
	}
	if s.compressed != nil {
		s.compressed.reader.Close()
	}
	s.login, s.held, s.part, s.waiting = nil, nil, nil, nil
}
