package session_test

import (
	"bytes"
	"net"
	"slices"
	"testing"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
	"penstock/mysql/wire"
	"penstock/netio"
)

const loadFile = "LOAD DATA LOCAL INFILE 'f' INTO TABLE loaded"

// refuseFiles makes a server answer the first packet of each file with an error, and pass
// over the rest.
func refuseFiles(s *mysqltest.Server) {
	s.SetHook(func(e mysqltest.Event) mysqltest.Action {
		if e.Step == mysqltest.OnFile {
			return mysqltest.Action{Error: &wire.Error{Code: 1114, State: "HY000", Message: "The table is full"}}
		}
		return mysqltest.Action{}
	})
}

// askForFile sends LOAD DATA LOCAL, and reads the request for the file.
func (c *client) askForFile() {
	c.t.Helper()
	c.command(wire.ComQuery, loadFile)
	if p := c.mustRead(); p[0] != 0xfb {
		c.t.Fatalf("%q in place of the request for a file", p)
	}
}

// An error before the end of a client's file is its answer: no other one follows the
// file, the next command does not wait for it, and the session moves.
func TestErrorBeforeTheEndOfAFile(t *testing.T) {
	for name, compression := range map[string]wire.Capabilities{"plain": 0, "compressed": wire.Compress} {
		t.Run(name, func(t *testing.T) {
			here, there := pair(t, nil)
			refuseFiles(here)
			r := newRig(t, nil, here.Addr())
			c := mustLogIn(t, r.addr(), func(l *wire.Login) { l.Capabilities |= compression })
			h := r.last()
			wantCode := func() {
				t.Helper()
				if err := c.parseOK(c.mustRead()); code(err) != 1114 {
					t.Fatalf("the file was answered with %v", err)
				}
			}

			// The client reads the error before it has sent the rest.
			c.askForFile()
			seq := c.writer.Seq
			if compression == 0 {
				seq = 2
			}
			c.write(seq, []byte("line\n"))
			wantCode()
			h.do(func() {
				if err := h.session.Safe(); err == nil {
					t.Error("the session would move within the file")
				}
			})
			if compression != 0 {
				seq = c.writer.Seq - 1
			}
			c.write(seq+1, []byte("line\n"))
			c.write(seq+2, nil)
			c.mustRun(wire.ComPing, "")

			// It does not, and the next command comes with the file.
			if compression == 0 {
				c.askForFile()
				c.send(slices.Concat(
					wire.AppendPacket(nil, 2, bytes.Repeat([]byte("line\n"), 50_000)), wire.AppendPacket(nil, 3, []byte("line\n")),
					wire.AppendPacket(nil, 4, nil), wire.AppendPacket(nil, 0, []byte{byte(wire.ComPing)}),
				))
				wantCode()
				if err := c.parseOK(c.mustRead()); err != nil {
					t.Errorf("a ping: %v", err)
				}
			}

			// The end of the file is a safe point, without another command.
			c.askForFile()
			seq = 2
			if compression != 0 {
				seq = c.writer.Seq
			}
			c.write(seq, []byte("line\n"))
			wantCode()
			if compression != 0 {
				seq = c.writer.Seq - 1
			}
			h.move(there.Addr())
			c.write(seq+1, nil)
			testkit.WaitFor(t, "the session to move", func() bool { return there.Conns() == 1 && here.Conns() == 0 })
			c.mustRun(wire.ComPing, "")
		})
	}
}

// A client that goes away within its file, or within a command, leaves no session behind.
func TestEndWithinAFile(t *testing.T) {
	for name, begin := range map[string]func(c *client){
		"before the file": func(c *client) { c.askForFile() },
		"in the file":     func(c *client) { c.askForFile(); c.write(2, []byte("line\n")) },
		"in a packet":     func(c *client) { c.askForFile(); c.send([]byte{9, 0, 0, 2, 'l'}) },
		"in a command":    func(c *client) { c.send([]byte{9, 0, 0, 0, byte(wire.ComQuery), 'S'}) },
		"behind another": func(c *client) {
			c.send(append(wire.AppendPacket(nil, 0, []byte{byte(wire.ComPing)}), 90, 0, 0, 0, byte(wire.ComQuery), 'S', 'E'))
		},
	} {
		t.Run(name, func(t *testing.T) {
			here, _ := pair(t, nil)
			r := newRig(t, nil, here.Addr())
			c := mustLogIn(t, r.addr(), nil)
			begin(c)
			if err := c.net.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			r.mustEnd(netio.ClientFIN)
			testkit.WaitFor(t, "the server's end", func() bool { return here.Conns() == 0 })
		})
	}
}
