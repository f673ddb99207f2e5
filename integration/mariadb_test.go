package integration

import (
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"penstock/internal/testkit"
)

// The accounts of a MariaDB server of the tests. No password may appear in what a node
// logs or counts, so each has text of its own.
const (
	appPassword     = "Quartz-app-pass"
	edPassword      = "Quartz-ed25519-with-32-character" // the length of a seed of package ed25519
	expiredPassword = "Quartz-expired-pass"
	newPassword     = "Quartz-new-pass"
	wrongPassword   = "Quartz-wrong-pass"
	secretText      = "Quartz-" // begins each of them
)

// accounts creates users for each kind of login, and what the clients read: fixed has
// three rows, twice() answers with two results. The database sweep is empty but for these.
var accounts = strings.Join([]string{
	"CREATE DATABASE sweep", "CREATE DATABASE other", "CREATE DATABASE bench",
	"CREATE TABLE sweep.fixed (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL DEFAULT 'none', data LONGBLOB)",
	"INSERT INTO sweep.fixed VALUES (1, 'one', NULL), (2, 'two', 'b'), (3, 'three', REPEAT('c', 300))",
	"CREATE PROCEDURE sweep.twice(n INT) BEGIN SELECT n AS first; SELECT id, name FROM sweep.fixed; END",
	"CREATE PROCEDURE sweep.out_param(IN a INT, OUT b INT) BEGIN SET b = a * 2; SELECT a; END",
	"CREATE USER app IDENTIFIED BY '" + appPassword + "'",
	"CREATE USER ed IDENTIFIED VIA ed25519 USING PASSWORD('" + edPassword + "')",
	"CREATE USER empty IDENTIFIED BY ''",
	"CREATE USER sock IDENTIFIED VIA unix_socket",
	"CREATE USER gone IDENTIFIED BY '" + appPassword + "' ACCOUNT LOCK",
	"CREATE USER tlsonly IDENTIFIED BY '" + appPassword + "' REQUIRE SSL",
	"CREATE USER norights IDENTIFIED BY '" + appPassword + "'",
	"GRANT ALL ON sweep.* TO app, ed, empty, sock, gone, tlsonly", "GRANT ALL ON other.* TO app", "GRANT ALL ON bench.* TO app",
	"",
}, ";\n")

// mariaDB is a running server of MariaDB.
type mariaDB struct {
	addr string
	root *sql.DB
}

// startMariaDB starts a MariaDB server with the users and tables of accounts. It takes a
// few seconds: tests share one where they can.
func startMariaDB(t *testing.T, p pair) *mariaDB {
	t.Helper()
	addr := runMariaDB(t, p, "--local-infile=1", "--character-set-server=utf8mb4", "--max-allowed-packet=40M", "--thread-cache-size=0")
	m := &mariaDB{addr: addr, root: openMySQL(t, addr, func(c *mysql.Config) { c.MultiStatements = true })}
	m.exec(t, accounts)
	return m
}

// runMariaDB starts a MariaDB server with the certificate on a free port, in a folder of
// its own, and returns its address. Its only account is root, from this machine and
// without a password.
func runMariaDB(t *testing.T, p pair, options ...string) (addr string) {
	t.Helper()
	install, server := requirePeer(t, "mariadb-install-db"), requirePeer(t, "mariadbd")
	home := newServerHome(t, "mariadb", p)
	// Nothing here has to survive the machine.
	common := []string{
		"--no-defaults", "--datadir=" + filepath.Join(home.dir, "data"), "--skip-name-resolve",
		"--innodb-flush-method=nosync", "--innodb-log-file-size=4M", "--sync-frm=0", "--innodb-buffer-pool-size=48M",
	}
	if out, err := home.command(t, install, append(slices.Clone(common), "--auth-root-authentication-method=normal", "--skip-test-db")...).CombinedOutput(); err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	addr = testkit.FreeAddress(t)
	host, port, _ := net.SplitHostPort(addr)
	cmd := home.command(t, server, append(append(slices.Clone(common),
		"--bind-address="+host, "--port="+port, "--socket="+filepath.Join(home.dir, "socket"), "--pid-file="+filepath.Join(home.dir, "pid"),
		"--plugin-load-add=auth_ed25519", "--ssl-cert="+home.cert, "--ssl-key="+home.key, "--innodb-flush-log-at-trx-commit=0"), options...)...)
	log, err := os.Create(filepath.Join(home.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("log of MariaDB:\n%s", text)
		}
		log.Close()
	})
	root := openMySQL(t, addr, nil)
	testkit.WaitFor(t, "MariaDB", func() bool { return root.PingContext(t.Context()) == nil })
	return addr
}

// exec executes statements as root.
func (m *mariaDB) exec(t *testing.T, statements string) {
	t.Helper()
	if _, err := m.root.ExecContext(t.Context(), statements); err != nil {
		t.Fatal(err)
	}
}

// openMySQL returns the Go driver's pool for a server, as root without a password unless
// change says otherwise.
func openMySQL(t testing.TB, addr string, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = "root", "tcp", addr
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
	return db
}

// proxied is a MariaDB server, and a node with four listeners in front of it:
//
//	plain      no TLS on either side
//	tls        TLS on both sides, if the client asks for it
//	edge       TLS with the client alone
//	upstream   TLS with the server alone
type proxied struct {
	*mariaDB
	node *node
	ca   *authority
}

func startProxied(t *testing.T) *proxied {
	t.Helper()
	ca := newAuthority(t, "ca")
	m := startMariaDB(t, ca.issue("db.example.com", "127.0.0.1"))
	to := []string{m.addr}
	secure := fmt.Sprintf("tls: {ca: %q, serverName: db.example.com}", ca.file)
	terminate := "tls: {mode: terminate, certificateRefs: [db]}"
	n := startNode(t, certificate("db", ca.issue("db.example.com", "127.0.0.1"))+
		service("plain", to, "protocol: mysql")+service("tls", to, "protocol: mysql", secure)+
		service("upstream", to, "protocol: mysql", secure, "mysql: {requireTLS: true}")+
		listener("plain", "protocol: mysql", "service: plain")+
		listener("tls", "protocol: mysql", terminate, "service: tls")+
		listener("edge", "protocol: mysql", terminate, "service: plain")+
		listener("upstream", "protocol: mysql", "service: upstream"), "--log-level", "debug")
	return &proxied{m, n, ca}
}

// TestMariaDB runs clients and generated sessions against MariaDB, directly and through
// Penstock: the results are the same, and no secret of theirs shows in the node's log or
// metrics.
func TestMariaDB(t *testing.T) {
	t.Parallel()
	p := startProxied(t)
	t.Run("all", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *proxied){
			"mariadb": testMariaDBCommand, "Go": testGoDriver, "Python": testPyMySQL, "Java": testJDBC, "sysbench": testSysbench,
			"logins": sweepLogins, "commands": sweepCommands, "changes": sweepChanges, "sessions": sweepSessions, "large": sweepLarge,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, p)
			})
		}
	})
	wantNoSecret(t, p.node)
}

// wantNoSecret fails if a node has logged or counted a part of a password.
func wantNoSecret(t *testing.T, n *node) {
	t.Helper()
	code, metrics := n.fetch("/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d", code)
	}
	log := n.log()
	if !strings.Contains(log, `"reason":"mysql_login_refused"`) {
		t.Error("the log has no refused login: the check would prove nothing")
	}
	for where, text := range map[string]string{"log": log, "metrics": metrics} {
		for line := range strings.Lines(text) {
			if strings.Contains(line, secretText) {
				t.Errorf("the %s has a secret: %s", where, line)
			}
		}
	}
}
