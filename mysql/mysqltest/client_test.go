package mysqltest_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"penstock/mysql/mysqltest"
	"penstock/mysql/wire"
)

// client speaks the protocol with package wire, as a proxy does.
type client struct {
	t    *testing.T
	net  net.Conn
	in   *bufio.Reader
	caps wire.Capabilities
}

const clientCaps = wire.LongPassword | wire.Protocol41 | wire.SecureConnection | wire.PluginAuth | wire.DeprecateEOF |
	wire.MultiResults | wire.PluginAuthLenencClientData | wire.PSMultiResults

// dial connects, and logs in with what the caller makes of the login of root.
func dial(t *testing.T, s *mysqltest.Server, change func(*wire.Login)) (*client, error) {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := &client{t: t, net: nc, in: bufio.NewReader(nc), caps: clientCaps}
	p, err := c.read()
	if err != nil {
		return nil, err
	}
	g, err := wire.ParseGreeting(p)
	if err != nil {
		return nil, err
	}
	login := wire.Login{Capabilities: clientCaps & g.Capabilities, MaxPacket: 1 << 24, Collation: 45, User: "root", Plugin: g.Plugin}
	if change != nil {
		change(&login)
	}
	c.caps = login.Capabilities
	c.write(1, wire.AppendLogin(nil, &login))
	return c, c.ok()
}

func (c *client) write(seq byte, payload []byte) { c.net.Write(wire.AppendPacket(nil, seq, payload)) }

func (c *client) read() ([]byte, error) {
	header := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(c.in, header); err != nil {
		return nil, err
	}
	n, _ := wire.ParseHeader(header)
	p := make([]byte, n)
	_, err := io.ReadFull(c.in, p)
	return p, err
}

// ok reads an OK; an error of the server is a wire.Error.
func (c *client) ok() error {
	p, err := c.read()
	if err != nil {
		return err
	}
	if wire.IsError(p) {
		refusal, err := wire.ParseError(p)
		return errors.Join(refusal, err)
	}
	_, err = wire.ParseOK(p, c.caps)
	return err
}

// run sends a command and reads the OK that answers it.
func (c *client) run(command wire.Command, body string) error {
	c.write(0, append([]byte{byte(command)}, body...))
	return c.ok()
}

func (c *client) mustRun(command wire.Command, body string) {
	c.t.Helper()
	if err := c.run(command, body); err != nil {
		c.t.Fatalf("%v %q: %v", command, body, err)
	}
}

// states asks for the session states.
func (c *client) states() (wire.States, error) {
	c.write(0, wire.AppendShowStates(nil))
	var r wire.StatesReader
	for {
		p, err := c.read()
		if err != nil {
			return wire.States{}, err
		}
		if done, err := r.Add(p, c.caps); done || err != nil {
			return r.States, err
		}
	}
}

// prepare prepares a statement without parameters that has one column.
func (c *client) prepare(query string) (id uint32) {
	c.t.Helper()
	c.write(0, append([]byte{byte(wire.ComStmtPrepare)}, query...))
	p, err := c.read()
	if err != nil || p[0] != 0 {
		c.t.Fatalf("%q, %v", p, err)
	}
	for range binary.LittleEndian.Uint16(p[5:]) {
		c.read()
	}
	if c.caps&wire.DeprecateEOF == 0 {
		c.read()
	}
	return binary.LittleEndian.Uint32(p[1:])
}

// execute executes a statement and returns the status that ends the answer.
func (c *client) execute(id uint32, cursor byte) wire.Status {
	c.t.Helper()
	p := binary.LittleEndian.AppendUint32([]byte{byte(wire.ComStmtExecute)}, id)
	c.write(0, append(p, cursor, 1, 0, 0, 0))
	return c.rowsEnd()
}

// rowsEnd reads up to the end of rows.
func (c *client) rowsEnd() wire.Status {
	c.t.Helper()
	for {
		p, err := c.read()
		if err != nil || wire.IsError(p) {
			c.t.Fatalf("%q, %v", p, err)
		}
		if wire.IsRowsEnd(p[0], len(p), c.caps) {
			o, err := wire.ParseOK(p, c.caps)
			if err != nil {
				c.t.Fatal(err)
			}
			return o.Status
		}
	}
}

func errorCode(err error) uint16 {
	var e wire.Error
	errors.As(err, &e)
	return e.Code
}

func TestSessionMoves(t *testing.T) {
	now := time.Now()
	signer, store := mysqltest.NewSigner(t), mysqltest.NewStore()
	config := mysqltest.Config{Signer: signer, Store: store, Now: func() time.Time { return now }}
	a, b := mysqltest.New(t, config), mysqltest.New(t, config)
	c, err := dial(t, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.mustRun(wire.ComQuery, `SET @quote = 'it\'s \\ "so"', @n = 7`)
	c.mustRun(wire.ComInitDB, "shop")
	c.mustRun(wire.ComQuery, "INSERT INTO counter VALUES ('x', 1)")
	id := c.prepare("SELECT @quote")
	states, err := c.states()
	if err != nil || len(states.Token) == 0 {
		t.Fatalf("%d bytes of token, %v", len(states.Token), err)
	}
	moved, err := dial(t, b, func(l *wire.Login) { *l = wire.TokenLogin(*l, states.Token) })
	if err != nil {
		t.Fatal(err)
	}
	moved.write(0, wire.AppendSetStates(nil, states.JSON))
	if err := moved.ok(); err != nil {
		t.Fatal(err)
	}
	moved.execute(id, 0)
	again, err := moved.states()
	if err != nil || again.JSON != states.JSON {
		t.Errorf("after the move: %s, before: %s, %v", again.JSON, states.JSON, err)
	}
	for name, login := range map[string]func(*wire.Login){
		"another user": func(l *wire.Login) { *l = wire.TokenLogin(*l, states.Token); l.User = "eve" },
		"forged":       func(l *wire.Login) { *l = wire.TokenLogin(*l, mysqltest.NewSigner(t).Token("root", now)) },
		"empty":        func(l *wire.Login) { *l = wire.TokenLogin(*l, nil) },
		"late":         func(l *wire.Login) { *l = wire.TokenLogin(*l, signer.Token("root", now.Add(-61*time.Second))) },
	} {
		if _, err := dial(t, b, login); errorCode(err) != 1045 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSessionStays(t *testing.T) {
	s := mysqltest.New(t, mysqltest.Config{Signer: mysqltest.NewSigner(t)})
	for _, c := range []struct{ begin, end, why string }{
		{"BEGIN", "COMMIT", "transaction"},
		{"DO GET_LOCK('l', 1)", "DO RELEASE_LOCK('l')", "advisory"},
		{"LOCK TABLES counter WRITE", "UNLOCK TABLES", "locked tables"},
		{"CREATE TEMPORARY TABLE tmp (a int)", "DROP TABLE tmp", "temporary"},
	} {
		session, err := dial(t, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		session.mustRun(wire.ComQuery, c.begin)
		if _, err := session.states(); errorCode(err) != 8146 || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", c.begin, err)
		}
		session.mustRun(wire.ComQuery, c.end)
		if _, err := session.states(); err != nil {
			t.Errorf("%s: %v", c.end, err)
		}
	}
}

func TestSessionStaysForStatements(t *testing.T) {
	s := mysqltest.New(t, mysqltest.Config{Signer: mysqltest.NewSigner(t)})
	c, err := dial(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	id := c.prepare("SELECT id FROM rows(5, 1)")
	if status := c.execute(id, 1); status&wire.CursorExists == 0 {
		t.Fatalf("status %v", status)
	}
	if _, err := c.states(); errorCode(err) != 8146 {
		t.Errorf("with a cursor: %v", err)
	}
	fetch := binary.LittleEndian.AppendUint32([]byte{byte(wire.ComStmtFetch)}, id)
	var seen []wire.Status
	for range 2 {
		c.write(0, append(fetch, 3, 0, 0, 0))
		seen = append(seen, c.rowsEnd()&wire.LastRowSent)
	}
	if seen[0] != 0 || seen[1] == 0 {
		t.Errorf("last row sent: %v", seen)
	}
	if _, err := c.states(); err != nil {
		t.Errorf("after the last row: %v", err)
	}
	long := binary.LittleEndian.AppendUint32([]byte{byte(wire.ComStmtSendLongData)}, id)
	c.write(0, append(long, 0, 0, 'x'))
	if _, err := c.states(); errorCode(err) != 8146 {
		t.Errorf("with long data: %v", err)
	}
	c.mustRun(wire.ComStmtReset, string(long[1:]))
	if _, err := c.states(); err != nil {
		t.Errorf("after the reset: %v", err)
	}
}

func TestHooksMisbehave(t *testing.T) {
	s := mysqltest.New(t, mysqltest.Config{Signer: mysqltest.NewSigner(t)})
	at := func(step mysqltest.Step, a mysqltest.Action) {
		s.SetHook(func(e mysqltest.Event) mysqltest.Action {
			if e.Step == step {
				return a
			}
			return mysqltest.Action{}
		})
	}
	busy := &wire.Error{Code: 1040, State: "08004", Message: "Too many connections"}
	for _, step := range []mysqltest.Step{mysqltest.OnConnect, mysqltest.OnLogin, mysqltest.OnVerdict} {
		at(step, mysqltest.Action{Error: busy})
		if _, err := dial(t, s, nil); errorCode(err) != 1040 {
			t.Errorf("step %d: %v", step, err)
		}
		at(step, mysqltest.Action{Close: true})
		if _, err := dial(t, s, nil); err == nil {
			t.Errorf("step %d: not closed", step)
		}
	}
	at(mysqltest.OnConnect, mysqltest.Action{Packets: [][]byte{{10, 'x'}}})
	if _, err := dial(t, s, nil); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a malformed greeting: %v", err)
	}
	s.SetHook(nil)
	c, err := dial(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	at(mysqltest.OnShowStates, mysqltest.Action{States: &wire.States{JSON: "{}"}})
	if states, err := c.states(); err != nil || len(states.Token) > 0 || states.JSON != "{}" {
		t.Errorf("%+v, %v", states, err)
	}
	at(mysqltest.OnSetStates, mysqltest.Action{Error: busy})
	c.write(0, wire.AppendSetStates(nil, "{}"))
	if err := c.ok(); errorCode(err) != 1040 {
		t.Errorf("refused states: %v", err)
	}
	wait := make(chan struct{})
	at(mysqltest.OnCommand, mysqltest.Action{Wait: wait})
	c.write(0, []byte{byte(wire.ComPing)})
	close(wait)
	if err := c.ok(); err != nil {
		t.Errorf("a late answer: %v", err)
	}
	at(mysqltest.OnCommand, mysqltest.Action{Packets: [][]byte{make([]byte, wire.MaxPayload)}})
	c.write(0, []byte{byte(wire.ComPing)})
	for _, want := range []int{wire.MaxPayload, 0} {
		if p, err := c.read(); err != nil || len(p) != want {
			t.Errorf("%d bytes, %v", len(p), err)
		}
	}
}

func TestChangeUserAndReset(t *testing.T) {
	s := mysqltest.New(t, mysqltest.Config{Users: map[string]mysqltest.User{"root": {}, "app": {Plugin: "opaque", Password: "pw"}}})
	c, err := dial(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.mustRun(wire.ComQuery, "BEGIN")
	c.mustRun(wire.ComResetConnection, "")
	c.write(0, []byte{byte(wire.ComStatistics)})
	if p, err := c.read(); err != nil || !strings.HasPrefix(string(p), "Uptime") {
		t.Errorf("statistics: %q, %v", p, err)
	}
	c.write(0, wire.AppendChangeUser(nil, &wire.ChangeUser{User: "app", Database: "shop", Plugin: "auth_unknown_plugin"}, c.caps))
	p, err := c.read()
	if err != nil {
		t.Fatal(err)
	}
	if sw, err := wire.ParseAuthSwitch(p); err != nil || sw.Plugin != "opaque" || len(sw.Data) != 21 {
		t.Fatalf("%+v, %v", sw, err)
	}
	c.write(2, []byte("pw"))
	if err := c.ok(); err != nil {
		t.Error(err)
	}
	if last := s.Record().Logins[1]; !last.ChangeUser || !last.OK || last.Login.Database != "shop" {
		t.Errorf("%+v", last)
	}
	c.write(7, []byte{byte(wire.ComPing)})
	if err := c.ok(); errorCode(err) != 1156 {
		t.Errorf("a wrong number: %v", err)
	}
}

func TestZstd(t *testing.T) {
	s := mysqltest.New(t, mysqltest.Config{})
	c, err := dial(t, s, func(l *wire.Login) { l.Capabilities |= wire.ZstdCompressionAlgorithm; l.ZstdLevel = 5 })
	if err != nil {
		t.Fatal(err)
	}
	r, w := wire.NewCompressedReader(wire.Zstd), wire.NewCompressedWriter(wire.Zstd, 5)
	c.net.Write(w.Append(nil, wire.AppendPacket(nil, 0, []byte("\x03SELECT REPEAT('zstd', 100000)"))))
	r.Seq = w.Seq
	var plain []byte
	buf, chunk := make([]byte, 1<<16), make([]byte, 1<<16)
	for len(plain) < 400_000 {
		n, err := c.in.Read(chunk)
		if err != nil {
			t.Fatal(err)
		}
		for src := chunk[:n]; ; {
			got, taken, err := r.Read(buf, src)
			if err != nil {
				t.Fatal(err)
			}
			plain, src = append(plain, buf[:got]...), src[taken:]
			if got == 0 && taken == 0 {
				break
			}
		}
	}
	if n := strings.Count(string(plain), "zstd"); n < 100_000 {
		t.Errorf("%d of 100000 repetitions", n)
	}
}
