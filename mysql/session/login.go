package session

import (
	"crypto/rand"
	"errors"
	"fmt"

	"penstock/mysql/wire"
	"penstock/netio"
	"penstock/netio/clienthello"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// offered are the capabilities of the greeting. What changes the layout of answers
// and needs to be understood here is left out, as is the tracking of sessions, because a
// server that is chosen later may not have it.
const offered = wire.LongPassword | wire.FoundRows | wire.LongFlag | wire.ConnectWithDB | wire.NoSchema | wire.ODBC | wire.LocalFiles |
	wire.IgnoreSpace | wire.Protocol41 | wire.Interactive | wire.Transactions | wire.SecureConnection | wire.MultiStatements |
	wire.MultiResults | wire.PSMultiResults | wire.PluginAuth | wire.ConnectAttrs | wire.PluginAuthLenencClientData |
	wire.CanHandleExpiredPasswords | wire.DeprecateEOF

// compressions are offered besides, and not asked of the server; see compression.
const compressions = wire.Compress | wire.ZstdCompressionAlgorithm

// unknownPlugin makes the server say which plugin the account has, with a salt of its own.
const unknownPlugin = "auth_unknown_plugin"

// cachingSHA2 is the plugin whose full authentication depends on whether there is TLS.
const cachingSHA2 = "caching_sha2_password"

// sha2Full is its request for full authentication.
const sha2Full = "\x01\x04"

// errMixedTLS is that request where only one side has TLS.
var errMixedTLS = errors.New("full authentication with TLS on one side only")

// login is what a session needs until the server has accepted its client.
type login struct {
	settings       Settings
	client, server []byte // packets that are not whole
	wire.Login
	turns     int
	clientSeq byte // the last number of the client, or to it
	serverSeq byte
	plugin    string // the one that the server asked for last
	clientTLS bool
	greeting  wire.Greeting
}

// Greet implements netio.Greeter.
func (s *Session) Greet(c *netio.Conn, client stream.Stream) {
	s.conn, s.streams[relay.Client] = c, client
	s.login = &login{settings: s.host.Settings()}
	c.Arm(&s.timer, s.login.settings.LoginTimeout)
	if version := s.login.settings.ServerVersion; version != "" {
		s.greet(version)
		return
	}
	s.phase, s.seq = wantVersion, 0xff // an error takes the greeting's place, and number
}

// GreetAs greets the client of a session whose Settings had no ServerVersion. The client
// is not read before. Another call does nothing.
func (s *Session) GreetAs(version string) {
	if s.phase == wantVersion {
		s.greet(version)
	}
}

func (s *Session) greet(version string) {
	l, c := s.login, s.conn
	s.phase, s.seq = wantLogin, 0
	g := wire.Greeting{
		ServerVersion: version, ConnectionID: uint32(c.ID()), Salt: newSalt(),
		Capabilities: offered | compressions, Collation: 45, Status: wire.Autocommit, Plugin: "mysql_native_password",
	}
	if l.settings.TLS {
		g.Capabilities |= wire.SSL
	}
	s.send(relay.Client, wire.AppendPacket(nil, 0, wire.AppendGreeting(nil, &g)))
	s.streams[relay.Client].SetReading(true)
}

// newSalt returns bytes that no client takes for the end of a string.
func newSalt() (salt [20]byte) {
	_, _ = rand.Read(salt[:]) // never fails
	for i, b := range salt {
		salt[i] = b%94 + '!'
	}
	return salt
}

// packet cuts the first whole packet off buf; nil: it is not whole yet.
func packet(buf []byte) (payload []byte, seq byte, rest []byte, err error) {
	if len(buf) < wire.HeaderSize {
		return nil, 0, buf, nil
	}
	n, seq := wire.ParseHeader(buf)
	if n > maxLogin {
		return nil, 0, buf, fmt.Errorf("a packet of %d bytes in the login (at most %d are allowed)", n, maxLogin)
	}
	if len(buf) < wire.HeaderSize+n {
		return nil, 0, buf, nil
	}
	end := wire.HeaderSize + n
	return buf[wire.HeaderSize:end:end], seq, buf[end:], nil
}

// clientLogin takes what the client sends before there is a server.
func (s *Session) clientLogin(p []byte) {
	l := s.login
	l.client = append(l.client, p...)
	if s.phase == wantHello {
		s.readHello()
		return
	}
	if s.phase != wantLogin {
		if len(l.client) > maxLogin {
			s.badPacket(relay.Client, errors.New("the client does not wait for the answer to its login"))
		}
		return
	}
	payload, seq, rest, err := packet(l.client)
	if err != nil {
		s.badPacket(relay.Client, err)
		return
	}
	if payload == nil {
		return
	}
	if want := l.clientSeq + 1; seq != want {
		s.badPacket(relay.Client, fmt.Errorf("packet number %d in the login instead of %d", seq, want))
		return
	}
	l.clientSeq, s.seq = seq, seq
	l.client = rest
	s.readLogin(payload)
}

// readLogin reads a login or the request for TLS before it.
func (s *Session) readLogin(payload []byte) {
	l := s.login
	_, ssl, err := wire.ParseSSLRequest(payload)
	if err == nil && ssl {
		if !l.settings.TLS || l.clientTLS {
			s.end(LoginRefused, &wire.Error{Code: codeHandshake, State: "08S01", Message: "Penstock: this listener does not offer TLS"})
			return
		}
		s.phase = wantHello
		s.readHello()
		return
	}
	if err == nil {
		l.Login, err = wire.ParseLogin(payload)
	}
	switch {
	case err != nil:
		s.badPacket(relay.Client, fmt.Errorf("login: %w", err))
	case len(l.client) > 0:
		s.badPacket(relay.Client, errors.New("bytes behind the login, before its answer"))
	case l.settings.RequireTLS && !l.clientTLS:
		s.end(LoginRefused, &wire.Error{Code: codeSecure, State: "HY000", Message: "Penstock: this listener requires TLS; connect with --ssl-mode=REQUIRED or better"})
	case l.Capabilities&wire.PluginAuth == 0:
		s.end(LoginRefused, &wire.Error{Code: codeAuthMode, State: "08004", Message: "Penstock: the client must support authentication plugins (CLIENT_PLUGIN_AUTH)"})
	default:
		s.user = l.User
		s.streams[relay.Client].SetReading(false)
		if why := s.host.Login(s.conn, s.user); why != netio.OK {
			s.end(why, &wire.Error{Code: codeAccessDenied, State: "28000", Message: "Penstock: no server for this login (" + string(why) + ")"})
			return
		}
		s.tryNext(nil)
	}
}

// readHello begins TLS with the client once its hello is whole.
func (s *Session) readHello() {
	l := s.login
	if len(l.client) == 0 {
		return
	}
	h, _, err := clienthello.Parse(l.client)
	if errors.Is(err, clienthello.ErrMore) {
		return
	}
	if err != nil {
		s.conn.Fail(netio.BadHello, err, true)
		return
	}
	config, why := s.host.TLSConfig(&h)
	if why != netio.OK {
		s.conn.End(why, true)
		return
	}
	s.phase = securing
	s.streams[relay.Client] = s.conn.StartTLS(relay.Client, config, l.client)
	l.client, l.clientTLS = nil, true
}

// Secured implements netio.Greeter.
func (s *Session) Secured(side relay.Side) {
	if side == relay.Client {
		s.phase = wantLogin
		s.streams[relay.Client].SetReading(true)
		return
	}
	s.sendLogin()
	s.streams[relay.Upstream].SetReading(true)
}

// Start implements netio.Session: a server is connected, which speaks first.
func (s *Session) Start(_ *netio.Conn, client, upstream stream.Stream) {
	s.streams = [2]stream.Stream{client, upstream}
	s.phase, s.login.server, s.tls, s.pending[relay.Upstream] = wantGreeting, nil, false, false
	upstream.SetReading(true)
}

// serverLogin takes the server's greeting.
func (s *Session) serverLogin(p []byte) {
	l := s.login
	l.server = append(l.server, p...)
	payload, seq, rest, err := packet(l.server)
	if err == nil && payload == nil {
		return
	}
	if err == nil && (s.phase != wantGreeting || len(rest) > 0) {
		err = errors.New("bytes before TLS or the login")
	}
	if err == nil && wire.IsError(payload) {
		e, parse := wire.ParseError(payload)
		if err = parse; err == nil {
			err = &e
		}
	} else if err == nil {
		l.greeting, err = wire.ParseGreeting(payload)
	}
	if err == nil {
		if missing := l.Capabilities & offered & mustHave &^ l.greeting.Capabilities; missing != 0 {
			err = fmt.Errorf("the server lacks what the client asks for: %s", missing)
		}
	}
	config := s.conn.UpstreamTLS()
	wantsTLS := config != nil && (l.clientTLS || s.host.RequiresTLS())
	if err == nil && wantsTLS && l.greeting.Capabilities&wire.SSL == 0 {
		err = fmt.Errorf("%w: the server does not offer TLS", netio.ErrUpstreamTLS)
	}
	if err != nil {
		s.tryNext(fmt.Errorf("greeting: %w", err))
		return
	}
	s.host.Greeted(l.greeting.ServerVersion)
	l.server, l.serverSeq = nil, seq
	if !wantsTLS {
		s.sendLogin()
		return
	}
	l.serverSeq++
	s.send(relay.Upstream, wire.AppendPacket(nil, l.serverSeq, wire.AppendSSLRequest(nil, s.loginFor(s.login.greeting.Capabilities|wire.SSL))))
	s.phase, s.tls = wantAnswer, true
	s.streams[relay.Upstream] = s.conn.StartTLS(relay.Upstream, config, nil)
}

// mustHave are capabilities without which a server would answer in another layout than
// the client expects.
const mustHave = wire.DeprecateEOF | wire.Protocol41 | wire.PluginAuth

// loginFor returns the client's login for a server with these capabilities.
func (s *Session) loginFor(server wire.Capabilities) *wire.Login {
	out := s.login.Login
	out.Capabilities = s.login.Capabilities&(offered|wire.SSL)&server | wire.LongPassword | wire.PluginAuth
	out.Capabilities &^= wire.SSL
	if s.tls {
		out.Capabilities |= wire.SSL
	}
	out.Plugin = unknownPlugin
	return &out
}

// sendLogin sends the client's login to the server, so that it names the plugin of the
// account.
func (s *Session) sendLogin() {
	l := s.login
	out := s.loginFor(l.greeting.Capabilities)
	s.caps = out.Capabilities
	s.collation = out.Collation
	l.serverSeq++
	s.phase = authenticating
	s.send(relay.Upstream, wire.AppendPacket(nil, l.serverSeq, wire.AppendLogin(nil, out)))
}

// relayAuth relays the packets of the authentication, each with the number that the
// other side expects.
func (s *Session) relayAuth(from relay.Side, p []byte) {
	l := s.login
	buf := &l.client
	if from == relay.Upstream {
		buf = &l.server
	}
	*buf = append(*buf, p...)
	for s.phase == authenticating {
		payload, seq, rest, err := packet(*buf)
		if err == nil && payload == nil {
			return
		}
		if l.turns++; err == nil && l.turns > 2*maxTurns {
			err = fmt.Errorf("more than %d turns of authentication", maxTurns)
		}
		last, to := &l.clientSeq, &l.serverSeq
		if from == relay.Upstream {
			last, to = to, last
		}
		if want := *last + 1; err == nil && seq != want {
			err = fmt.Errorf("packet number %d in the authentication instead of %d", seq, want)
		}
		if err != nil {
			s.badPacket(from, err)
			return
		}
		*last = seq
		*to++
		s.seq = l.clientSeq
		*buf = rest
		if from == relay.Upstream && !s.readAuth(payload) {
			return
		}
		if s.phase == authenticating {
			s.send(from.Other(), wire.AppendPacket(nil, *to, payload))
		}
	}
}

// readAuth looks at a packet of the server; false: the connection has ended.
func (s *Session) readAuth(payload []byte) bool {
	l := s.login
	switch {
	case wire.IsError(payload):
		s.send(relay.Client, wire.AppendPacket(nil, l.clientSeq, payload))
		e, err := wire.ParseError(payload)
		if err == nil {
			err = fmt.Errorf("the server refused the login: error %d", e.Code)
		}
		s.conn.Fail(LoginRefused, err, true)
		return false
	case wire.IsOK(payload):
		ok, err := wire.ParseOK(payload, s.caps)
		if err != nil {
			s.badPacket(relay.Upstream, err)
			return false
		}
		s.status = ok.Status
		s.send(relay.Client, wire.AppendPacket(nil, l.clientSeq, payload))
		s.opened()
	case len(payload) > 0 && payload[0] == 0xfe:
		if a, err := wire.ParseAuthSwitch(payload); err == nil {
			l.plugin = a.Plugin
		}
	case string(payload) == sha2Full && l.plugin == cachingSHA2 && l.clientTLS != s.tls:
		// The client would send its password in the form for its own side.
		l.clientSeq-- // nothing has gone to it
		s.seq = l.clientSeq
		s.refuseMixedTLS()
		return false
	}
	return true
}

// refuseMixedTLS ends a session whose client would send its password in the form for a
// server with TLS to one without, or the other way round.
func (s *Session) refuseMixedTLS() {
	s.end(LoginRefused, &wire.Error{Code: codeAuthMode, State: "08004", Message: "Penstock: caching_sha2_password needs TLS on both sides or on none"})
}

// opened is called when the server has accepted the client.
func (s *Session) opened() {
	early := s.login.client
	s.compress(&s.login.Login)
	s.phase, s.login = open, nil
	s.conn.Disarm(&s.timer)
	if s.host.Reconnects() {
		s.keeps = newKeeper(uint16(s.collation))
	}
	s.host.LoggedIn(s.conn)
	if len(early) > 0 && s.phase == open {
		s.Received(relay.Client, early)
	}
	s.tryMove()
}

// Refused implements netio.Greeter: no server took the client.
func (s *Session) Refused(why netio.Reason, err error) {
	say := &wire.Error{Code: codeUnknown, State: "08S01", Message: "Penstock: no server can be reached (" + string(why) + ")"}
	var server *wire.Error
	if errors.As(err, &server) {
		say = server
		if say.State == "" {
			say.State = "08004"
		}
	}
	s.sayError(say)
	s.conn.Fail(why, err, true)
}
