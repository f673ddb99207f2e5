package integration

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"penstock/internal/testkit"
	"penstock/mysql/wire"
)

// rejoinSetting is a service whose sessions move by a login.
func rejoinSetting(passwordFile string) string {
	return fmt.Sprintf("mysql: {move: reconnect, credentials: [{user: app, passwordFile: %q}, {user: busy, passwordFile: %q}]}", passwordFile, passwordFile)
}

const rejoinDrain = "endpointDrain: {timeout: 1h}"

// rejoinPair is two servers of MariaDB with a node before them.
type rejoinPair struct {
	t            *testing.T
	ca           *authority
	a, b         string
	rootA, rootB *rawSession
	password     string // the file with the password of app
	node         *node
}

func startRejoinPair(t *testing.T) *rejoinPair {
	t.Helper()
	r := &rejoinPair{t: t, ca: newAuthority(t, "ca")}
	p := r.ca.issue("db.example.com", "127.0.0.1")
	r.a, r.rootA = startRejoinServer(t, p)
	r.b, r.rootB = startRejoinServer(t, p)
	r.password = filepath.Join(t.TempDir(), "app")
	r.writePassword(rejoinPassword)
	r.node = startNode(t, certificate("db", p), "--log-level", "debug")
	return r
}

// writePassword replaces the file in one step, with a line break at its end.
func (r *rejoinPair) writePassword(password string) {
	r.t.Helper()
	err := os.WriteFile(r.password+".new", []byte(password+"\n"), 0o600)
	if err == nil {
		err = os.Rename(r.password+".new", r.password)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// listen adds a listener and its service at the first server.
func (r *rejoinPair) listen(name string, more ...string) {
	r.t.Helper()
	r.node.apply(r.service(name, r.a, more...) + listener(name, "protocol: mysql", "service: "+name,
		"tls: {mode: terminate, certificateRefs: [db]}"))
}

func (r *rejoinPair) service(name, addr string, more ...string) string {
	if len(more) == 0 {
		more = []string{rejoinSetting(r.password)}
	}
	return service(name, []string{addr}, append(more, "protocol: mysql", rejoinDrain)...)
}

func (r *rejoinPair) open(name, user string) *rawSession {
	r.t.Helper()
	return openRaw(r.t, r.node.addr(name), user, rejoinPassword, nil)
}

// waitLog waits until the node has logged that a session of a service stays, and why.
func (r *rejoinPair) waitLog(service, why string) {
	r.t.Helper()
	testkit.WaitFor(r.t, "the node's log to say why a session of "+service+" stays: "+why, func() bool {
		for line := range strings.Lines(r.node.log()) {
			if strings.Contains(line, "a session stays") && strings.Contains(line, `"service":"`+service+`"`) && strings.Contains(line, why) {
				return true
			}
		}
		return false
	})
}

// TestReconnect moves sessions between two servers of MariaDB: those that hold nothing
// move with all that can be restored, and the others stay.
func TestReconnect(t *testing.T) {
	t.Parallel()
	r := startRejoinPair(t)
	for _, sub := range []struct {
		name string
		test func(*rejoinPair, *testing.T)
	}{
		{"moves", (*rejoinPair).testMoves}, {"holds", (*rejoinPair).testHolds}, {"found-by-the-server", (*rejoinPair).testFound},
		{"credentials", (*rejoinPair).testCredentials}, {"tls", (*rejoinPair).testTLS}, {"rows", (*rejoinPair).testRows},
		{"busy", (*rejoinPair).testBusy},
	} {
		t.Run(sub.name, func(t *testing.T) {
			of := *r
			of.t = t
			sub.test(&of, t)
		})
	}
	for line := range strings.Lines(r.node.log()) {
		if strings.Contains(line, "Garnet") {
			t.Errorf("the log has a secret: %s", line)
		}
	}
	if out := r.node.must("get", "service", "moves", "-o", "yaml"); strings.Contains(out, "Garnet") || !strings.Contains(out, "passwordFile") {
		t.Errorf("get shows\n%s", out)
	}
}

// testMoves: what a session may do and move, and what the new server has to say then.
func (r *rejoinPair) testMoves(t *testing.T) {
	r.listen("moves")
	cases := []struct {
		do          []string
		check, want string
	}{
		{[]string{"SELECT 1"}, "SELECT 1", "1"},
		{[]string{"/* app */ SELECT COUNT(*) FROM d.v"}, "SELECT 1", "1"},
		{[]string{"SET NAMES utf8mb4 COLLATE utf8mb4_bin"}, "SELECT @@collation_connection", "utf8mb4_bin"},
		{[]string{"SET NAMES latin1"}, "SELECT CONCAT(@@character_set_client, @@character_set_results)", "latin1latin1"},
		{[]string{"SET character_set_results = NULL"}, "SELECT @@character_set_results IS NULL", "1"},
		{[]string{"SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"}, "SELECT @@sql_mode", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES"},
		{[]string{"SET wait_timeout = 77, long_query_time = 1.5"}, "SELECT CONCAT(@@wait_timeout, ' ', @@long_query_time)", "77 1.500000"},
		{[]string{"SET time_zone = '+03:00'"}, "SELECT @@time_zone", "+03:00"},
		{[]string{"SET autocommit = 0"}, "SELECT @@autocommit", "0"},
		{[]string{"SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"}, "SELECT @@tx_isolation", "READ-UNCOMMITTED"},
		{[]string{"USE d"}, "SELECT DATABASE()", "d"},
		{[]string{"USE d", "USE other"}, "SELECT DATABASE()", "other"},
		{[]string{"INSERT INTO d.n (b) VALUES (1)"}, "SELECT LAST_INSERT_ID() BETWEEN 41 AND 60", "1"},
		{[]string{"INSERT INTO d.n VALUES (1000000, 1)"}, "SELECT LAST_INSERT_ID()", "0"},
		{[]string{"BEGIN", "SELECT b FROM d.n", "COMMIT"}, "SELECT @@in_transaction", "0"},
		{[]string{"SELECT SQL_CALC_FOUND_ROWS 1", "SELECT 1"}, "SELECT 1", "1"},
	}
	sessions := make([]*rawSession, len(cases))
	for i, c := range cases {
		sessions[i] = r.open("moves", "app")
		for _, text := range c.do {
			sessions[i].must(text)
		}
	}
	reset, closed := r.open("moves", "app"), r.open("moves", "app")
	reset.must("SET @a = 1")
	reset.must("CREATE TEMPORARY TABLE d.tmp (a INT)")
	reset.reset()
	closed.close(closed.prepare("SELECT 1"))
	r.node.apply(r.service("moves", r.b))
	for i, c := range cases {
		sessions[i].waitAt(fmt.Sprintf("%q to move", c.do), r.b)
		if got := sessions[i].must(c.check); got != c.want {
			t.Errorf("%q: %s is %q after the move, want %q", c.do, c.check, got, c.want)
		}
	}
	reset.waitAt("a session that was reset to move", r.b)
	closed.waitAt("a session that has closed its statement to move", r.b)
}

// testHolds: a session that holds something stays, and moves once it is reset.
func (r *rejoinPair) testHolds(t *testing.T) {
	r.listen("holds")
	r.rootA.must("CREATE TABLE d.locked (a INT)")
	cases := []struct {
		do    []string
		until string // a statement that ends it; "": a reset does; "never"
	}{
		{[]string{"SET @a = 1"}, ""},
		{[]string{"SELECT 1 INTO @a"}, ""},
		{[]string{"SELECT @a := 1"}, ""},
		{[]string{"CREATE TEMPORARY TABLE d.tmp (a INT)"}, ""},
		{[]string{"PREPARE p FROM 'SELECT 1'"}, ""},
		{[]string{"SELECT GET_LOCK('a', 1)"}, ""},
		{[]string{"LOCK TABLES d.locked READ"}, ""},
		{[]string{"HANDLER d.n OPEN"}, ""},
		{[]string{"CALL d.p()"}, ""},
		{[]string{"SELECT d.f()"}, ""},
		{[]string{"SET ROLE r"}, "never"}, // not even by a reset,
		{[]string{"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"}, ""},
		{[]string{"SET NAMES gbk"}, ""},
		{[]string{"SET timestamp = 5"}, ""},
		{[]string{"SELECT 1; SELECT 2"}, ""},
		{[]string{"SELECT /*!50000 1, */ 2"}, ""},
		{[]string{"SELECT CONNECTION_ID()"}, ""},
		{[]string{"SELECT SQL_CALC_FOUND_ROWS 1"}, "SELECT 1"},
		{[]string{"SELECT CAST('a' AS DECIMAL)"}, "DO 0"}, // a warning
		{[]string{"BEGIN"}, "COMMIT"},
		{[]string{"FLUSH TABLES WITH READ LOCK"}, ""}, // the last, since others may write
	}
	free := r.open("holds", "app")
	sessions := make([]*rawSession, len(cases))
	for i, c := range cases {
		sessions[i] = r.open("holds", "app")
		for _, text := range c.do {
			sessions[i].must(text)
		}
	}
	failed, prepared := r.open("holds", "app"), r.open("holds", "app")
	if _, err := failed.query("SELECT nothing"); err == nil {
		t.Fatal("a bad query succeeded")
	}
	statement := prepared.prepare("SELECT 1")
	conns := func() string {
		return r.rootA.must("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app'")
	}
	r.node.apply(r.service("holds", r.b))
	free.waitAt("the session that holds nothing to move", r.b)
	testkit.WaitFor(t, "all others to stay", func() bool { return conns() == fmt.Sprint(len(cases)+2) })
	for i, c := range cases {
		if c.until != "" && c.until != "never" {
			sessions[i].must(c.until)
			sessions[i].waitAt(fmt.Sprintf("%q to move after %q", c.do, c.until), r.b)
			continue
		}
		for range 2 { // it would move behind an answer
			if !strings.HasSuffix(r.a, ":"+sessions[i].at()) {
				t.Errorf("%q: the session has moved", c.do)
			}
		}
		if sessions[i].reset(); c.until == "never" {
			r.waitLog("holds", "another role")
			continue
		}
		sessions[i].waitAt(fmt.Sprintf("%q to move after a reset", c.do), r.b)
	}
	failed.waitAt("the session with an error to move after the next statement", r.b)
	if at := prepared.at(); !strings.HasSuffix(r.a, ":"+at) {
		t.Error("a session with a prepared statement has moved")
	}
	prepared.close(statement)
	prepared.waitAt("the session with a prepared statement to move after its end", r.b)
}

// testFound: what only the server knows, since a trigger or a view does it.
func (r *rejoinPair) testFound(*testing.T) {
	for name, tt := range map[string]struct{ do, why string }{
		"trigger":  {"INSERT INTO d.triggered VALUES (1)", "a user variable"},
		"view-set": {"SELECT a FROM d.setting", "lock_wait_timeout"},
		"view-tmp": {"SELECT a FROM d.tabling", "a temporary table"},
	} {
		r.listen(name)
		s := r.open(name, "app")
		s.must("USE d")
		s.must(tt.do)
		s.must("DO 0") // a function that creates a table leaves "in a transaction" in its answer
		r.node.apply(r.service(name, r.b))
		r.waitLog(name, tt.why)
		if !strings.HasSuffix(r.a, ":"+s.at()) {
			r.t.Errorf("%s: the session has moved", tt.do)
		}
	}
}

// testCredentials: users without a password here stay, and so do those of whom it is
// wrong, until the file is right.
func (r *rejoinPair) testCredentials(t *testing.T) {
	r.listen("users")
	plain, wrong := r.open("users", "plain"), r.open("users", "app")
	r.writePassword("another")
	testkit.WaitFor(t, "the node to read the file", func() bool {
		return strings.Contains(r.node.log(), `"read changed files","of":"Service/users"`)
	})
	r.node.apply(r.service("users", r.b))
	r.waitLog("users", "has no password for the user")
	r.waitLog("users", "refused the login: error 1045")
	for _, s := range []*rawSession{plain, wrong} {
		if at := s.at(); !strings.HasSuffix(r.a, ":"+at) {
			t.Errorf("the session is at port %s, want that of %s", at, r.a)
		}
	}
	r.writePassword(rejoinPassword)
	wrong.waitAt("the session to move once the password is right", r.b)

	r.listen("ed")
	s := r.open("ed", "app")
	r.rootB.must("ALTER USER app IDENTIFIED VIA ed25519 USING PASSWORD('" + rejoinPassword + "')")
	r.node.apply(r.service("ed", r.b))
	r.waitLog("ed", "client_ed25519")
	r.rootB.must("ALTER USER app IDENTIFIED BY '" + rejoinPassword + "'")
	s.waitAt("the session to move with the usual plugin", r.b)

	r.listen("off", "mysql: {move: never}")
	off := r.open("off", "app")
	r.listen("states", "mysql: {move: states}")
	states := r.open("states", "app")
	r.node.apply(r.service("off", r.b, "mysql: {move: never}") + r.service("states", r.b, "mysql: {move: states}"))
	r.waitLog("states", "does not give the session's states")
	if a, b := off.at(), states.at(); !strings.HasSuffix(r.a, ":"+a) || !strings.HasSuffix(r.a, ":"+b) {
		t.Errorf("sessions of services without reconnect are at %s and %s", a, b)
	}
}

// testTLS: a session with TLS has TLS with the new server.
func (r *rejoinPair) testTLS(t *testing.T) {
	more := []string{rejoinSetting(r.password), fmt.Sprintf("tls: {ca: %q, serverName: db.example.com}", r.ca.file)}
	r.listen("tls", more...)
	s := openRaw(t, r.node.addr("tls"), "app", rejoinPassword, &tls.Config{RootCAs: r.ca.Pool, ServerName: "db.example.com"})
	s.must("USE d")
	r.node.apply(r.service("tls", r.b, more...))
	s.waitAt("the session to move", r.b)
	if v := s.must("SELECT VARIABLE_VALUE <> '' FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'Ssl_version'"); v != "1" {
		t.Error("the session has no TLS with the new server")
	}
}

// testRows: a client that asks for the rows of a statement before the move gets an
// error, and not those of another statement.
func (r *rejoinPair) testRows(t *testing.T) {
	r.listen("rows")
	ended, goes := r.open("rows", "app"), r.open("rows", "app")
	ended.must("SELECT b FROM d.n LIMIT 3")
	r.node.apply(r.service("rows", r.b))
	testkit.WaitFor(t, "both sessions to move", func() bool {
		return r.rootB.must("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app'") == "2" &&
			r.rootA.must("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app'") == "0"
	})
	if _, err := ended.query("SELECT FOUND_ROWS()"); !isServerError(err, 1105) {
		t.Errorf("FOUND_ROWS() behind a move: %v, want error 1105", err)
	}
	goes.must("SELECT 1 UNION SELECT 2")
	if v := goes.must("SELECT FOUND_ROWS()"); v != "2" {
		t.Errorf("FOUND_ROWS() of a statement after the move is %s, want 2", v)
	}
}

func isServerError(err error, code uint16) bool {
	var e wire.Error
	return errors.As(err, &e) && e.Code == code
}

// testBusy: while the servers leave in turn, busy sessions see no error.
func (r *rejoinPair) testBusy(t *testing.T) {
	const sessions = 50
	r.listen("busy")
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr, config.DBName = "busy", rejoinPassword, "tcp", r.node.addr("busy"), "d"
	config.InterpolateParams, config.Logger = true, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	failed := make(chan error, sessions)
	var wg sync.WaitGroup
	for i := range sessions {
		c, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := rejoinWork(c, i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	count := func(root *rawSession) string {
		return root.must("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'busy'")
	}
	addrs, roots := [2]string{r.a, r.b}, [2]*rawSession{r.rootA, r.rootB}
	for turn := 1; turn <= 4; turn++ {
		r.node.apply(r.service("busy", addrs[turn%2]))
		testkit.WaitFor(t, "all sessions to move", func() bool {
			if len(failed) > 0 {
				t.Fatal(<-failed)
			}
			return count(roots[turn%2]) == fmt.Sprint(sessions) && count(roots[(turn+1)%2]) == "0"
		})
	}
	stop()
	wg.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
}

// rejoinWork does a transaction and some statements that leave the same rows at each
// server.
func rejoinWork(c *sql.Conn, i int) error {
	ctx := context.Background()
	if _, err := c.ExecContext(ctx, "REPLACE INTO busy VALUES (?, ?)", i, i); err != nil {
		return err
	}
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	var got int
	if err := tx.QueryRowContext(ctx, "SELECT b FROM busy WHERE id = ? FOR UPDATE", i).Scan(&got); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("in a transaction: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	var database string
	if err := c.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil || database != "d" {
		return fmt.Errorf("the database is %q: %w", database, err)
	}
	return nil
}
