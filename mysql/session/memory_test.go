package session_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
	"penstock/mysql/session"
	"penstock/mysql/wire"
	"penstock/netio"
)

// little is an engine with the smallest memory budget, 1 MiB.
func little(_ *rig, c *netio.Config) { c.MemoryBudget = 1 << 20 }

func (r *rig) waitUsed(what string, ok func(n int64) bool) {
	r.t.Helper()
	testkit.WaitFor(r.t, what, func() bool { return ok(r.Stats().BudgetUsed) })
}

func none(n int64) bool { return n == 0 }

// An idle session keeps its struct, and where it is compressed another small one.
func TestSessionSize(t *testing.T) {
	if n := unsafe.Sizeof(session.Session{}); n > 288 {
		t.Errorf("a session has %d bytes", n)
	}
	for name, a := range map[string]wire.Capabilities{"plain": 0, "zlib": wire.Compress, "zstd": wire.ZstdCompressionAlgorithm} {
		t.Run(name, func(t *testing.T) {
			here, there := pair(t, nil)
			r := newRig(t, nil, here.Addr())
			c := mustLogIn(t, r.addr(), compressed(a))
			if got := c.query("SELECT LENGTH('" + strings.Repeat("x", 2<<20) + "') AS n"); got != fmt.Sprint(2<<20) {
				t.Fatal(got)
			}
			r.last().mustMove(there.Addr())
			c.mustRun(wire.ComPing, "")
			h := r.last()
			h.do(func() {
				if n := session.Holding(h.session); n != 0 {
					t.Errorf("it holds %d bytes besides", n)
				}
			})
			r.waitUsed("nothing to be charged", none)
		})
	}
}

// What a session holds is charged, and given back when it holds it no more.
func TestMemoryIsCharged(t *testing.T) {
	here, there := pair(t, nil)
	r := newRig(t, nil, here.Addr())

	login := connect(t, r.addr())
	login.mustRead()
	l := wire.Login{Capabilities: clientCaps | wire.ConnectAttrs, Collation: 45, User: "root", Plugin: "mysql_native_password"}
	l.Attributes = wire.AppendString(wire.AppendString(nil, "k"), strings.Repeat("v", 30_000))
	whole := wire.AppendPacket(nil, 1, wire.AppendLogin(nil, &l))
	login.caps = clientCaps
	login.send(whole[:25_000])
	r.waitUsed("the login to be charged", func(n int64) bool { return n >= 25_000 })
	login.send(whole[25_000:])
	if p := login.mustRead(); p[0] == 0xfe {
		login.write(3, nil)
		login.mustRead()
	}
	r.waitUsed("the login to be given back", none)

	user := string(wire.AppendChangeUser(nil, &wire.ChangeUser{User: strings.Repeat("u", 20_000)}, clientCaps)[1:])
	login.send(wire.AppendPacket(nil, 0, append([]byte{byte(wire.ComChangeUser)}, user...))[:15_000])
	r.waitUsed("COM_CHANGE_USER to be charged", func(n int64) bool { return n >= 15_000 })
	_ = login.net.Close()
	r.waitUsed("it to be given back", none)

	c := mustLogIn(t, r.addr(), nil)
	c.mustRun(wire.ComPing, "")
	asked, goOn := make(chan struct{}, 1), make(chan struct{})
	here.SetHook(func(e mysqltest.Event) mysqltest.Action {
		if e.Step != mysqltest.OnShowStates {
			return mysqltest.Action{}
		}
		asked <- struct{}{}
		return mysqltest.Action{Wait: goOn}
	})
	h := r.last()
	h.move(there.Addr())
	testkit.Receive(t, "SHOW SESSION_STATES", asked)
	c.command(wire.ComQuery, "SELECT LENGTH('"+strings.Repeat("x", 20_000)+"') AS n")
	r.waitUsed("the command to be charged", func(n int64) bool { return n >= 20_000 })
	close(goOn)
	if err := testkit.Receive(t, "the move", h.moved); err != nil {
		t.Fatal(err)
	}
	if all, err := c.rows(); err != nil || len(all) != 1 || all[0] != "20000" {
		t.Errorf("%q, %v", all, err)
	}
	r.waitUsed("it to be given back", none)
}

// States for which there is no memory fail the move, as do those that are too many.
func TestStatesThatAreTooLarge(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*rig, *netio.Config)
		size   int
		want   string
	}{"no memory": {little, 3 << 20, "no memory"}, "16 MiB": {nil, 17 << 20, "more than 16 MiB"}} {
		t.Run(name, func(t *testing.T) {
			here, there := pair(t, nil)
			here.SetHook(on(mysqltest.OnShowStates, mysqltest.Action{States: &wire.States{JSON: strings.Repeat("x", tt.size), Token: []byte("t")}}))
			r := newRig(t, tt.change, here.Addr())
			c := mustLogIn(t, r.addr(), nil)
			c.mustRun(wire.ComQuery, "SET @a = 5")
			h := r.last()
			h.move(there.Addr())
			if err := testkit.Receive(t, "the move", h.moved); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if got := c.query("SELECT @a"); got != "5" {
				t.Errorf("@a is %s", got)
			}
			r.waitUsed("nothing to be charged", none)
		})
	}
}

// A frame that can never have memory ends its session, with an error that says so.
func TestFrameWithoutMemory(t *testing.T) {
	here, _ := pair(t, nil)
	r := newRig(t, little, here.Addr())
	c := mustLogIn(t, r.addr(), compressed(wire.Compress))
	c.mustRun(wire.ComPing, "")
	random := make([]byte, 4<<20)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	go func() {
		_, _ = c.net.Write(append([]byte{0, 0, 0x40, 0, 0xff, 0xff, 0xff}, random...))
	}()
	c.reader.Seq = 1
	if p, err := c.read(); err != nil || code(c.parseOK(p)) != 1041 {
		t.Errorf("%q, %v; want error 1041", p, err)
	}
	r.mustEnd(netio.LimitMemory)
	r.waitUsed("nothing to be charged", none)
}

// Logins that nobody has memory for wait, and large ones are refused. Those that wait go
// on when there is memory.
func TestLoginsWithoutMemory(t *testing.T) {
	here, _ := pair(t, nil)
	r := newRig(t, little, here.Addr())
	l := wire.Login{Capabilities: clientCaps | wire.ConnectAttrs, Collation: 45, User: "root", Plugin: "mysql_native_password"}
	l.Attributes = wire.AppendString(wire.AppendString(nil, "k"), strings.Repeat("v", 60_000))
	whole := wire.AppendPacket(nil, 1, wire.AppendLogin(nil, &l))
	var all []*client
	for range 40 {
		c := connect(t, r.addr())
		c.mustRead()
		c.send(whole[:len(whole)-1])
		all = append(all, c)
	}
	for range 10 { // of 40 * 60 KB, 1 MiB has room at once
		r.mustEnd(netio.LimitMemory)
	}
	if used := r.Stats().BudgetUsed; used > 1<<20 {
		t.Errorf("%d bytes are charged", used)
	}
	for _, c := range all {
		_ = c.net.Close()
	}
	r.waitUsed("all to be given back", none)
	mustLogIn(t, r.addr(), nil)
}

// A session that waits for memory is not read, and goes on when there is some.
func TestSessionWaitsForMemory(t *testing.T) {
	here, _ := pair(t, nil)
	r := newRig(t, little, here.Addr())
	c := mustLogIn(t, r.addr(), nil)
	h := r.last()
	h.do(func() {
		for h.conn.Reserve(netio.Bulk, 1<<10) {
		}
	})
	change := &wire.ChangeUser{User: strings.Repeat("u", 60_000), Plugin: "mysql_native_password"}
	whole := wire.AppendPacket(nil, 0, wire.AppendChangeUser(nil, change, clientCaps))
	c.send(whole[:20_000])
	in := func() (n uint64) { h.do(func() { n, _ = h.conn.Bytes() }); return n }
	testkit.WaitFor(t, "it waits for memory", func() (waits bool) {
		h.do(func() { waits = h.session.Holds() })
		return waits
	})
	before := in()
	c.send(whole[20_000:])
	for range 100 { // of the loop's rounds
		if n := in(); n > before {
			t.Fatalf("%d bytes were read", n-before)
		}
	}
	h.do(func() { h.conn.Release(1 << 19) })
	if p := c.mustRead(); p[0] != 0xfe { // a switch to the plugin of no account
		t.Errorf("%q answers COM_CHANGE_USER", p)
	}
	h.do(func() {
		if h.session.Holds() {
			t.Error("it still waits")
		}
	})
}
