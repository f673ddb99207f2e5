package mysqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/mysql/mysqltest"
	"penstock/mysql/wire"
)

// open returns one session of go-sql-driver with s.
func open(t *testing.T, s *mysqltest.Server, change func(*mysql.Config)) (*sql.Conn, error) {
	t.Helper()
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = "root", "tcp", s.Addr()
	config.Logger = mysql.Logger(&mysql.NopLogger{})
	if change != nil {
		change(config)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	c, err := db.Conn(t.Context())
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func mustOpen(t *testing.T, s *mysqltest.Server, change func(*mysql.Config)) *sql.Conn {
	t.Helper()
	c, err := open(t, s, change)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustExec(t *testing.T, c *sql.Conn, query string, args ...any) sql.Result {
	t.Helper()
	r, err := c.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return r
}

// value returns the only value of a query, as text; <nil> for NULL.
func value(t *testing.T, c *sql.Conn, query string, args ...any) string {
	t.Helper()
	var v sql.NullString
	if err := c.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if !v.Valid {
		return "<nil>"
	}
	return v.String
}

// code returns the number of a server's error; 0 if err is none.
func code(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

func TestDriverLogsIn(t *testing.T) {
	ca := certs.NewCA("ca")
	server, client := ca.Server("db.example.com"), ca.Client("db.example.com")
	for _, plugin := range []string{"mysql_native_password", "caching_sha2_password", "mysql_clear_password"} {
		for _, greets := range []string{"mysql_native_password", "caching_sha2_password"} {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprint(plugin, " ", greets, " ", secure), func(t *testing.T) {
					config := mysqltest.Config{Plugin: greets, Users: map[string]mysqltest.User{"app": {Password: "s3cret", Plugin: plugin}}}
					if secure {
						config.TLS = server
					}
					s := mysqltest.New(t, config)
					change := func(password string) func(*mysql.Config) {
						return func(c *mysql.Config) {
							c.User, c.Passwd, c.DBName, c.AllowCleartextPasswords = "app", password, "shop", true
							if secure {
								c.TLS = client
							}
						}
					}
					_, err := open(t, s, change("wrong"))
					if code(err) != 1045 {
						t.Errorf("a wrong password: %v", err)
					}
					for range 2 { // caching_sha2_password: full, then fast
						c := mustOpen(t, s, change("s3cret"))
						if got := value(t, c, "SELECT DATABASE()"); got != "shop" {
							t.Errorf("the database is %s", got)
						}
					}
					seen := s.Record().Logins
					if last := seen[len(seen)-1]; !last.OK || last.TLS != secure || last.Login.User != "app" || last.Plugin != plugin {
						t.Errorf("recorded %+v", last)
					}
				})
			}
		}
	}
}

// everything runs the language through the driver.
func everything(t *testing.T, s *mysqltest.Server, c *sql.Conn) {
	t.Helper()
	mustExec(t, c, "SET @a = 'it''s', @b = 7")
	mustExec(t, c, "SET SESSION sql_mode = 'ANSI'")
	for query, want := range map[string]string{
		"SELECT 1": "1", "SELECT -2 + 5": "3", "SELECT 1.5": "1.5", "SELECT NULL": "<nil>", `SELECT 'a\'b'`: "a'b",
		"SELECT @a": "it's", "SELECT @b": "7", "SELECT @@sql_mode": "ANSI", "SELECT @@session.autocommit": "1",
		"SELECT LENGTH(REPEAT('ab', 100000)) AS n": "200000",
	} {
		if got := value(t, c, query); got != want {
			t.Errorf("%s is %q, want %q", query, got, want)
		}
	}
	before := s.Store().Counter("x")
	r := mustExec(t, c, "INSERT INTO counter VALUES (?, ?)", "x", 2)
	if id, _ := r.LastInsertId(); id == 0 || value(t, c, "SELECT LAST_INSERT_ID()") != fmt.Sprint(id) {
		t.Errorf("insert ID %d", id)
	}
	tx, err := c.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("UPDATE counter SET value = value + 5 WHERE name = 'x'"); err != nil {
		t.Fatal(err)
	}
	if got := s.Store().Counter("x"); got != before+2 {
		t.Errorf("before the commit x is %d", got)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "UPDATE counter SET value = value + 100 WHERE name = 'x'")
	mustExec(t, c, "ROLLBACK")
	if got := value(t, c, "SELECT value FROM counter WHERE name = 'x'"); got != fmt.Sprint(before+7) {
		t.Errorf("x is %s", got)
	}
	rows, err := c.QueryContext(t.Context(), "SELECT * FROM rows(?, 5000)", 300)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for rows.Next() {
		var id int
		var data string
		if err := rows.Scan(&id, &data); err != nil || id != n+1 || len(data) != 5000 {
			t.Fatalf("row %d: %d, %d bytes, %v", n, id, len(data), err)
		}
		n++
	}
	if rows.Err() != nil || n != 300 {
		t.Errorf("%d rows, %v", n, rows.Err())
	}
	if _, err := c.ExecContext(t.Context(), "ERROR 1205 'HY000' 'no'"); code(err) != 1205 {
		t.Errorf("the error is %v", err)
	}
	if _, err := c.ExecContext(t.Context(), "SELEKT 1"); code(err) != 1064 {
		t.Errorf("a syntax error is %v", err)
	}
	multi, err := c.QueryContext(t.Context(), "SELECT 1; SET @c = 3; SELECT @c")
	if err != nil {
		t.Fatal(err)
	}
	results := 1
	for multi.NextResultSet() {
		results++
	}
	if results != 2 || multi.Err() != nil { // the driver passes over results without rows
		t.Errorf("%d results, %v", results, multi.Err())
	}
	multi.Close()
}

func TestDriverRunsTheLanguage(t *testing.T) {
	for name, caps := range map[string]wire.Capabilities{
		"deprecate EOF": mysqltest.DefaultCapabilities,
		"EOF":           mysqltest.DefaultCapabilities &^ wire.DeprecateEOF,
	} {
		for _, compress := range []bool{false, true} {
			t.Run(fmt.Sprint(name, compress), func(t *testing.T) {
				s := mysqltest.New(t, mysqltest.Config{Capabilities: caps})
				everything(t, s, mustOpen(t, s, func(c *mysql.Config) {
					c.MultiStatements = true
					if err := c.Apply(mysql.EnableCompression(compress)); err != nil {
						t.Fatal(err)
					}
				}))
			})
		}
	}
}

func TestDriverLoadsAFile(t *testing.T) {
	mysql.RegisterReaderHandler("lines", func() io.Reader { return strings.NewReader(strings.Repeat("line\n", 50_000)) })
	defer mysql.DeregisterReaderHandler("lines")
	s := mysqltest.New(t, mysqltest.Config{})
	r := mustExec(t, mustOpen(t, s, nil), "LOAD DATA LOCAL INFILE 'Reader::lines' INTO TABLE loaded")
	if n, _ := r.RowsAffected(); n != 50_000 || s.Store().Counter("loaded") != 50_000 {
		t.Errorf("%d rows, counter %d", n, s.Store().Counter("loaded"))
	}
}

func TestSleepEndsByRelease(t *testing.T) {
	s := mysqltest.New(t, mysqltest.Config{})
	c := mustOpen(t, s, nil)
	done := make(chan error, 1)
	go func() {
		_, err := c.ExecContext(context.Background(), "DO SLEEP('nap')")
		done <- err
	}()
	testkit.WaitFor(t, "the session to sleep", func() bool { return s.Sleeping("nap") == 1 })
	s.Release("nap")
	if err := testkit.Receive(t, "the end of the sleep", done); err != nil {
		t.Error(err)
	}
}

func TestStatusPort(t *testing.T) {
	s := mysqltest.New(t, mysqltest.Config{})
	for _, want := range []int{200, 500} {
		s.ShutDown(want == 500)
		r, err := http.Get("http://" + s.StatusAddr() + "/status")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("status %d, want %d", r.StatusCode, want)
		}
	}
}
