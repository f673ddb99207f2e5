package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
)

// The versions installed by setup.sh.
const (
	jdbcFolder    = "jdbc-9.7.0-3.5.11"
	pymysqlFolder = "pymysql-1.2.4"
)

// peerFolder returns a folder that setup.sh installs.
func peerFolder(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(realkafka.Peers(), name)
	if _, err := os.Stat(dir); err != nil {
		testkit.NotTested(t, "%s is missing; make setup installs it", name)
	}
	return dir
}

// mysqlListeners are the listeners of proxied, and whether a client uses TLS with them.
var mysqlListeners = []struct {
	name string
	tls  bool
}{{"plain", false}, {"tls", true}, {"edge", true}, {"upstream", false}}

// sameVia runs a client directly and through each listener: what it returns is the same.
// say is some text that it must have.
func (p *proxied) sameVia(t *testing.T, what, say string, client func(addr string, tls bool) string) {
	t.Helper()
	direct := map[bool]string{false: client(p.addr, false), true: client(p.addr, true)}
	for secure, text := range direct {
		if !strings.Contains(text, say) {
			t.Errorf("%s, directly, TLS %v, does not say %q:\n%s", what, secure, say, text[max(0, len(text)-2000):])
		}
	}
	for _, l := range mysqlListeners {
		wantSameText(t, what+" via "+l.name, client(p.node.addr(l.name), l.tls), direct[l.tls])
	}
}

// wantSameText compares texts by their lines, and shows the first that differs.
func wantSameText(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	part := func(l []string) string {
		var shown []string
		for _, line := range l[max(0, min(i-3, len(l))):min(i+3, len(l))] {
			shown = append(shown, line[:min(len(line), 300)])
		}
		return strings.Join(shown, "\n")
	}
	t.Errorf("%s differs at line %d: got\n%s\n\nwant\n%s", what, i+1, part(a), part(b))
}

// linesFile returns a file for LOAD DATA LOCAL: 60,000 lines, of a number and a text each.
func linesFile(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&b, "%d,text of line %d\n", i, i*7919%60_000)
	}
	path := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// testMariaDBCommand runs the commands of MariaDB's client package.
func testMariaDBCommand(t *testing.T, p *proxied) {
	requirePeer(t, "mariadb")
	file := linesFile(t)
	run := func(name, in, user, password string, more ...string) func(string, bool) string {
		return func(addr string, tls bool) string {
			host, port, _ := net.SplitHostPort(addr)
			args := []string{"--no-defaults", "--protocol=tcp", "-h", host, "-P", port, "-u", user, "--password=" + password}
			if tls {
				args = append(args, "--ssl-ca="+p.ca.file, "--ssl-verify-server-cert")
			} else {
				args = append(args, "--skip-ssl")
			}
			r := peer(t, in, name, append(args, more...)...)
			return strings.ReplaceAll(fmt.Sprintf("%d\n%s\n%s", r.code, r.out, r.err), port, "PORT")
		}
	}
	const into = " INTO TABLE l FIELDS TERMINATED BY ',';\n"
	script := strings.Join([]string{
		"SELECT * FROM fixed", "SELEKT", "SELECT 1 FROM nowhere", "SELECT 1/0", "SHOW WARNINGS", "CALL twice(5)",
		"CREATE TEMPORARY TABLE l (n INT, s VARCHAR(40))", "LOAD DATA LOCAL INFILE '" + file + "'" + into + "SELECT COUNT(*), SUM(n) FROM l",
		"LOAD DATA LOCAL INFILE '/nowhere'" + into + "PREPARE s FROM 'SELECT ? + 1'", "SET @a = 41", "EXECUTE s USING @a", "BEGIN", "DELETE FROM l", "ROLLBACK",
		"SELECT LENGTH(REPEAT('x', 3000000))", "SELECT REPEAT('z', 3000000)", "use other",
		"SELECT DATABASE(), CURRENT_USER(), USER()", "SELECT seq FROM seq_1_to_20000", "DELIMITER //\nSELECT 1; SELECT 2; SELEKT 3//\nDELIMITER ;\nSELECT 4",
	}, ";\n") + ";\n"
	all := []string{"--local-infile=1", "--force", "-vv", "--column-type-info", "--show-warnings", "--max-allowed-packet=64M"}
	p.sameVia(t, "a script", "60000", run("mariadb", script, "app", appPassword, append(all, "sweep")...))
	p.sameVia(t, "a compressed session", "three", run("mariadb", "SELECT * FROM fixed", "app", appPassword, "--compress", "sweep"))
	for _, user := range []string{"ed", "empty", "sock", "gone", "tlsonly", "norights", "nobody"} {
		password := map[string]string{"ed": edPassword, "empty": ""}[user]
		if password == "" && user != "empty" {
			password = appPassword
		}
		say := user
		if user == "gone" {
			say = "this account is locked"
		}
		p.sameLogin(t, user, say, run("mariadb", "SELECT CURRENT_USER()", user, password, "sweep"))
	}
	p.sameVia(t, "a wrong password", "(using password: YES)", run("mariadb", "SELECT 1", "app", wrongPassword))
	p.sameVia(t, "no password", "(using password: NO)", run("mariadb", "SELECT 1", "app", ""))
	p.sameVia(t, "an unknown database", "1044", run("mariadb", "SELECT 1", "app", appPassword, "nowhere"))
	p.sameVia(t, "a dump", "INSERT INTO `fixed`", run("mariadb-dump", "", "app", appPassword, "--skip-dump-date", "--routines", "--hex-blob", "sweep"))
	p.sameVia(t, "ping", "mysqld is alive", run("mariadb-admin", "", "app", appPassword, "ping"))
	p.sameVia(t, "a check", "sweep.fixed", run("mariadb-check", "", "app", appPassword, "sweep"))
}

// sameLogin is sameVia, but for an account that the server may admit with TLS alone.
func (p *proxied) sameLogin(t *testing.T, user, say string, client func(addr string, tls bool) string) {
	t.Helper()
	if user != "tlsonly" {
		p.sameVia(t, "user "+user, say, client)
		return
	}
	// What counts is whether the server sees TLS.
	for name, tls := range map[string]bool{"plain": false, "tls": true, "edge": false, "upstream": true} {
		clientTLS := name == "tls" || name == "edge"
		wantSameText(t, "user tlsonly via "+name, client(p.node.addr(name), clientTLS), client(p.addr, tls))
	}
}

// testPyMySQL runs a program that uses PyMySQL.
func testPyMySQL(t *testing.T, p *proxied) {
	requirePeer(t, "python3")
	folder, file := peerFolder(t, pymysqlFolder), linesFile(t)
	run := func(args ...string) func(string, bool) string {
		return func(addr string, tls bool) string {
			_, port, _ := net.SplitHostPort(addr)
			argv := append([]string{"testdata/mysql/client.py", port}, args[:2]...)
			argv = append(argv, map[bool]string{true: p.ca.file}[tls])
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, requirePeer(t, "python3"), append(argv, args[2:]...)...)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+folder, "PYTHONIOENCODING=utf-8", "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("PyMySQL: %v\n%s", err, out)
			}
			return string(out)
		}
	}
	p.sameVia(t, "everything", "row [\"'app@%'\"]", run("app", appPassword, file))
	p.sameVia(t, "a wrong password", "Access denied", run("app", wrongPassword))
	p.sameVia(t, "no rights", "Access denied", run("norights", appPassword))
}

// testJDBC runs a program with MySQL's driver and with MariaDB's.
func testJDBC(t *testing.T, p *proxied) {
	requirePeer(t, "javac") // without it, java runs no source file
	classes, file, dir := peerFolder(t, jdbcFolder), linesFile(t), t.TempDir()
	type way struct{ name, addr, more string }
	ways := []way{{"direct", p.addr, ""}}
	for _, l := range mysqlListeners {
		if l.name == "plain" || l.name == "tls" { // a machine takes its time
			ways = append(ways, way{l.name, p.node.addr(l.name), map[bool]string{true: "tls"}[l.tls]})
		}
	}
	drivers := map[string]struct{ url, plain, tls string }{
		"Connector-J": {"jdbc:mysql://%s/sweep?allowMultiQueries=true&allowLoadLocalInfile=true&connectionTimeZone=UTC", "&sslMode=DISABLED", "&sslMode=REQUIRED"},
		"MariaDB":     {"jdbc:mariadb://%s/sweep?allowMultiQueries=true&allowLocalInfile=true", "&sslMode=disable", "&sslMode=trust"},
	}
	modes := map[string]string{"text": "", "server": "&useServerPrepStmts=true&useCursorFetch=true&rewriteBatchedStatements=true"}
	args := []string{"-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(classes, "*"), "testdata/mysql/Client.java", file}
	output := func(driver, mode, way, login string) string {
		return filepath.Join(dir, strings.Join([]string{driver, mode, way, login}, "-"))
	}
	for driver, d := range drivers {
		for _, w := range ways {
			url := fmt.Sprintf(d.url, w.addr) + map[bool]string{false: d.plain, true: d.tls}[w.more == "tls"]
			for mode, more := range modes {
				args = append(args, output(driver, mode, w.name, "good"), url+more, "app", appPassword)
			}
			args = append(args, output(driver, "text", w.name, "wrong"), url, "app", wrongPassword)
		}
	}
	if r := peer(t, "", "java", args...); r.code != 0 {
		t.Fatalf("java: %+v", r)
	}
	text := func(path string) string {
		out, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return string(out)
	}
	for driver := range drivers {
		for mode, login := range map[string][]string{"text": {"good", "wrong"}, "server": {"good"}} {
			for _, l := range login {
				direct := text(output(driver, mode, "direct", l))
				if say := map[string]string{"good": "row app@% other", "wrong": "error 1045"}[l]; !strings.Contains(direct, say) {
					t.Errorf("%s %s, directly, does not say %q:\n%s", driver, mode, say, direct)
				}
				for _, w := range ways[1:] {
					wantSameText(t, fmt.Sprintf("%s %s %s via %s", driver, mode, l, w.name), text(output(driver, mode, w.name, l)), direct)
				}
			}
		}
	}
}

// testSysbench runs a benchmark's transactions and counts them.
func testSysbench(t *testing.T, p *proxied) {
	requirePeer(t, "sysbench")
	run := func(addr, command string, more ...string) string {
		t.Helper()
		host, port, _ := net.SplitHostPort(addr)
		args := append([]string{
			"oltp_read_write", "--mysql-host=" + host, "--mysql-port=" + port, "--mysql-user=app", "--mysql-password=" + appPassword,
			"--mysql-db=bench", "--tables=2", "--table-size=500", "--threads=4", "--events=120", "--time=0", "--rand-seed=1",
		}, more...)
		r := peer(t, "", "sysbench", append(args, command)...)
		if r.code != 0 {
			t.Fatalf("sysbench %s: %+v", command, r)
		}
		return r.out
	}
	run(p.addr, "prepare")
	for _, l := range mysqlListeners {
		if l.tls {
			continue // it looks for a client's certificate in the current folder
		}
		for _, mode := range []string{"auto", "disable"} { // prepared statements, or none
			out := run(p.node.addr(l.name), "run", "--db-ps-mode="+mode)
			for _, want := range []string{"transactions:                        120 ", "reconnects:                          0 "} {
				if !strings.Contains(out, want) {
					t.Errorf("via %s, prepared statements: %s: no %q:\n%s", l.name, mode, want, out)
				}
			}
		}
	}
}

// testGoDriver runs the Go driver, and checks on which side there is TLS.
func testGoDriver(t *testing.T, p *proxied) {
	mysql.RegisterReaderHandler("go-lines", func() io.Reader { return strings.NewReader(strings.Repeat("1,x\n", 30_000)) })
	defer mysql.DeregisterReaderHandler("go-lines")
	p.sameVia(t, "everything", "[app@%]", func(addr string, tls bool) string { return goClient(t, p, addr, "app", appPassword, tls) })
	p.sameVia(t, "ed25519", "[ed@%]", func(addr string, tls bool) string { return goClient(t, p, addr, "ed", edPassword, tls) })
	p.sameVia(t, "a wrong password", "1045", func(addr string, tls bool) string { return goClient(t, p, addr, "app", wrongPassword, tls) })
	for name, want := range map[string]string{"plain": "", "tls": "TLSv1.3", "edge": "", "upstream": "TLSv1.3"} {
		db := openMySQL(t, p.node.addr(name), p.goConfig("app", appPassword, name == "tls" || name == "edge"))
		var key, version string
		if err := db.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'Ssl_version'").Scan(&key, &version); err != nil || version != want {
			t.Errorf("%s: the server sees TLS version %q, want %q (%v)", name, version, want, err)
		}
	}
}

func (p *proxied) goConfig(user, password string, tls bool) func(*mysql.Config) {
	return func(c *mysql.Config) {
		c.User, c.Passwd, c.DBName, c.MultiStatements, c.AllowAllFiles = user, password, "sweep", true, true
		if tls {
			c.TLS = p.ca.Client("127.0.0.1")
		}
	}
}

// goClient returns what one session of the Go driver gets.
func goClient(t *testing.T, p *proxied, addr, user, password string, tls bool) string {
	t.Helper()
	conn, err := openMySQL(t, addr, p.goConfig(user, password, tls)).Conn(t.Context())
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	var out strings.Builder
	for _, s := range []struct {
		sql  string
		args []any
	}{
		{"CREATE TEMPORARY TABLE g (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(20), b LONGBLOB)", nil},
		{"INSERT INTO g (s, b) VALUES (?, ?)", []any{"it's", []byte{0, 1, 255}}},
		{"INSERT INTO g (s, b) VALUES (?, ?)", []any{nil, make([]byte, 17<<20)}}, // long data in many packets
		{"SELECT id, s, MD5(b), LENGTH(b) FROM g WHERE id < ?", []any{100}},
		{"SELECT b FROM g WHERE id = ?", []any{2}},
		{"CALL twice(4)", nil}, {"SELECT 1; SELECT 2", nil}, {"SELEKT", nil}, {"SELECT ? FROM nowhere", []any{1}},
		{"LOAD DATA LOCAL INFILE 'Reader::go-lines' INTO TABLE g FIELDS TERMINATED BY ',' (@a, s)", nil},
		{"SELECT COUNT(*) FROM g", nil},
		{"LOAD DATA LOCAL INFILE 'Reader::none' INTO TABLE g", nil}, {"SELECT CURRENT_USER()", nil},
	} {
		fmt.Fprintf(&out, "-- %s\n", s.sql)
		rows, err := conn.QueryContext(t.Context(), s.sql, s.args...)
		if err == nil {
			err = writeRows(&out, rows)
		}
		if err != nil {
			fmt.Fprintln(&out, err)
		}
	}
	return out.String()
}

func writeRows(out io.Writer, rows *sql.Rows) error {
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() {
		columns, err := rows.ColumnTypes()
		if err != nil {
			return err
		}
		for rows.Next() {
			values := make([]sql.RawBytes, len(columns))
			into := make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				return err
			}
			shown := slices.Collect(func(yield func(string) bool) {
				for _, v := range values {
					text := fmt.Sprintf("%d bytes", len(v))
					if len(v) < 100 {
						text = string(v)
					}
					if !yield(text) {
						return
					}
				}
			})
			fmt.Fprintln(out, shown)
		}
		fmt.Fprintf(out, "%d columns\n", len(columns))
	}
	return errors.Join(rows.Err(), rows.Close())
}
