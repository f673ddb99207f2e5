package dataplane

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/mysql/wire"
)

// rawMySQL is a client that sends bytes as the test wants them.
type rawMySQL struct {
	t *testing.T
	net.Conn
}

// dialRawMySQL logs in as root, without a password.
func dialRawMySQL(t *testing.T, addr string) rawMySQL {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, testkit.Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	r := rawMySQL{t, c}
	r.read()
	r.write(wire.AppendPacket(nil, 1, wire.AppendLogin(nil, &wire.Login{
		Capabilities: wire.Protocol41 | wire.PluginAuth | wire.SecureConnection, MaxPacket: wire.MaxPayload, User: "root", Plugin: "mysql_native_password",
	})))
	if p, seq := r.read(); len(p) > 0 && p[0] == 0xfe {
		r.write(wire.AppendPacket(nil, seq+1, nil))
		p, _ = r.read()
		r.wantOK(p)
	}
	return r
}

func (r rawMySQL) write(p []byte) {
	r.t.Helper()
	if _, err := r.Write(p); err != nil {
		r.t.Fatal(err)
	}
}

func (r rawMySQL) read() (payload []byte, seq byte) {
	r.t.Helper()
	head := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(r, head); err != nil {
		r.t.Fatal(err)
	}
	n, seq := wire.ParseHeader(head)
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		r.t.Fatal(err)
	}
	return payload, seq
}

func (r rawMySQL) wantOK(p []byte) {
	r.t.Helper()
	if !wire.IsOK(p) {
		r.t.Fatalf("%q in place of OK", p)
	}
}

// Commands are found wherever the bytes of one read end.
func TestMySQLCommandsInAnyPieces(t *testing.T) {
	servers := mysqlServers(t, 1, nil)
	c := dialRawMySQL(t, start(t, mysqlListener+mysqlService("tidb", "", servers[0])).at(t, "db"))
	command := func(first wire.Command, body string) []byte {
		return wire.AppendPacket(nil, 0, append([]byte{byte(first)}, body...))
	}
	execute := func(body string, cut int) { // and its parameter, a blob
		t.Helper()
		c.write(command(wire.ComStmtPrepare, "SET @a = ?"))
		if p, _ := c.read(); !wire.IsOK(p) {
			t.Fatalf("%q in place of a statement", p)
		}
		for range 2 { // the parameter's definition and EOF
			c.read()
		}
		data := command(wire.ComStmtSendLongData, body)
		all := append(data, command(wire.ComStmtExecute, body[:4]+"\x00\x01\x00\x00\x00\x00\x01\xfc\x00")...)
		c.write(all[:cut])
		c.write(all[cut:])
		p, _ := c.read()
		c.wantOK(p)
	}
	for cut := 1; cut < 1010; cut += 20 {
		execute(string([]byte{byte(1 + cut/20)})+"\x00\x00\x00"+"\x00\x00"+strings.Repeat("x", 1000), cut)
	}

	set := command(wire.ComQuery, "SET @a = '"+strings.Repeat("y", 100)+"'")
	ping := command(wire.ComPing, "")
	for cut := 1; cut < len(set); cut++ {
		c.write(set[:cut])
		c.write(append(append([]byte(nil), set[cut:]...), ping...))
		for range 2 {
			p, _ := c.read()
			c.wantOK(p)
		}
	}
}

// A command without a byte ends the connection at once.
func TestMySQLCommandWithoutAByte(t *testing.T) {
	servers := mysqlServers(t, 1, nil)
	c := dialRawMySQL(t, start(t, mysqlListener+mysqlService("tidb", "", servers[0])).at(t, "db"))
	c.write(make([]byte, wire.HeaderSize))
	if p, _ := c.read(); !wire.IsError(p) {
		t.Errorf("%q in place of an error", p)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Error(err)
	}
}
