package session_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
	"penstock/mysql/session"
	"penstock/mysql/wire"
	"penstock/netio"
)

// mustBeEmpty checks that no connection is left and no memory charged.
func (r *rig) mustBeEmpty() {
	r.t.Helper()
	testkit.WaitFor(r.t, "no connection is left", func() bool { return len(r.Connections(10)) == 0 })
	r.waitUsed("nothing to be charged", none)
}

// readError reads an error packet; 0: the connection has ended without one.
func (c *client) readError() uint16 {
	c.t.Helper()
	p, err := c.read()
	if err != nil {
		return 0
	}
	return code(c.parseOK(p))
}

// loginBytes is a login of root with everything that a login may have.
func loginBytes() []byte {
	return wire.AppendLogin(nil, &wire.Login{
		Capabilities: clientCaps | wire.ConnectAttrs, MaxPacket: 1 << 24, Collation: 45, User: "root", Database: "shop", Plugin: "mysql_native_password",
		Attributes: wire.AppendString(wire.AppendString(nil, "_client_name"), "libmysql"),
	})
}

// A login that is cut off anywhere ends with the connection; one that is too short by its
// own account is refused with an error.
func TestLoginsCutOff(t *testing.T) {
	here, _ := pair(t, nil)
	r := newRig(t, nil, here.Addr())
	whole := wire.AppendPacket(nil, 1, loginBytes())
	for n := range len(whole) {
		c := connect(t, r.addr())
		c.mustRead()
		c.send(whole[:n])
		_ = c.net.(*net.TCPConn).CloseWrite()
		if got := c.readError(); got != 0 {
			t.Errorf("%d bytes: error %d", n, got)
		}
		r.mustEnd(netio.ClientGone)
	}
	login, refused, taken := loginBytes(), 0, 0
	for n := range len(login) {
		c := connect(t, r.addr())
		c.mustRead()
		c.write(1, login[:n])
		p, err := c.read()
		switch {
		case err != nil:
			t.Errorf("a login of %d bytes: %v", n, err)
			continue
		case wire.IsError(p) && code(c.parseOK(p)) == 1156:
			refused++
			r.mustEnd(session.BadPacket)
		default: // fields at the end may be missing
			taken++
			_ = c.net.Close()
			r.ended()
		}
	}
	if refused == 0 || taken == 0 || taken > 4 {
		t.Errorf("%d logins were refused and %d taken", refused, taken)
	}
	r.mustBeEmpty()
}

// What clients may not do before they are logged in.
func TestHostileClients(t *testing.T) {
	here, _ := pair(t, nil)
	good := wire.AppendPacket(nil, 1, loginBytes())
	hello := append([]byte{0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3}, make([]byte, 194)...)
	for name, tt := range map[string]struct {
		send []byte
		code uint16
		why  netio.Reason
	}{
		"number 0":                {wire.AppendPacket(nil, 0, loginBytes()), 1156, session.BadPacket},
		"number 2":                {wire.AppendPacket(nil, 2, loginBytes()), 1156, session.BadPacket},
		"number 255":              {wire.AppendPacket(nil, 255, loginBytes()), 1156, session.BadPacket},
		"empty":                   {wire.AppendPacket(nil, 1, nil), 1156, session.BadPacket},
		"16 MiB":                  {append([]byte{0xff, 0xff, 0xff, 1}, make([]byte, 100)...), 1156, session.BadPacket},
		"just too long":           {[]byte{1, 0, 1, 1}, 1156, session.BadPacket},
		"TLS without asking":      {hello, 1156, session.BadPacket},
		"TLS that is not offered": {wire.AppendPacket(nil, 1, wire.AppendSSLRequest(nil, &wire.Login{Capabilities: clientCaps})), 1043, session.LoginRefused},
		"HTTP":                    {[]byte("GET / HTTP/1.1\r\nHost: db\r\n\r\n"), 1156, session.BadPacket},
		"a command behind":        {append(bytes.Clone(good), 1, 0, 0, 0, 14), 1156, session.BadPacket},
		"version 3.20":            {wire.AppendPacket(nil, 1, []byte("\x05\x00\x00\x00\x01root\x00")), 1156, session.BadPacket},
		"no plugins":              {wire.AppendPacket(nil, 1, wire.AppendLogin(nil, &wire.Login{Capabilities: clientCaps &^ wire.PluginAuth, User: "root"})), 1251, session.LoginRefused},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, here.Addr())
			c := connect(t, r.addr())
			c.mustRead()
			c.send(tt.send)
			if got := c.readError(); got != tt.code {
				t.Errorf("error %d, want %d", got, tt.code)
			}
			r.mustEnd(tt.why)
			r.mustBeEmpty()
		})
	}
}

// What open clients may not do.
func TestHostileCommands(t *testing.T) {
	here, _ := pair(t, nil)
	for name, tt := range map[string]struct {
		send []byte
		code uint16
	}{
		"number 1":                  {[]byte{1, 0, 0, 1, 14}, 1156},
		"no byte":                   {[]byte{0, 0, 0, 0}, 1156},
		"unknown":                   {[]byte{1, 0, 0, 0, 0x55}, 1047},
		"COM_CHANGE_USER, number 9": {wire.AppendPacket(nil, 9, []byte("\x11root\x00\x00\x00")), 1156},
		"COM_CHANGE_USER, cut":      {wire.AppendPacket(nil, 0, []byte("\x11root")), 1156},
		"COM_CHANGE_USER, long":     {append([]byte{0xff, 0xff, 0xff, 0, 0x11}, make([]byte, 100)...), 1156},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, here.Addr())
			c := mustLogIn(t, r.addr(), nil)
			c.send(tt.send)
			if got := c.readError(); got != tt.code {
				t.Errorf("error %d, want %d", got, tt.code)
			}
			r.mustEnd(session.BadPacket)
			r.mustBeEmpty()
		})
	}
}

// ok is an OK packet; okPacket numbers it.
func ok() []byte { return wire.AppendOK(nil, &wire.OK{Status: wire.Autocommit}, serverCaps) }

// Servers that misbehave up to the end of the login.
func TestHostileServersAtTheLogin(t *testing.T) {
	// afterLogin greets, reads the login, and sends bytes.
	afterLogin := func(p []byte) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Write(wire.AppendPacket(nil, 0, greeting()))
			_, _ = readPacket(c)
			_, _ = c.Write(p)
			_, _ = io.Copy(io.Discard, c)
		}
	}
	first := func(p []byte) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Write(p)
			_, _ = io.Copy(io.Discard, c)
		}
	}
	more := bytes.Repeat(wire.AppendPacket(nil, 2, []byte{1, 9}), 1)
	var endless []byte
	for i := range 300 {
		endless = wire.AppendPacket(endless, byte(2+i), []byte{1, 9})
	}
	for name, tt := range map[string]struct {
		serve func(net.Conn)
		code  uint16
		why   netio.Reason
	}{
		"silent":                  {first(nil), 1043, session.LoginTimeout},
		"greets with an error":    {first(wire.AppendPacket(nil, 0, wire.AppendError(nil, &wire.Error{Code: 1040, Message: "Too many connections"}))), 1040, netio.ConnectError},
		"greets with 16 MiB":      {first(append([]byte{0xff, 0xff, 0xff, 0}, make([]byte, 100)...)), 1105, netio.ConnectError},
		"greets with TLS":         {first([]byte{0x16, 3, 1, 0, 200, 1, 0, 0}), 1105, netio.ConnectError},
		"greets with half":        {first(wire.AppendPacket(nil, 0, greeting()[:20])), 1105, netio.ConnectError},
		"greets twice":            {first(bytes.Repeat(wire.AppendPacket(nil, 0, greeting()), 2)), 1105, netio.ConnectError},
		"closes at the greeting":  {func(net.Conn) {}, 1105, netio.ConnectError},
		"closes after the login":  {func(c net.Conn) { _, _ = c.Write(wire.AppendPacket(nil, 0, greeting())); _, _ = readPacket(c) }, 1105, netio.UpstreamFIN},
		"silent after the login":  {afterLogin(nil), 1043, session.LoginTimeout},
		"OK without its end":      {afterLogin(wire.AppendPacket(nil, 2, ok()[:4])), 1156, session.BadServerPacket},
		"OK with a wrong number":  {afterLogin(wire.AppendPacket(nil, 7, ok())), 1156, session.BadServerPacket},
		"16 MiB in place of OK":   {afterLogin(append([]byte{0xff, 0xff, 0xff, 2}, make([]byte, 100)...)), 1156, session.BadServerPacket},
		"turns without end":       {afterLogin(endless), 0, session.BadServerPacket},
		"half a turn":             {afterLogin(more[:5]), 1043, session.LoginTimeout},
		"an error":                {afterLogin(wire.AppendPacket(nil, 2, wire.AppendError(nil, &wire.Error{Code: 1045, State: "28000", Message: "no"}))), 1045, session.LoginRefused},
		"an error without a code": {afterLogin(wire.AppendPacket(nil, 2, []byte{0xff})), 0, session.LoginRefused},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(r *rig, _ *netio.Config) {
				if tt.why == session.LoginTimeout {
					r.settings.LoginTimeout = 50 * time.Millisecond
				}
			}, testkit.Serve(t, tt.serve))
			c := connect(t, r.addr())
			c.mustRead()
			c.write(1, loginBytes())
			got := c.readError()
			for i := 0; got == 0 && i < 200 && name == "turns without end"; i++ { // behind those that were relayed
				got = c.readError()
			}
			want := tt.code
			if name == "turns without end" {
				want = 1156
			}
			if got != want {
				t.Errorf("error %d, want %d", got, want)
			}
			if e := r.ended(); e.why != tt.why && (tt.why != netio.ConnectError || !strings.HasPrefix(string(e.why), "upstream")) {
				t.Errorf("ended for %s (%v), want %s", e.why, e.err, tt.why)
			}
			r.mustBeEmpty()
		})
	}
}

// Answers that are no answers end the session with an error where the client can read
// one, and never are relayed.
func TestHostileAnswers(t *testing.T) {
	columns := func(n uint64) []byte { return wire.AppendPacket(nil, 1, wire.AppendInt(nil, n)) }
	for name, tt := range map[string]struct {
		command wire.Command
		answer  []byte
		bad     bool
	}{
		"65536 columns":     {wire.ComQuery, columns(1 << 16), false},
		"65537 columns":     {wire.ComQuery, columns(1<<16 + 1), true},
		"2^64-1 columns":    {wire.ComQuery, columns(1<<64 - 1), true},
		"half a number":     {wire.ComQuery, wire.AppendPacket(nil, 1, []byte{0xfd, 1}), true},
		"empty":             {wire.ComQuery, wire.AppendPacket(nil, 1, nil), true},
		"OK cut off":        {wire.ComQuery, wire.AppendPacket(nil, 1, []byte{0, 0xfe, 1}), true},
		"OK without status": {wire.ComPing, wire.AppendPacket(nil, 1, []byte{0, 0, 0}), true},
		"a row for a ping":  {wire.ComPing, wire.AppendPacket(nil, 1, []byte("\x01x")), true},
		"two answers":       {wire.ComPing, append(wire.AppendPacket(nil, 1, ok()), wire.AppendPacket(nil, 2, ok())...), true},
		"a bad prepare":     {wire.ComStmtPrepare, wire.AppendPacket(nil, 1, []byte{0, 1}), true},
		"an answer to none": {wire.ComStmtClose, wire.AppendPacket(nil, 1, ok()), true},
		"16 MiB - 1":        {wire.ComQuery, append(columns(1), 0xff, 0xff, 0xff, 2, 1, 2, 3), false},
	} {
		t.Run(name, func(t *testing.T) {
			end := make(chan struct{})
			stop := func() {
				select {
				case <-end:
				default:
					close(end)
				}
			}
			defer stop()
			r := newRig(t, nil, testkit.Serve(t, func(c net.Conn) {
				greet(t, c)
				if p, _ := readPacket(c); p == nil {
					return
				}
				_, _ = c.Write(tt.answer)
				<-end
			}))
			c := mustLogIn(t, r.addr(), nil)
			c.command(tt.command, "1234567")
			if tt.bad {
				if got := c.readError(); got != 1156 {
					t.Errorf("error %d, want 1156", got)
				}
				r.mustEnd(session.BadServerPacket)
			} else {
				got := make([]byte, len(tt.answer))
				if err := c.readFull(got); err != nil || !bytes.Equal(got, tt.answer) {
					t.Errorf("%x, %v; want %x", got, err, tt.answer)
				}
				stop()
				r.mustEnd(netio.UpstreamFIN)
			}
			r.mustBeEmpty()
		})
	}
}

// A new server that misbehaves leaves the session where it is.
func TestHostileMoves(t *testing.T) {
	signer := mysqltest.NewSigner(t)
	config := mysqltest.Config{Signer: signer}
	late := config
	late.Now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	other := mysqltest.Config{Signer: mysqltest.NewSigner(t)}
	afterLogin := func(p []byte) string {
		return testkit.Serve(t, func(c net.Conn) {
			_, _ = c.Write(wire.AppendPacket(nil, 0, greeting()))
			_, _ = readPacket(c)
			_, _ = c.Write(p)
			_, _ = io.Copy(io.Discard, c)
		})
	}
	for name, to := range map[string]string{
		"an expired token": mysqltest.New(t, late).Addr(),
		"a forged token":   mysqltest.New(t, other).Addr(),
		"a switch":         afterLogin(wire.AppendPacket(nil, 2, wire.AppendAuthSwitch(nil, &wire.AuthSwitch{Plugin: "p"}))),
		"16 MiB":           afterLogin([]byte{0xff, 0xff, 0xff, 2}),
		"two OKs":          afterLogin(bytes.Repeat(wire.AppendPacket(nil, 2, ok()), 2)),
		"a bad OK":         afterLogin(append(wire.AppendPacket(nil, 2, ok()), wire.AppendPacket(nil, 1, []byte{0})...)),
		"silent":           testkit.Serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }),
		"closes":           testkit.Serve(t, func(net.Conn) {}),
		"nobody is there":  testkit.FreeAddress(t),
	} {
		t.Run(name, func(t *testing.T) {
			here := mysqltest.New(t, config)
			r := newRig(t, func(r *rig, _ *netio.Config) {
				if name == "silent" {
					r.settings.MoveTimeout = 50 * time.Millisecond
				}
			}, here.Addr())
			c := mustLogIn(t, r.addr(), nil)
			c.mustRun(wire.ComQuery, "SET @a = 5")
			h := r.last()
			h.move(to)
			if err := testkit.Receive(t, "the move", h.moved); err == nil {
				t.Error("it has moved")
			}
			if got := c.query("SELECT @a"); got != "5" {
				t.Errorf("@a is %s", got)
			}
			c.command(wire.ComQuit, "")
			r.mustEnd(netio.ClientFIN)
			r.mustBeEmpty()
		})
	}
}

// A command may come in pieces of any size.
func TestCommandsInPieces(t *testing.T) {
	here, _ := pair(t, nil)
	r := newRig(t, nil, here.Addr())
	c := mustLogIn(t, r.addr(), nil)
	c.mustRun(wire.ComPing, "")
	h := r.last()
	command := wire.AppendPacket(nil, 0, []byte("\x03SELECT 'a value'"))
	in := func() (n uint64) { h.do(func() { n, _ = h.conn.Bytes() }); return n }
	for n := 1; n < len(command); n++ {
		before := in()
		c.send(command[:n])
		testkit.WaitFor(t, "the first piece", func() bool { return in() == before+uint64(n) })
		c.send(command[n:])
		if all, err := c.rows(); err != nil || len(all) != 1 || all[0] != "a value" {
			t.Fatalf("cut after %d bytes: %q, %v", n, all, err)
		}
	}
}
