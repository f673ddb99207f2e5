package dataplane

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/mysql/mysqltest"
	"penstock/mysql/wire"
	"penstock/node/nodetest"
)

// mysqlServers starts servers that hand sessions over and share their counters.
func mysqlServers(t *testing.T, n int, change func(*mysqltest.Config)) []*mysqltest.Server {
	t.Helper()
	c := mysqltest.Config{
		Signer: mysqltest.NewSigner(t), Store: mysqltest.NewStore(),
		Users: map[string]mysqltest.User{"root": {}, "app": {Password: "secret"}, "sha": {Password: "secret", Plugin: "caching_sha2_password"}},
	}
	if change != nil {
		change(&c)
	}
	var servers []*mysqltest.Server
	for range n {
		servers = append(servers, mysqltest.New(t, c))
	}
	return servers
}

// mysqlService returns a service whose sessions move when an endpoint leaves.
func mysqlService(name, more string, servers ...*mysqltest.Server) string {
	var list []string
	for _, s := range servers {
		list = append(list, fmt.Sprintf("{address: %q}", s.Addr()))
	}
	return fmt.Sprintf("---\nkind: Service\nname: %s\nspec: {protocol: mysql, endpointDrain: {timeout: 1h}, %sendpoints: [%s]}\n", name, more, strings.Join(list, ", "))
}

const mysqlListener = `---
kind: Listener
name: db
spec: {address: "127.0.0.1:0", protocol: mysql, service: tidb}
`

// openMySQL returns one session through the listener db.
func openMySQL(t *testing.T, p *testPlane, change func(*mysql.Config)) (*sql.Conn, error) {
	t.Helper()
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr = "app", "secret", "tcp", p.at(t, "db")
	config.Logger = &mysql.NopLogger{}
	if change != nil {
		change(config)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	c, err := db.Conn(t.Context())
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func mustOpenMySQL(t *testing.T, p *testPlane, change func(*mysql.Config)) *sql.Conn {
	t.Helper()
	c, err := openMySQL(t, p, change)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustExec(t *testing.T, c *sql.Conn, query string) {
	t.Helper()
	if _, err := c.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func mustQuery(t *testing.T, c *sql.Conn, query, want string) {
	t.Helper()
	var got string
	if err := c.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
		t.Fatalf("%s: %q, %v; want %q", query, got, err, want)
	}
}

// hasMySQLError reports whether err is a server's error with this code.
func hasMySQLError(err error, code uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == code
}

// A session keeps what it holds when its server leaves, and its client notices nothing.
func TestMySQLSessionsMove(t *testing.T) {
	for _, with := range []string{"plain", "tls"} {
		t.Run(with, func(t *testing.T) {
			ca := certs.NewCA("test CA")
			listener, more := mysqlListener, ""
			var server func(*mysqltest.Config)
			var client func(*mysql.Config)
			if with == "tls" {
				listener = strings.Replace(mysqlListener, "service: tidb", "service: tidb, tls: {mode: terminate, certificateRefs: [db]}", 1) +
					nodetest.Certificate("db", ca.Issue("db.test"))
				more = fmt.Sprintf("tls: {serverName: db.test, ca: %q}, ", ca.PEM)
				server = func(c *mysqltest.Config) {
					c.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue("db.test").TLS}} //nolint:gosec // a test server
				}
				client = func(c *mysql.Config) { c.TLS = &tls.Config{ServerName: "db.test", RootCAs: ca.Pool} }
			}
			servers := mysqlServers(t, 2, server)
			p := start(t, listener+mysqlService("tidb", more, servers[0]))

			c := mustOpenMySQL(t, p, client)
			mustExec(t, c, "SET @a = 41")
			st, err := c.PrepareContext(t.Context(), "SELECT @a + ?")
			if err != nil {
				t.Fatal(err)
			}
			held := mustOpenMySQL(t, p, client)
			tx, err := held.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO counter VALUES ('t', 1)"); err != nil {
				t.Fatal(err)
			}

			p.mustApply(t, mysqlService("tidb", more, servers[1]))
			testkit.WaitFor(t, "the idle session has moved", func() bool { return servers[1].Conns() == 1 && servers[0].Conns() == 1 })
			var sum int
			if err := st.QueryRowContext(t.Context(), 1).Scan(&sum); err != nil || sum != 42 {
				t.Fatalf("the prepared statement after the move: %d, %v; want 42", sum, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			testkit.WaitFor(t, "the other one has moved after its transaction", func() bool { return servers[1].Conns() == 2 && servers[0].Conns() == 0 })
			mustQuery(t, held, "SELECT value FROM counter WHERE name = 't'", "1")
			if open, moved, stayed := p.Sessions(); open != 2 || moved != 2 || stayed != 0 {
				t.Errorf("%d sessions, %d moved, %d stayed; want 2, 2 and 0", open, moved, stayed)
			}
		})
	}
}

// While servers leave one after the other, busy sessions see no error, and no write is
// lost or done twice.
func TestMySQLBusySessionsMove(t *testing.T) {
	const sessions, writes = 40, 150
	servers := mysqlServers(t, 3, nil)
	p := start(t, mysqlListener+mysqlService("tidb", "", servers[0]))
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, sessions)
	for i := range sessions {
		c := mustOpenMySQL(t, p, nil)
		wg.Go(func() {
			for range writes {
				query := "UPDATE counter SET value = value + 1 WHERE name = 'n'"
				if i%2 == 0 {
					query = "INSERT INTO counter VALUES ('n', 1)"
				}
				if _, err := c.ExecContext(ctx, query); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	for turn := 1; ; turn++ {
		p.mustApply(t, mysqlService("tidb", "", servers[turn%3]))
		testkit.WaitFor(t, "all sessions have moved", func() bool {
			p.Sweep(time.Now())
			return servers[turn%3].Conns() >= sessions && servers[(turn+2)%3].Conns() == 0
		})
		if turn < 4 {
			continue
		}
		select {
		case <-done:
		default:
			continue
		}
		break
	}
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	mustQuery(t, mustOpenMySQL(t, p, nil), "SELECT value FROM counter WHERE name = 'n'", fmt.Sprint(sessions*writes))
}

// A move that fails leaves the session at its server.
func TestMySQLMoveThatFails(t *testing.T) {
	refuse := &wire.Error{Code: 1105, State: "HY000", Message: "no"}
	for name, tt := range map[string]struct {
		server int // that misbehaves
		hook   mysqltest.Hook
	}{
		"no-token":   {0, stepHook(mysqltest.OnShowStates, mysqltest.Action{States: &wire.States{JSON: "{}"}})},
		"no-states":  {0, stepHook(mysqltest.OnShowStates, mysqltest.Action{Error: refuse})},
		"bad-token":  {0, stepHook(mysqltest.OnShowStates, mysqltest.Action{States: &wire.States{JSON: "{}", Token: []byte("forged")}})},
		"greeting":   {1, stepHook(mysqltest.OnConnect, mysqltest.Action{Error: refuse})},
		"garbage":    {1, stepHook(mysqltest.OnConnect, mysqltest.Action{Raw: []byte("HTTP/1.1 400 Bad Request\r\n\r\n")})},
		"login":      {1, stepHook(mysqltest.OnLogin, mysqltest.Action{Close: true})},
		"set-states": {1, stepHook(mysqltest.OnSetStates, mysqltest.Action{Error: refuse})},
		"set-closes": {1, stepHook(mysqltest.OnSetStates, mysqltest.Action{Close: true})},
	} {
		t.Run(name, func(t *testing.T) {
			servers := mysqlServers(t, 2, nil)
			p := start(t, mysqlListener+mysqlService("tidb", "", servers[0]))
			c := mustOpenMySQL(t, p, nil)
			mustExec(t, c, "SET @a = 'kept'")
			reached := make(chan struct{}, 100)
			servers[tt.server].SetHook(func(e mysqltest.Event) mysqltest.Action {
				a := tt.hook(e)
				if a.States != nil || a.Error != nil || a.Close || a.Raw != nil {
					select {
					case reached <- struct{}{}:
					default:
					}
				}
				return a
			})
			p.mustApply(t, mysqlService("tidb", "", servers[1]))
			<-reached
			mustQuery(t, c, "SELECT @a", "kept")
			if _, moved, stayed := p.Sessions(); moved != 0 || stayed == 0 {
				t.Errorf("%d moves succeeded and %d failed, want 0 and at least one", moved, stayed)
			}
			if n := servers[0].Conns(); n != 1 {
				t.Errorf("%d connections at the server that the session did not leave, want 1", n)
			}
		})
	}
}

func stepHook(step mysqltest.Step, a mysqltest.Action) mysqltest.Hook {
	return func(e mysqltest.Event) mysqltest.Action {
		if e.Step == step {
			return a
		}
		return mysqltest.Action{}
	}
}

// Clients are routed by their user names; a wrong password is the server's to refuse,
// and a server that cannot be reached is an error that the client can read.
func TestMySQLLogins(t *testing.T) {
	servers := mysqlServers(t, 2, nil)
	p := start(t, strings.Replace(mysqlListener, "service: tidb", `service: tidb, mysql: {users: [{names: [root], service: other}, {names: [gone], service: none}]}`, 1)+
		mysqlService("tidb", "", servers[0])+mysqlService("other", "", servers[1])+mysqlService("none", ""))

	mustQuery(t, mustOpenMySQL(t, p, nil), "SELECT 'app'", "app")
	mustQuery(t, mustOpenMySQL(t, p, func(c *mysql.Config) { c.User, c.Passwd = "root", "" }), "SELECT 'root'", "root")
	mustQuery(t, mustOpenMySQL(t, p, func(c *mysql.Config) { c.User = "sha" }), "SELECT 'sha'", "sha")
	if a, b := servers[0].Conns(), servers[1].Conns(); a != 2 || b != 1 {
		t.Errorf("%d and %d connections at the servers, want 2 and 1", a, b)
	}
	if _, err := openMySQL(t, p, func(c *mysql.Config) { c.Passwd = "wrong" }); !hasMySQLError(err, 1045) {
		t.Errorf("a wrong password: %v, want error 1045", err)
	}
	if _, err := openMySQL(t, p, func(c *mysql.Config) { c.User = "gone" }); !hasMySQLError(err, 1105) {
		t.Errorf("a service without servers: %v, want error 1105", err)
	}
}

// A listener that requires TLS refuses a login without it before it knows a password.
func TestMySQLRequiresTLS(t *testing.T) {
	ca := certs.NewCA("test CA")
	servers := mysqlServers(t, 1, nil)
	p := start(t, strings.Replace(mysqlListener, "service: tidb", `service: tidb, tls: {mode: terminate, certificateRefs: [db]}, mysql: {requireTLS: true}`, 1)+
		nodetest.Certificate("db", ca.Issue("db.test"))+mysqlService("tidb", "", servers[0]))
	if _, err := openMySQL(t, p, nil); !hasMySQLError(err, 3159) {
		t.Errorf("a login in the clear: %v, want error 3159", err)
	}
	secure := func(c *mysql.Config) { c.TLS = &tls.Config{ServerName: "db.test", RootCAs: ca.Pool} }
	mustQuery(t, mustOpenMySQL(t, p, secure), "SELECT 1", "1")
	if n := len(servers[0].Record().Logins); n != 1 {
		t.Errorf("the server saw %d logins, want 1", n)
	}
}

// A server that refuses its clients before their login, or dies then, is passed over.
func TestMySQLNextServer(t *testing.T) {
	for name, a := range map[string]mysqltest.Action{
		"error": {Error: &wire.Error{Code: 1040, State: "08004", Message: "Too many connections"}}, "closes": {Close: true},
		"garbage": {Raw: []byte("220 mail.test ESMTP\r\n")},
	} {
		t.Run(name, func(t *testing.T) {
			servers := mysqlServers(t, 2, nil)
			p := start(t, mysqlListener+mysqlService("tidb", "", servers...))
			servers[0].SetHook(stepHook(mysqltest.OnConnect, a))
			for range 2 { // each server is first once
				mustQuery(t, mustOpenMySQL(t, p, nil), "SELECT 1", "1")
			}
			servers[1].SetHook(stepHook(mysqltest.OnConnect, a))
			if _, err := openMySQL(t, p, nil); a.Error != nil && !hasMySQLError(err, 1040) || a.Error == nil && !hasMySQLError(err, 1105) {
				t.Errorf("no server takes it: %v", err)
			}
		})
	}
}

// A server that dies under a session is an error that the client can read.
func TestMySQLServerDies(t *testing.T) {
	servers := mysqlServers(t, 1, nil)
	p := start(t, mysqlListener+mysqlService("tidb", "", servers[0]))
	c := mustOpenMySQL(t, p, nil)
	failed := make(chan error, 1)
	go func() {
		var got string
		failed <- c.QueryRowContext(t.Context(), "SELECT SLEEP('s')").Scan(&got)
	}()
	testkit.WaitFor(t, "the query is there", func() bool { return servers[0].Sleeping("s") == 1 })
	servers[0].CloseConns()
	if err := <-failed; !hasMySQLError(err, 1105) {
		t.Errorf("%v, want error 1105", err)
	}
}

// A permission that is taken away ends sessions that it let in, and no others.
func TestMySQLPermissionRevoked(t *testing.T) {
	servers := mysqlServers(t, 2, nil)
	p := start(t, strings.Replace(mysqlListener, "service: tidb", `service: tidb, mysql: {users: [{names: [root], service: other}]}`, 1)+
		mysqlService("tidb", "", servers[0])+mysqlService("other", "", servers[1]))
	denied := mustOpenMySQL(t, p, func(c *mysql.Config) { c.User, c.Passwd = "root", "" })
	kept := mustOpenMySQL(t, p, nil)
	p.mustApply(t, `---
kind: TrafficPermission
name: none
spec:
  to: {service: other}
  rules: [{action: deny, from: [{networks: [127.0.0.0/8]}]}]
  onChange: close
`)
	testkit.WaitFor(t, "the session has ended", func() bool { return servers[1].Conns() == 0 })
	if err := denied.PingContext(t.Context()); err == nil {
		t.Error("the denied session is still there")
	}
	mustQuery(t, kept, "SELECT 1", "1")
	if _, err := openMySQL(t, p, func(c *mysql.Config) { c.User, c.Passwd = "root", "" }); !hasMySQLError(err, 1045) {
		t.Errorf("a new login: %v, want error 1045", err)
	}
}

// A file that a client sends is not the end of its statements.
func TestMySQLFileAmongStatements(t *testing.T) {
	servers := mysqlServers(t, 1, nil)
	p := start(t, mysqlListener+mysqlService("tidb", "", servers[0]))
	mysql.RegisterReaderHandler(t.Name(), func() io.Reader { return strings.NewReader("1\n2\n3\n") })
	t.Cleanup(func() { mysql.DeregisterReaderHandler(t.Name()) })
	c := mustOpenMySQL(t, p, func(c *mysql.Config) { c.MultiStatements = true })
	for range 2 {
		rows, err := c.QueryContext(t.Context(), "LOAD DATA LOCAL INFILE 'Reader::"+t.Name()+"' INTO TABLE f; SELECT 7")
		if err != nil {
			t.Fatal(err)
		}
		var got int
		if !rows.Next() || rows.Scan(&got) != nil || got != 7 {
			t.Errorf("behind the file: %d, %v; want 7", got, rows.Err())
		}
		rows.Close()
	}
	mustQuery(t, c, "SELECT value FROM counter WHERE name = 'f'", "6")
}
