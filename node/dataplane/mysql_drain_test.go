package dataplane

import (
	"context"
	"database/sql"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/go-sql-driver/mysql"

	"penstock/internal/testkit"
	"penstock/mysql/wire"
	"penstock/netio"
)

// openRawMySQL returns a session and the connection below it.
func openRawMySQL(t *testing.T, p *testPlane) (c *sql.Conn, raw net.Conn) {
	t.Helper()
	c = mustOpenMySQL(t, p, func(m *mysql.Config) {
		m.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var err error
			raw, err = new(net.Dialer).DialContext(ctx, network, addr)
			return raw, err
		}
	})
	return c, raw
}

// mustShutDown reads the rest of a connection: one error packet, which a driver takes for
// the answer to its command, and a clean end.
func mustShutDown(t *testing.T, raw net.Conn) {
	t.Helper()
	got, err := io.ReadAll(raw)
	if err != nil {
		t.Fatalf("the connection ends with %v behind %q", err, got)
	}
	const head = 7
	if len(got) < head || int(binary.LittleEndian.Uint16(got))+wire.HeaderSize != len(got) || got[3] != 1 || got[4] != 0xff || binary.LittleEndian.Uint16(got[5:]) != 1053 {
		t.Fatalf("the client got %q, want one packet with number 1 and error 1053", got)
	}
}

func query(text string) []byte {
	return wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComQuery)}, text...))
}

// A session that is closed at rest tells its client by error 1053 and its server by
// COM_QUIT. A command of the client that crosses this was not executed, and the client
// reads the error as its answer.
func TestMySQLCommandThatCrossesTheEnd(t *testing.T) {
	servers := mysqlServers(t, 1, nil)
	p := start(t, mysqlListener+mysqlService("tidb", "", servers[0]))
	c, raw := openRawMySQL(t, p)
	mustExec(t, c, "INSERT INTO counter VALUES ('before', 1)")
	p.Engine.DrainSome(0, netio.Drained, func(*netio.Conn) bool {
		// The loop reads nothing while it is here.
		if _, err := raw.Write(query("INSERT INTO counter VALUES ('crossing', 1)")); err != nil {
			t.Error(err)
		}
		return true
	})
	mustShutDown(t, raw)
	testkit.WaitFor(t, "the server to lose the session", func() bool { return servers[0].Conns() == 0 })
	if n := servers[0].Store().Counter("crossing"); n != 0 || servers[0].Store().Counter("before") != 1 {
		t.Errorf("the crossing command was executed %d times", n)
	}
	commands := servers[0].Record().Commands
	if last := commands[len(commands)-1]; last.Command != wire.ComQuit {
		t.Errorf("the last command at the server is %s, want COM_QUIT", last.Command)
	}
}

// At the end of its window a drain closes also sessions that are not at rest. They get
// the error in place of what they wait for, and their transactions are rolled back.
func TestMySQLSessionsAtTheEndOfADrain(t *testing.T) {
	servers := mysqlServers(t, 1, nil)
	p := start(t, mysqlListener+mysqlService("tidb", "", servers[0]))
	inside, rawInside := openRawMySQL(t, p)
	mustExec(t, inside, "BEGIN")
	mustExec(t, inside, "INSERT INTO counter VALUES ('half', 1)")
	_, rawWaiting := openRawMySQL(t, p)
	if _, err := rawWaiting.Write(query("SELECT SLEEP('s')")); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "the query to be there", func() bool { return servers[0].Sleeping("s") == 1 })
	p.Engine.DrainSome(0, netio.Drained, func(*netio.Conn) bool { return true })
	mustShutDown(t, rawInside)
	mustShutDown(t, rawWaiting)
	servers[0].Release("s")
	testkit.WaitFor(t, "the server to lose the sessions", func() bool { return servers[0].Conns() == 0 })
	if n := servers[0].Store().Counter("half"); n != 0 {
		t.Errorf("%d rows of a transaction that did not end", n)
	}
}

// A drain leaves sessions alone where drivers send more within one call of the program.
func TestMySQLAnswersBehindWhichMoreFollows(t *testing.T) {
	servers := mysqlServers(t, 1, nil)
	p := start(t, mysqlListener+mysqlService("tidb", "", servers[0]))
	_, raw := openRawMySQL(t, p)
	prepare := wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComStmtPrepare)}, "DO 1"...))
	execute := wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComStmtExecute), 1, 0, 0, 0, 0}, 1, 0, 0, 0))
	done := wire.AppendPacket(nil, 0, []byte{byte(wire.ComStmtClose), 1, 0, 0, 0})
	for i, step := range []struct {
		name   string
		send   []byte
		silent bool // there is no answer
		want   bool
	}{
		{"a statement", query("DO 1"), false, true},
		{"COM_STMT_PREPARE", prepare, false, false},
		{"COM_STMT_EXECUTE", execute, false, true},
		{"COM_STMT_CLOSE", done, true, false},
		{"SET TRANSACTION", query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"), false, false},
		{"BEGIN", query("BEGIN"), false, true}, // the transaction keeps it
		{"COMMIT", query("COMMIT"), false, true},
	} {
		if _, err := raw.Write(step.send); err != nil {
			t.Fatal(err)
		}
		commands := i + 1
		testkit.WaitFor(t, step.name+" to be there", func() bool { return len(servers[0].Record().Commands) >= commands })
		if !step.silent {
			if _, err := raw.Read(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		got, inTransaction := p.answered(t)
		if got != step.want {
			t.Errorf("behind %s the client may be done: %v, want %v", step.name, got, step.want)
		}
		if inTransaction != (step.name == "BEGIN") {
			t.Errorf("behind %s the session is idle: %v", step.name, !inTransaction)
		}
	}
}

// answered returns what the only session says to a drain.
func (p *testPlane) answered(t *testing.T) (answered, busy bool) {
	t.Helper()
	m := p.reconciler.sessions
	var all []*mysqlConn
	m.mu.Lock()
	for _, s := range m.services {
		for _, place := range s.places {
			for h := place.calm.head; h != nil; h = h.entry.next {
				all = append(all, h)
			}
		}
	}
	m.mu.Unlock()
	if len(all) != 1 {
		t.Fatalf("%d sessions, want one", len(all))
	}
	done := make(chan struct{})
	all[0].conn.Post(func() {
		answered, busy = all[0].session.Answered(), !all[0].session.Idle()
		close(done)
	})
	<-done
	return answered, busy
}
