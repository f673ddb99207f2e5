package dataplane

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
	"penstock/mysql/session"
	"penstock/mysql/wire"
	"penstock/node/nodetest"
	"penstock/routing/resource"
)

// applyFollowed puts resources in force with the content of the files that they name.
func (p *testPlane) applyFollowed(t *testing.T, text string) {
	t.Helper()
	var changes []resource.Change
	for _, o := range nodetest.Objects(t, text) {
		if f, ok := o.Spec.(resource.Follower); ok && len(f.Followed()) > 0 {
			var content []string
			for _, file := range f.Followed() {
				b, err := os.ReadFile(file.Name)
				if err != nil {
					t.Fatal(err)
				}
				content = append(content, string(b))
			}
			spec, err := f.WithContent(content)
			if err != nil {
				t.Fatal(err)
			}
			o.Spec = spec
		}
		changes = append(changes, resource.Put(o))
	}
	p.change(t, changes)
}

// stateRows are what a server of these tests says of every session, with changes.
func stateRows(changes ...[3]string) [][]byte {
	rows := [][3]string{
		{"CHARACTER_SET_CLIENT", "utf8mb4", "utf8mb4"}, {"SQL_MODE", "STRICT", "STRICT"}, {".variables", "0", ""}, {".database", "", ""},
		{".user", "app@%", ""}, {".end", "1", ""},
	}
	for _, c := range changes {
		for i := range rows {
			if rows[i][0] == c[0] {
				rows[i] = c
			}
		}
	}
	packets := [][]byte{{3}, []byte("\x03def"), []byte("\x03def"), []byte("\x03def")}
	for _, row := range rows {
		var b []byte
		for _, v := range row {
			b = wire.AppendString(b, v)
		}
		packets = append(packets, b)
	}
	return append(packets, wire.AppendOK(nil, &wire.OK{Status: wire.Autocommit, EndsRows: true}, wire.DeprecateEOF))
}

func isQuestion(e mysqltest.Event) bool {
	return e.Step == mysqltest.OnCommand && bytes.Contains(e.Payload, []byte("information_schema.SYSTEM_VARIABLES"))
}

// answering makes a server answer questions.
func answering(rows ...[3]string) mysqltest.Hook {
	return func(e mysqltest.Event) mysqltest.Action {
		if isQuestion(e) {
			return mysqltest.Action{Packets: stateRows(rows...)}
		}
		return mysqltest.Action{}
	}
}

// textLog keeps what is logged.
type textLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *textLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *textLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// reconnecting starts a data plane before two servers, of which the first has a session.
type reconnecting struct {
	plane   *testPlane
	servers []*mysqltest.Server
	log     *textLog
	more    string
}

func newReconnecting(t *testing.T) *reconnecting {
	t.Helper()
	file := t.TempDir() + "/password"
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &reconnecting{log: &textLog{}, more: fmt.Sprintf("mysql: {move: reconnect, credentials: [{user: app, passwordFile: %q}, {user: sha, passwordFile: %q}]}, ", file, file)}
	r.servers = mysqlServers(t, 2, func(c *mysqltest.Config) { c.Version = "10.11.1-MariaDB" })
	r.plane = start(t, mysqlListener+mysqlService("tidb", "", r.servers[0]), func(c *Config) { c.Log = slog.New(slog.NewTextHandler(r.log, nil)) })
	r.plane.applyFollowed(t, mysqlService("tidb", r.more, r.servers[0]))
	for _, s := range r.servers {
		s.SetHook(answering())
	}
	return r
}

func (r *reconnecting) leave(t *testing.T) {
	t.Helper()
	r.plane.applyFollowed(t, mysqlService("tidb", r.more, r.servers[1]))
}

// A session that holds nothing is at the new server, with what the old one said of it.
func TestMySQLSessionsReconnect(t *testing.T) {
	r := newReconnecting(t)
	r.servers[0].SetHook(answering([3]string{".database", "shop", ""}, [3]string{"CHARACTER_SET_CLIENT", "latin1", "utf8mb4"}))
	var mu sync.Mutex
	var commands []string
	given := false
	r.servers[1].SetHook(func(e mysqltest.Event) mysqltest.Action {
		mu.Lock()
		defer mu.Unlock()
		if e.Step == mysqltest.OnCommand && !isQuestion(e) {
			commands = append(commands, string(e.Payload))
		}
		switch ok := [][]byte{wire.AppendOK(nil, &wire.OK{Status: wire.Autocommit}, 0)}; {
		case isQuestion(e) && given:
			return mysqltest.Action{Packets: stateRows([3]string{".database", "shop", ""}, [3]string{"CHARACTER_SET_CLIENT", "latin1", "utf8mb4"})}
		case isQuestion(e):
			return mysqltest.Action{Packets: stateRows([3]string{".database", "shop", ""})}
		case e.Step == mysqltest.OnCommand && bytes.HasPrefix(e.Payload[1:], []byte("SET")):
			given = true
			return mysqltest.Action{Packets: ok}
		case e.Step == mysqltest.OnCommand && wire.Command(e.Payload[0]) == wire.ComInitDB:
			return mysqltest.Action{Packets: ok}
		}
		return mysqltest.Action{}
	})
	c := mustOpenMySQL(t, r.plane, nil)
	mustQuery(t, c, "SELECT 'a'", "a")
	r.leave(t)
	testkit.WaitFor(t, "the session to move", func() bool { return r.servers[1].Conns() == 1 && r.servers[0].Conns() == 0 })
	mustQuery(t, c, "SELECT 'b'", "b")
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"\x02shop", "\x03SET @@SESSION.character_set_client = 'latin1'", "\x03SELECT 'b'"}; fmt.Sprintf("%q", commands) != fmt.Sprintf("%q", want) {
		t.Errorf("the new server got %q, want %q", commands, want)
	}
}

// A move by a login that fails leaves the session where it is, whatever the new server
// does, and no answer of it reaches the client.
func TestMySQLReconnectThatFails(t *testing.T) {
	ok := [][]byte{wire.AppendOK(nil, &wire.OK{Status: wire.Autocommit}, 0)}
	refuse := &wire.Error{Code: 1045, State: "28000", Message: "no, secret"}
	atQuestion := func(a mysqltest.Action) mysqltest.Hook {
		return func(e mysqltest.Event) mysqltest.Action {
			if isQuestion(e) {
				return a
			}
			return mysqltest.Action{}
		}
	}
	for name, tt := range map[string]struct {
		server int
		hook   mysqltest.Hook
		why    string
		reason string
	}{
		"greeting":        {1, stepHook(mysqltest.OnConnect, mysqltest.Action{Error: refuse}), "error 1045", "refused"},
		"login":           {1, stepHook(mysqltest.OnLogin, mysqltest.Action{Error: refuse}), "refused the login: error 1045", "refused"},
		"login closes":    {1, stepHook(mysqltest.OnLogin, mysqltest.Action{Close: true}), "closed", "server"},
		"login and more":  {1, stepHook(mysqltest.OnLogin, mysqltest.Action{Packets: append(ok, ok...)}), "out of turn", "server"},
		"plugin":          {1, stepHook(mysqltest.OnLogin, mysqltest.Action{Packets: [][]byte{wire.AppendAuthSwitch(nil, &wire.AuthSwitch{Plugin: "client_ed25519"})}}), "client_ed25519", "refused"},
		"clear password":  {1, stepHook(mysqltest.OnLogin, mysqltest.Action{Packets: [][]byte{wire.AppendAuthSwitch(nil, &wire.AuthSwitch{Plugin: "mysql_clear_password"})}}), "mysql_clear_password", "refused"},
		"full login":      {1, stepHook(mysqltest.OnLogin, mysqltest.Action{Packets: [][]byte{wire.AppendAuthSwitch(nil, &wire.AuthSwitch{Plugin: "caching_sha2_password", Data: []byte("01234567890123456789\x00")}), {1, 4}}}), "with TLS only", "refused"},
		"many turns":      {1, stepHook(mysqltest.OnLogin, mysqltest.Action{Packets: manySwitches()}), "asks too much", "refused"},
		"odd turn":        {1, stepHook(mysqltest.OnLogin, mysqltest.Action{Packets: [][]byte{{7, 7}}}), "does not take the login", "refused"},
		"question":        {1, atQuestion(mysqltest.Action{Error: refuse}), "error 1045", "server"},
		"question closes": {1, atQuestion(mysqltest.Action{Close: true}), "closed", "server"},
		"bad answer":      {1, atQuestion(mysqltest.Action{Packets: [][]byte{{4}}}), "other columns", "server"},
		"account":         {1, answering([3]string{".user", "app@localhost", ""}), "another user", "refused"},
		"variable":        {1, answering([3]string{"CHARACTER_SET_CLIENT", "latin1", "latin1"}), "does not take the session's CHARACTER_SET_CLIENT", "refused"},
		"old refuses":     {0, atQuestion(mysqltest.Action{Error: refuse}), "error 1045", "no_states"},
		"old hides":       {0, answering([3]string{"SQL_MODE", "ANSI", "STRICT"}), "sql_mode", "held"},
		"old is cut":      {0, atQuestion(mysqltest.Action{Packets: slices.Delete(stateRows(), 9, 10)}), "not complete", "no_states"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconnecting(t)
			c := mustOpenMySQL(t, r.plane, nil)
			mustQuery(t, c, "SELECT 'open'", "open") // the session is logged in when its answer is here
			r.servers[tt.server].SetHook(tt.hook)
			r.leave(t)
			testkit.WaitFor(t, "the log to have "+tt.why, func() bool { return r.log.has(tt.why) })
			mustQuery(t, c, "SELECT 'kept'", "kept")
			if n := r.servers[0].Conns(); n != 1 {
				t.Errorf("%d connections at the server that the session did not leave, want 1", n)
			}
			if _, moved, _ := r.plane.Sessions(); moved != 0 {
				t.Errorf("%d moves succeeded, want none", moved)
			}
			if r.log.has("secret") {
				t.Error("the log has a secret")
			}
			testkit.WaitFor(t, "the failure is counted", func() bool { _, _, stayed := r.plane.Sessions(); return stayed > 0 })
			if failed := r.plane.MoveCounts().Failed; failed[tt.reason] == 0 {
				t.Errorf("the failures are %v, want %s", failed, tt.reason)
			}
		})
	}
}

func manySwitches() (packets [][]byte) {
	for range 100 {
		packets = append(packets, wire.AppendAuthSwitch(nil, &wire.AuthSwitch{Plugin: "mysql_native_password", Data: []byte("01234567890123456789\x00")}))
	}
	return packets
}

// A server that is not MariaDB is no place to reconnect to.
func TestMySQLReconnectsToMariaDBOnly(t *testing.T) {
	r := newReconnecting(t)
	c := mustOpenMySQL(t, r.plane, nil)
	mustQuery(t, c, "SELECT 'open'", "open")
	other := mysqlServers(t, 1, func(c *mysqltest.Config) { c.Version = "8.4.0" })[0]
	other.SetHook(answering())
	r.plane.applyFollowed(t, mysqlService("tidb", r.more, other))
	testkit.WaitFor(t, "the log to say why", func() bool { return r.log.has("is for MariaDB") })
	mustQuery(t, c, "SELECT 'kept'", "kept")
	if n := r.servers[0].Conns(); n != 1 {
		t.Errorf("%d connections at the server that the session did not leave, want 1", n)
	}
}

// A session that holds something is delayed, not failed, whether Penstock or the server
// says so. It stays asked, with its order, and moves once the client has let go.
func TestMySQLReconnectWaitsForWhatIsHeld(t *testing.T) {
	for name, tt := range map[string]struct {
		hook mysqltest.Hook // of the old server
		text string         // of the client
	}{
		"seen in a statement": {answering(), "SET @a = 1"},
		"said by the server":  {answering([3]string{".variables", "1", ""}), "SELECT 'x'"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconnecting(t)
			c, raw := openRawMySQL(t, r.plane)
			mustExec(t, c, tt.text)
			r.servers[0].SetHook(tt.hook)
			r.plane.applyFollowed(t, mysqlService("tidb", r.more, r.servers...))
			id, asked := r.plane.OrderMoves(&MoveOrder{To: r.servers[1].Addr()})
			testkit.WaitFor(t, "the session is delayed", func() bool { return r.plane.MoveCounts().Delayed[delayHeld] == 1 })
			list, _, err := r.plane.ListSessions(t.Context(), SessionFilter{}, true, 10)
			if err != nil || len(list) != 1 || list[0].State != delayHeld || list[0].Why != session.HoldUserVariable.Error() || list[0].Cause != "ordered" {
				t.Errorf("listed %+v, %v; want one that holds a user variable", list, err)
			}
			now, cancel := context.WithCancel(t.Context())
			cancel()
			if out, _ := r.plane.OrderOutcome(now, id); asked != 1 || out.Open != 1 || out.Why[session.HoldUserVariable.Error()] != 1 {
				t.Errorf("%d asked, %+v; want one that is open", asked, out)
			}
			if c := r.plane.MoveCounts(); c.Stayed != 0 || c.Wanted["ordered"] != 1 || c.Delayed[delayHeld] != 1 {
				t.Errorf("counted %+v; want one delay", c)
			}
			r.servers[0].SetHook(answering())
			if _, err := raw.Write(wire.AppendPacket(nil, 0, []byte{byte(wire.ComResetConnection)})); err != nil {
				t.Fatal(err)
			}
			testkit.WaitFor(t, "the session has moved", func() bool { return r.servers[1].Conns() == 1 && r.servers[0].Conns() == 0 })
			if out, _ := r.plane.OrderOutcome(t.Context(), id); out.Moved != 1 {
				t.Errorf("%+v, want one that has moved", out)
			}
		})
	}
}

// A user without credentials stays, and the list says why.
func TestMySQLReconnectWithoutPassword(t *testing.T) {
	r := newReconnecting(t)
	c := mustOpenMySQL(t, r.plane, func(m *mysql.Config) { m.User, m.Passwd = "root", "" })
	mustQuery(t, c, "SELECT 'open'", "open")
	r.leave(t)
	testkit.WaitFor(t, "the failure is counted", func() bool { return r.plane.MoveCounts().Failed["no_password"] > 0 })
	list, _, err := r.plane.ListSessions(t.Context(), SessionFilter{}, true, 10)
	if err != nil || len(list) != 1 || list[0].Failure != session.ErrNoPassword.Error() || list[0].Why != list[0].Failure {
		t.Errorf("listed %+v, %v; want one without a password", list, err)
	}
	mustQuery(t, c, "SELECT 'kept'", "kept")
}
