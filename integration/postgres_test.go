package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"penstock/internal/testkit"
)

// nobody is who runs a server that refuses to be run by root.
const nobody = 65534

// serverHome is the folder of a server that refuses to be run by root, with a
// certificate that the server may read.
type serverHome struct {
	dir, cert, key string
	as             *syscall.Credential // nil: the user of the test
}

func newServerHome(t *testing.T, name string, p pair) serverHome {
	t.Helper()
	// Not t.TempDir, whose parents may be closed to the server's user.
	dir, err := os.MkdirTemp("/tmp", "penstock-"+name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := serverHome{dir: dir, cert: filepath.Join(dir, "server.crt"), key: filepath.Join(dir, "server.key")}
	if os.Getuid() == 0 {
		h.as = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	own := func(path string, err error) {
		t.Helper()
		if err == nil && h.as != nil {
			err = os.Chown(path, nobody, nobody)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	own(dir, nil)
	for to, from := range map[string]string{h.cert: p.certFile, h.key: p.keyFile} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		own(to, err)
	}
	return h
}

// command returns a command that runs as the server's user and ends with the test.
func (h serverHome) command(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir, cmd.Env = h.dir, append(os.Environ(), "HOME="+h.dir, "TMPDIR="+h.dir, "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.as, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// startPostgres starts a PostgreSQL server with the certificate on a free port, in a
// folder of its own, and returns its address. Every user of 127.0.0.1 is trusted.
func startPostgres(t *testing.T, p pair) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		testkit.NotTested(t, "PostgreSQL's server is missing; make setup installs it")
	}
	bin := filepath.Dir(found[len(found)-1])
	home := newServerHome(t, "postgres", p)
	run := func(name string, args ...string) *exec.Cmd {
		return home.command(t, filepath.Join(bin, name), args...)
	}
	data := filepath.Join(home.dir, "data")
	if out, err := run("initdb", "-D", data, "-U", "me", "-A", "trust", "-N").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	addr := testkit.FreeAddress(t)
	host, port, _ := net.SplitHostPort(addr)
	server := run("postgres", "-D", data, "-h", host, "-p", port, "-k", "", "-c", "fsync=off",
		"-c", "ssl=on", "-c", "ssl_cert_file="+home.cert, "-c", "ssl_key_file="+home.key)
	log, err := os.Create(filepath.Join(home.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // fast shutdown, which ends its processes
		_ = server.Wait()
		log.Close()
	})
	testkit.WaitFor(t, "PostgreSQL", func() bool {
		return exec.CommandContext(t.Context(), filepath.Join(bin, "pg_isready"), "-q", "-h", host, "-p", port).Run() == nil
	})
	return addr
}

// TestPostgres routes clients of PostgreSQL by the server name, with their own TLS and
// with the node's.
func TestPostgres(t *testing.T) {
	t.Parallel()
	requirePeer(t, "psql")
	ca := newAuthority(t, "ca")
	inside, outside := ca.issue("db.example.com"), ca.issue("db.example.com", "plain.example.com")
	to := []string{startPostgres(t, inside)}
	hosts := []string{"hosts:", "- {names: [db.example.com], service: db}", "- {names: [plain.example.com], service: plain}"}
	n := startNode(t, certificate("db", outside)+
		service("db", to, fmt.Sprintf("tls: {ca: %q, serverName: db.example.com}", ca.file))+service("plain", to)+
		listener("pass", "protocol: tls", "tls: {startTLS: postgres}", "hosts:",
			"- {names: [db.example.com, plain.example.com], service: plain}")+
		listener("end", append([]string{"protocol: tls", "tls: {mode: terminate, startTLS: postgres, certificateRefs: [db]}"}, hosts...)...))
	psql := func(at, host, mode string, sql string) result {
		_, port, _ := net.SplitHostPort(n.addr(at))
		return peer(t, "", "psql", "-X", "-A", "-t", "-c", sql, fmt.Sprintf(
			"host=%s hostaddr=127.0.0.1 port=%s user=me dbname=postgres sslmode=%s sslrootcert=%s", host, port, mode, ca.file))
	}
	// What the server says of its own connection, and a result of some MB.
	const sql = "select ssl, length(repeat('x', 5000000)) from pg_stat_ssl where pid = pg_backend_pid()"
	for _, c := range []struct{ at, host, ssl string }{
		{"pass", "db.example.com", "t"}, {"end", "db.example.com", "t"}, {"end", "plain.example.com", "f"},
	} {
		for _, mode := range []string{"require", "verify-full"} {
			if r := psql(c.at, c.host, mode, sql); r.out != c.ssl+"|5000000\n" {
				t.Errorf("%s, %s, %s: %+v", c.at, c.host, mode, r)
			}
		}
	}
	// The endpoint's own certificate shows: it lacks that name.
	if r := psql("pass", "plain.example.com", "verify-full", sql); r.code == 0 || !strings.Contains(r.err, "does not match host name") {
		t.Errorf("a name that the endpoint has no certificate for: %+v", r)
	}
	for _, at := range []string{"pass", "end"} {
		if r := psql(at, "other.example.com", "require", sql); r.code == 0 {
			t.Errorf("%s: a name without a route: %+v", at, r)
		}
		if r := psql(at, "db.example.com", "disable", sql); r.code == 0 || !strings.Contains(r.err, "sslmode=require") {
			t.Errorf("%s, without TLS: %+v", at, r)
		}
		c := dial(t, n.addr(at))
		mustWrite(t, c, "\x00\x00\x00\x11\x00\x03\x00\x00user\x00me\x00\x00")
		n.wantEnd(c, "tls_required")
	}
	if got := n.run("explain", "--listener", "pass", "--sni", "db.example.com"); !strings.Contains(got.out, "PostgreSQL's SSLRequest") {
		t.Errorf("explain: %+v", got)
	}
}
