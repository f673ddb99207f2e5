package integration

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
	"penstock/mysql/mysqltest"
)

// pd is an etcd that holds what PD holds of TiDB's servers.
type pd struct {
	t    *testing.T
	addr string
	keys *clientv3.Client
}

func startPD(t *testing.T) *pd {
	t.Helper()
	path, dir := requirePeer(t, "etcd"), t.TempDir()
	ports, err := process.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	client, member := "http://"+process.Loopback(ports[0]), "http://"+process.Loopback(ports[1])
	proc, err := process.Start("etcd", dir, []string{
		path, "--name=one", "--data-dir=" + filepath.Join(dir, "data"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + member, "--initial-advertise-peer-urls=" + member, "--initial-cluster=one=" + member,
	}, ports[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proc.Kill)
	keys, err := clientv3.New(clientv3.Config{Endpoints: []string{client}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keys.Close() })
	return &pd{t, process.Loopback(ports[0]), keys}
}

// announce writes a server's keys as TiDB does: info lasts, ttl has a lease. It returns
// what ends the lease.
func (d *pd) announce(s *mysqltest.Server) (leave func()) {
	d.t.Helper()
	host, _, _ := net.SplitHostPort(s.Addr())
	_, status, _ := net.SplitHostPort(s.StatusAddr())
	ctx, cancel := context.WithTimeout(d.t.Context(), testkit.Patience)
	defer cancel()
	lease, err := d.keys.Grant(ctx, 3600)
	if err != nil {
		d.t.Fatal(err)
	}
	key := "/topology/tidb/" + s.Addr()
	if _, err = d.keys.Put(ctx, key+"/info", fmt.Sprintf(
		`{"version": "v8.5.0", "git_hash": "none", "ip": %q, "status_port": %s, "deploy_path": "/", "start_timestamp": 1700000000, "labels": {"zone": "a"}}`,
		host, status)); err == nil {
		_, err = d.keys.Put(ctx, key+"/ttl", "1700000000000000000", clientv3.WithLease(lease.ID))
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return func() {
		d.t.Helper()
		if _, err := d.keys.Revoke(d.t.Context(), lease.ID); err != nil {
			d.t.Fatal(err)
		}
	}
}

// tidb is a cluster of stand-ins for TiDB behind a node that was started with TiProxy's
// configuration file.
type tidb struct {
	*pd
	t       *testing.T
	node    *node
	servers []*mysqltest.Server
	leave   []func()
	at      string // the address of the listener
}

func (c *tidb) config(more string) string {
	return fmt.Sprintf("[proxy]\naddr = %q\npd-addrs = %q\nfailover-timeout = 3600\n%s", c.at, c.addr, more)
}

func startTiDB(t *testing.T, servers int) *tidb {
	t.Helper()
	c := &tidb{pd: startPD(t), t: t, at: testkit.FreeAddress(t), node: newNode(t)}
	config := mysqltest.Config{
		Signer: mysqltest.NewSigner(t), Store: mysqltest.NewStore(), Users: map[string]mysqltest.User{"app": {Password: appPassword}},
	}
	for range servers {
		s := mysqltest.New(t, config)
		c.servers, c.leave = append(c.servers, s), append(c.leave, c.announce(s))
	}
	file := c.node.file("tiproxy.toml", c.config(""))
	c.node.start([]string{program(t), "start", "--dev", "--name", "n1", "--data-dir", c.node.dir, "--cluster", "127.0.0.1:0",
		"--http", "127.0.0.1:0", "--access-log", "all", "--log-format", "json", "--log-level", "debug", "--drain-wait", "0s",
		"--drain-timeout", "0s", "--resources", file, "--resources-mode", "follow"})
	c.waitUsable(servers)
	return c
}

// waitUsable waits until the node has this many usable servers.
func (c *tidb) waitUsable(n int) {
	c.t.Helper()
	testkit.WaitFor(c.t, fmt.Sprintf("%d usable servers", n), func() bool {
		usable := 0
		for _, s := range c.node.status().Services {
			for _, e := range s.Endpoints {
				if e.Used {
					usable++
				}
			}
		}
		return usable == n
	})
}

// session opens a session and gives it a variable.
func (c *tidb) session() *sql.Conn {
	c.t.Helper()
	db := openMySQL(c.t, c.at, func(m *mysql.Config) { m.User, m.Passwd = "app", appPassword })
	conn, err := db.Conn(c.t.Context())
	if err == nil {
		_, err = conn.ExecContext(c.t.Context(), "SET @kept = 'kept'")
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return conn
}

// wantKept checks that sessions have what they had.
func (c *tidb) wantKept(sessions []*sql.Conn) {
	c.t.Helper()
	for _, s := range sessions {
		var got string
		if err := s.QueryRowContext(c.t.Context(), "SELECT @kept").Scan(&got); err != nil || got != "kept" {
			c.t.Errorf("a session has %q, %v", got, err)
		}
	}
}

// api calls TiProxy's HTTP API.
func (c *tidb) api(method, path, body string) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.node.http+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestTiDBWithPD runs a node as TiProxy is run: its file names PD, whose keys name the
// servers. Sessions leave a server whose lease ends, or that shuts down.
func TestTiDBWithPD(t *testing.T) {
	t.Parallel()
	c := startTiDB(t, 2)
	a, b := c.servers[0], c.servers[1]
	var sessions []*sql.Conn
	for range 6 {
		sessions = append(sessions, c.session())
	}
	if a.Conns() != 3 || b.Conns() != 3 {
		t.Errorf("%d and %d sessions, want 3 each", a.Conns(), b.Conns())
	}
	// A server whose lease has ended.
	c.leave[0]()
	testkit.WaitFor(t, "all sessions to move", func() bool { return a.Conns() == 0 && b.Conns() == 6 })
	c.wantKept(sessions)
	sessions = append(sessions, c.session())
	if a.Conns() != 0 || b.Conns() != 7 {
		t.Errorf("%d and %d sessions, want 0 and 7", a.Conns(), b.Conns())
	}
	// It comes back.
	c.leave[0] = c.announce(a)
	c.waitUsable(2)
	sessions = append(sessions, c.session())
	if a.Conns() == 0 {
		t.Error("no new session at the server that has come back")
	}
	// A server that shuts down says so at its status port, and then ends its lease.
	b.ShutDown(true)
	c.waitUsable(1)
	before := b.Conns()
	sessions = append(sessions, c.session(), c.session())
	if b.Conns() > before {
		t.Errorf("new sessions at a server that shuts down: %d, %d before", b.Conns(), before)
	}
	c.leave[1]()
	testkit.WaitFor(t, "all sessions to move", func() bool { return b.Conns() == 0 && a.Conns() == len(sessions) })
	c.wantKept(sessions)
	if n := c.node.metric("mysql_moves_total", `result="moved"`); n < 6 {
		t.Errorf("%v moves", n)
	}
	// A wrong password, for the log.
	if err := openMySQL(t, c.at, func(m *mysql.Config) { m.User, m.Passwd = "app", wrongPassword }).PingContext(t.Context()); err == nil {
		t.Error("a wrong password is taken")
	}
	testkit.WaitFor(t, "the refusal in the log", func() bool { return strings.Contains(c.node.log(), `"reason":"mysql_login_refused"`) })
	wantNoSecret(t, c.node)
	log := c.node.log()
	for _, server := range c.servers {
		for _, l := range server.Record().Logins {
			if l.Plugin == "tidb_session_token" && strings.Contains(log, string(l.Login.Auth)) {
				t.Error("the log has a session token")
			}
		}
	}
}

// TestTiProxysFileAndAPI changes the file that a node follows, and calls the API as
// TiProxy's operator and its scripts do.
func TestTiProxysFileAndAPI(t *testing.T) {
	t.Parallel()
	c := startTiDB(t, 1)
	const health, config = "/api/debug/health", "/api/admin/config/"
	if code, text := c.api("GET", health, ""); code != http.StatusOK {
		t.Errorf("health: %d %s", code, text)
	}
	if code, text := c.api("GET", "/api/admin/namespace/", ""); code != http.StatusOK || !strings.Contains(text, c.servers[0].Addr()) {
		t.Errorf("namespace: %d %s", code, text)
	}
	has := func(text string) func() bool {
		return func() bool {
			code, got := c.api("GET", config, "")
			return code == http.StatusOK && strings.Contains(got, text)
		}
	}
	if !has("pd-addrs = '" + c.addr + "'")() {
		_, text := c.api("GET", config, "")
		t.Errorf("config: %s", text)
	}
	// The file changes: the node follows. A file with a fault changes nothing.
	write := func(text string) {
		t.Helper()
		temporary := c.node.file("new.toml", text)
		if err := os.Rename(temporary, filepath.Join(c.node.dir, "tiproxy.toml")); err != nil {
			t.Fatal(err)
		}
	}
	reload := func(text string) { // without the wait for the node's next look at the file
		t.Helper()
		write(text)
		c.node.signal(syscall.SIGHUP)
	}
	c.session()
	write(c.config("max-connections = 1\n"))
	testkit.WaitFor(t, "the new limit", has("max-connections = 1"))
	if err := openMySQL(t, c.at, func(m *mysql.Config) { m.User, m.Passwd = "app", appPassword }).PingContext(t.Context()); err == nil {
		t.Error("a session beyond max-connections")
	}
	reload(c.config("max-conections = 2\n"))
	testkit.WaitFor(t, "the fault in the log", func() bool { return strings.Contains(c.node.log(), "did you mean max-connections?") })
	old := c.at
	c.at = testkit.FreeAddress(t)
	reload(c.config(""))
	testkit.WaitFor(t, "the new address", has(c.at))
	testkit.WaitFor(t, "the old address to be closed", func() bool {
		conn, err := net.Dial("tcp", old)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	c.wantKept([]*sql.Conn{c.session()})
	if code, text := c.api("PUT", config, "[proxy]\nmax-connections = 5\n"); code == http.StatusOK {
		testkit.WaitFor(t, "the limit", has("max-connections = 5"))
	} else {
		t.Errorf("PUT: %d %s", code, text)
	}
	if code, text := c.api("PUT", config, "[proxy]\nmax-connections = 'many'\n"); code != http.StatusBadRequest {
		t.Errorf("a bad value: %d %s", code, text)
	}
	// All servers fail. (An empty list of a provider would count after 30 seconds only.)
	if code, text := c.api("PUT", config, fmt.Sprintf("[proxy]\nfail-backend-list = [%q]\n", c.servers[0].Addr())); code != http.StatusOK {
		t.Errorf("PUT: %d %s", code, text)
	}
	testkit.WaitFor(t, "health to say no", func() bool { code, _ := c.api("GET", health, ""); return code == http.StatusBadGateway })
	if code, text := c.api("PUT", config, "[proxy]\nfail-backend-list = []\n"); code != http.StatusOK {
		t.Errorf("PUT: %d %s", code, text)
	}
	testkit.WaitFor(t, "health to say yes", func() bool { code, _ := c.api("GET", health, ""); return code == http.StatusOK })
}
