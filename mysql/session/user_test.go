package session_test

import (
	"bytes"
	"crypto/sha1"
	"crypto/subtle"
	"crypto/tls"
	"encoding/binary"
	"slices"
	"testing"

	"penstock/internal/testkit/certs"
	"penstock/mysql/mysqltest"
	"penstock/mysql/session"
	"penstock/mysql/wire"
	"penstock/netio"
)

// nativeProof is the answer of mysql_native_password to a salt.
func nativeProof(salt []byte, password string) []byte {
	once := sha1.Sum([]byte(password))
	twice := sha1.Sum(once[:])
	mask := sha1.Sum(append(bytes.Clone(salt[:20]), twice[:]...))
	subtle.XORBytes(mask[:], mask[:], once[:])
	return mask[:]
}

// changeUser sends COM_CHANGE_USER and answers the server's turns with the password.
func (c *client) changeUser(user, password string) error {
	c.t.Helper()
	c.writer.Seq = 0
	change := &wire.ChangeUser{User: user, Plugin: "mysql_native_password", Auth: []byte("for the salt of the greeting"), Database: "shop", Collation: 45}
	c.write(0, wire.AppendChangeUser(nil, change, c.caps))
	for {
		p, err := c.read()
		if err != nil {
			return err
		}
		if p[0] != 0xfe {
			return c.parseOK(p)
		}
		a, err := wire.ParseAuthSwitch(p)
		if err != nil {
			return err
		}
		answer := append([]byte(password), 0)
		if a.Plugin == "mysql_native_password" {
			answer = nativeProof(a.Data, password)
		}
		c.write(c.seq+1, answer)
	}
}

// accounts have one user for each kind of plugin.
func accounts(c *mysqltest.Config) {
	c.Users = map[string]mysqltest.User{
		"root": {}, "native": {Password: "secret"}, "clear": {Password: "secret", Plugin: "mysql_clear_password"},
		"sha": {Password: "secret", Plugin: "caching_sha2_password"},
	}
}

// COM_CHANGE_USER changes who moves. The server never sees an answer to the salt of the
// proxy, and one that fails changes nothing.
func TestChangeUser(t *testing.T) {
	ca := certs.NewCA("test CA")
	server, clientTLS := ca.Server("db.test"), ca.Client("db.test")
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		for user, plugin := range map[string]string{"native": "mysql_native_password", "clear": "mysql_clear_password"} {
			t.Run(name+" "+user, func(t *testing.T) {
				here, there := pair(t, func(c *mysqltest.Config) {
					accounts(c)
					if secure {
						c.TLS = server
					}
				})
				r := newRig(t, func(r *rig, _ *netio.Config) {
					if secure {
						r.settings.TLS, r.clientTLS, r.profile.TLS = true, server, clientTLS
					}
				}, here.Addr())
				open := func() *client {
					if secure {
						return mustLogInSecurely(t, r.addr(), clientTLS)
					}
					return mustLogIn(t, r.addr(), nil)
				}
				c := open()
				c.mustRun(wire.ComQuery, "SET @a = 1")
				if err := c.changeUser(user, "secret"); err != nil {
					t.Fatal(err)
				}
				seen := here.Record().Logins
				if last := seen[len(seen)-1]; !last.ChangeUser || last.Plugin != plugin || last.Login.Database != "shop" || last.Login.Plugin != "auth_unknown_plugin" {
					t.Errorf("the server saw %+v", last)
				}
				if got := c.query("SELECT DATABASE()"); got != "shop" {
					t.Errorf("the database is %s", got)
				}
				c.mustRun(wire.ComQuery, "SET @a = 2")
				r.last().mustMove(there.Addr())
				if got := c.query("SELECT @a"); got != "2" {
					t.Errorf("@a is %s", got)
				}
				moved := there.Record().Logins
				if last := moved[len(moved)-1]; last.Login.User != user || last.TLS != secure {
					t.Errorf("%q moved, with TLS %t", last.Login.User, last.TLS)
				}
				if err := open().changeUser(user, "wrong"); code(err) != 1045 {
					t.Errorf("a wrong password: %v", err)
				}
			})
		}
	}
}

// mustLogInSecurely logs in with TLS.
func mustLogInSecurely(t *testing.T, addr string, config *tls.Config) *client {
	t.Helper()
	c := connect(t, addr)
	c.mustRead()
	l := wire.Login{Capabilities: clientCaps | wire.SSL, MaxPacket: 1 << 24, Collation: 45, User: "root", Plugin: "mysql_native_password"}
	c.write(1, wire.AppendSSLRequest(nil, &l))
	c.net, c.caps = tls.Client(c.net, config), clientCaps
	c.write(2, wire.AppendLogin(nil, &l))
	p := c.mustRead()
	if p[0] == 0xfe {
		c.write(c.seq+1, nil)
		p = c.mustRead()
	}
	if err := c.parseOK(p); err != nil {
		t.Fatal(err)
	}
	return c
}

// A server such as MariaDB goes on with the user of before when COM_CHANGE_USER fails.
func TestChangeUserThatFailsChangesNothing(t *testing.T) {
	here, there := pair(t, accounts)
	here.SetHook(func(e mysqltest.Event) mysqltest.Action {
		if e.Step == mysqltest.OnCommand && e.Command == wire.ComChangeUser {
			return mysqltest.Action{Error: &wire.Error{Code: 1045, State: "28000", Message: "no"}}
		}
		return mysqltest.Action{}
	})
	r := newRig(t, nil, here.Addr())
	c := mustLogIn(t, r.addr(), nil)
	if err := c.changeUser("native", "secret"); code(err) != 1045 {
		t.Fatal(err)
	}
	r.last().mustMove(there.Addr())
	if last := there.Record().Logins[0]; last.Login.User != "root" || !last.OK {
		t.Errorf("%q moved", last.Login.User)
	}
	c.mustRun(wire.ComPing, "")
}

// A client with TLS would send its password in the clear to a server without.
func TestChangeUserWithMixedTLS(t *testing.T) {
	ca := certs.NewCA("test CA")
	here, _ := pair(t, accounts)
	r := newRig(t, func(r *rig, _ *netio.Config) { r.settings.TLS, r.clientTLS = true, ca.Server("db.test") }, here.Addr())
	c := mustLogInSecurely(t, r.addr(), ca.Client("db.test"))
	if err := c.changeUser("sha", "secret"); code(err) != 1251 {
		t.Errorf("%v, want error 1251", err)
	}
	r.mustEnd(session.LoginRefused)
}

// COM_RESET_CONNECTION and COM_CHANGE_USER leave no statement that waits.
func TestResetLetsMove(t *testing.T) {
	for name, reset := range map[string]func(c *client) error{
		"COM_RESET_CONNECTION": func(c *client) error { return c.run(wire.ComResetConnection, "") },
		"COM_CHANGE_USER":      func(c *client) error { return c.changeUser("native", "secret") },
		"COM_STMT_RESET":       func(c *client) error { return c.run(wire.ComStmtReset, "\x01\x00\x00\x00") },
		"COM_STMT_CLOSE": func(c *client) error {
			c.command(wire.ComStmtClose, "\x01\x00\x00\x00")
			return c.run(wire.ComPing, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := pair(t, accounts)
			r := newRig(t, nil, here.Addr())
			c := mustLogIn(t, r.addr(), nil)
			c.command(wire.ComStmtPrepare, "SELECT 1")
			for range 2 {
				c.mustRead()
			}
			id := binary.LittleEndian.AppendUint32(nil, 1)
			c.command(wire.ComStmtSendLongData, string(slices.Concat(id, []byte{0, 0, 'x'})))
			c.mustRun(wire.ComPing, "")
			h := r.last()
			h.do(func() {
				if err := h.session.Safe(); err != session.ErrWaiting {
					t.Errorf("with long data: %v", err)
				}
			})
			if err := reset(c); err != nil {
				t.Fatal(err)
			}
			h.mustMove(there.Addr())
		})
	}
}

// A session of which more statements wait than can be known does not move until all are
// reset.
func TestManyStatementsWait(t *testing.T) {
	here, there := pair(t, accounts)
	r := newRig(t, nil, here.Addr())
	c := mustLogIn(t, r.addr(), nil)
	for id := range uint32(1025) {
		c.command(wire.ComStmtSendLongData, string(append(binary.LittleEndian.AppendUint32(nil, id), 0, 0, 'x')))
	}
	c.mustRun(wire.ComPing, "")
	for id := range uint32(1025) {
		c.command(wire.ComStmtClose, string(binary.LittleEndian.AppendUint32(nil, id)))
	}
	c.mustRun(wire.ComPing, "")
	h := r.last()
	h.do(func() {
		if err := h.session.Safe(); err != session.ErrStuck {
			t.Errorf("%v, want %v", err, session.ErrStuck)
		}
	})
	c.mustRun(wire.ComResetConnection, "")
	h.mustMove(there.Addr())
}
