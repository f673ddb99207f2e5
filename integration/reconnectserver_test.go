package integration

import (
	"bufio"
	"crypto/sha1"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/mysql/wire"
)

// rejoinPassword is that of the accounts; no node may show it.
const rejoinPassword = "Garnet-app-pass"

// rejoinAccounts creates the users and what the sessions use.
var rejoinAccounts = []string{
	"CREATE DATABASE d", "CREATE DATABASE other", "USE d",
	"CREATE USER app IDENTIFIED BY '" + rejoinPassword + "'", "GRANT ALL ON *.* TO app", "CREATE ROLE r", "GRANT r TO app",
	"CREATE USER busy IDENTIFIED BY '" + rejoinPassword + "'", "GRANT ALL ON d.* TO busy",
	"CREATE USER plain IDENTIFIED BY '" + rejoinPassword + "'", "GRANT ALL ON d.* TO plain",
	"CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, b INT) AUTO_INCREMENT = 41", "CREATE TABLE busy (id INT PRIMARY KEY, b INT)",
	"CREATE TABLE triggered (b INT)", "CREATE TRIGGER t BEFORE INSERT ON triggered FOR EACH ROW SET @t = 1",
	"CREATE PROCEDURE p() SELECT 1",
	"CREATE FUNCTION f() RETURNS INT RETURN 1",
	"CREATE FUNCTION sets() RETURNS INT BEGIN SET SESSION lock_wait_timeout = 77; RETURN 1; END",
	"CREATE FUNCTION tables() RETURNS INT BEGIN CREATE TEMPORARY TABLE x (a INT); RETURN 1; END",
	"CREATE VIEW v AS SELECT 1 AS a", "CREATE VIEW setting AS SELECT sets() AS a", "CREATE VIEW tabling AS SELECT tables() AS a",
}

// startRejoinServer starts a MariaDB server with rejoinAccounts, and returns its address
// and a session as root.
func startRejoinServer(t *testing.T, p pair) (addr string, root *rawSession) {
	t.Helper()
	addr = runMariaDB(t, p, "--max-connections=500")
	root = openRaw(t, addr, "root", "", nil)
	for _, statement := range rejoinAccounts {
		root.must(statement)
	}
	return addr, root
}

// rawSession is a client of MySQL's protocol that sends any command.
type rawSession struct {
	t   testing.TB
	c   net.Conn
	in  *bufio.Reader
	seq byte
}

const rawCapabilities = wire.LongPassword | wire.Protocol41 | wire.Transactions | wire.SecureConnection | wire.PluginAuth | wire.MultiStatements |
	wire.MultiResults | wire.PSMultiResults

// openRaw logs in, with TLS unless config is nil.
func openRaw(t testing.TB, addr, user, password string, config *tls.Config) *rawSession {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &rawSession{t: t, c: c, in: bufio.NewReader(c)}
	t.Cleanup(func() { s.c.Close() })
	_ = c.SetDeadline(time.Now().Add(4 * testkit.Patience))
	g, err := wire.ParseGreeting(s.read())
	if err != nil {
		t.Fatal(err)
	}
	l := wire.Login{Capabilities: rawCapabilities, MaxPacket: 1 << 24, Collation: 45, User: user, Plugin: g.Plugin, Auth: nativeAnswer(password, g.Salt[:])}
	if config != nil {
		l.Capabilities |= wire.SSL
		s.send(wire.AppendSSLRequest(nil, &l))
		s.c = tls.Client(c, config)
		s.in = bufio.NewReader(s.c)
	}
	s.send(wire.AppendLogin(nil, &l))
	for {
		switch p := s.read(); {
		case wire.IsOK(p):
			return s
		case p[0] == 0xfe:
			a, err := wire.ParseAuthSwitch(p)
			if err != nil {
				t.Fatal(err)
			}
			s.send(nativeAnswer(password, a.Data[:20]))
		default:
			t.Fatalf("login of %s: %q", user, p)
		}
	}
}

func nativeAnswer(password string, salt []byte) []byte {
	if password == "" {
		return nil
	}
	once := sha1.Sum([]byte(password))
	twice := sha1.Sum(once[:])
	mask := sha1.Sum(append(append([]byte(nil), salt...), twice[:]...))
	for i := range once {
		once[i] ^= mask[i]
	}
	return once[:]
}

func (s *rawSession) send(payload []byte) {
	s.t.Helper()
	if _, err := s.c.Write(wire.AppendPacket(nil, s.seq, payload)); err != nil {
		s.t.Fatal(err)
	}
	s.seq++
}

// read reads a packet, of which the session's tests have none that continues.
func (s *rawSession) read() []byte {
	s.t.Helper()
	header := make([]byte, wire.HeaderSize)
	_, err := io.ReadFull(s.in, header)
	n, seq := wire.ParseHeader(header)
	p := make([]byte, n)
	if err == nil {
		_, err = io.ReadFull(s.in, p)
	}
	if err != nil || n == 0 {
		s.t.Fatalf("a packet of %d bytes: %v", n, err)
	}
	s.seq = seq + 1
	return p
}

// query returns the first value of the last row of all results, and the server's error.
func (s *rawSession) query(text string) (value string, err error) {
	s.t.Helper()
	s.seq = 0
	s.send(append([]byte{byte(wire.ComQuery)}, text...))
	for {
		p := s.read()
		var status wire.Status
		switch {
		case wire.IsError(p):
			e, err := wire.ParseError(p)
			if err != nil {
				s.t.Fatal(err)
			}
			return "", e
		case wire.IsOK(p):
			ok, err := wire.ParseOK(p, rawCapabilities)
			if err != nil {
				s.t.Fatal(err)
			}
			status = ok.Status
		default:
			var err error
			if value, status, err = s.rows(p); err != nil {
				return "", err
			}
		}
		if status&wire.MoreResults == 0 {
			return value, nil
		}
	}
}

func (s *rawSession) rows(p []byte) (value string, status wire.Status, err error) {
	s.t.Helper()
	for range int(p[0]) + 1 { // columns and EOF
		s.read()
	}
	for {
		p := s.read()
		switch {
		case wire.IsError(p):
			e, _ := wire.ParseError(p)
			return "", 0, e
		case wire.IsRowsEnd(p[0], len(p), rawCapabilities):
			_, status, err = wire.ParseEOF(p)
			return value, status, err
		case p[0] == 0xfb:
			value = "NULL"
		default:
			v, _, _ := wire.String(p)
			value = string(v)
		}
	}
}

// must is query for what must succeed.
func (s *rawSession) must(text string) string {
	s.t.Helper()
	v, err := s.query(text)
	if err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	return v
}

// prepare prepares a statement without parameters and returns its ID.
func (s *rawSession) prepare(text string) (id []byte) {
	s.t.Helper()
	s.seq = 0
	s.send(append([]byte{byte(wire.ComStmtPrepare)}, text...))
	p := s.read()
	if !wire.IsOK(p) || len(p) < 9 {
		s.t.Fatalf("prepare: %q", p)
	}
	for range int(p[5]) + min(int(p[5]), 1) {
		s.read()
	}
	return p[1:5]
}

// close closes a prepared statement.
func (s *rawSession) close(id []byte) {
	s.t.Helper()
	s.seq = 0
	s.send(append([]byte{byte(wire.ComStmtClose)}, id...))
}

// reset resets the session.
func (s *rawSession) reset() {
	s.t.Helper()
	s.seq = 0
	s.send([]byte{byte(wire.ComResetConnection)})
	if p := s.read(); !wire.IsOK(p) {
		s.t.Fatalf("reset: %q", p)
	}
}

// at returns the port of the server that the session is at.
func (s *rawSession) at() string {
	s.t.Helper()
	return s.must("SELECT @@port")
}

// waitAt waits until the session is at the server with an address.
func (s *rawSession) waitAt(what, addr string) {
	s.t.Helper()
	testkit.WaitFor(s.t, what, func() bool { return strings.HasSuffix(addr, ":"+s.at()) })
}
