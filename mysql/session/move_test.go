package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
	"penstock/mysql/wire"
)

// on is a hook that acts at one step.
func on(step mysqltest.Step, a mysqltest.Action) mysqltest.Hook {
	return func(e mysqltest.Event) mysqltest.Action {
		if e.Step == step {
			return a
		}
		return mysqltest.Action{}
	}
}

// onQuery is a hook that acts at one statement.
func onQuery(text string, a mysqltest.Action) mysqltest.Hook {
	return func(e mysqltest.Event) mysqltest.Action {
		if e.Step == mysqltest.OnCommand && e.Command == wire.ComQuery && string(e.Payload[1:]) == text {
			return a
		}
		return mysqltest.Action{}
	}
}

const commitText = "COMMIT AND NO CHAIN NO RELEASE"

// A statement that ends a transaction by beginning another one is where a session moves
// that would never be without one.
func TestBeginMoves(t *testing.T) {
	for name, a := range map[string]wire.Capabilities{"plain": 0, "zlib": wire.Compress} {
		t.Run(name, func(t *testing.T) {
			here, there := pair(t, nil)
			r := newRig(t, nil, here.Addr())
			c := mustLogIn(t, r.addr(), compressed(a))
			c.mustRun(wire.ComQuery, "BEGIN")
			c.mustRun(wire.ComQuery, "INSERT INTO counter VALUES ('x', 3)")
			h := r.last()
			h.move(there.Addr())
			c.mustRun(wire.ComQuery, "INSERT INTO counter VALUES ('x', 4)") // no safe point
			if n := there.Conns(); n != 0 {
				t.Errorf("%d connections at the new server within a transaction", n)
			}
			c.mustRun(wire.ComQuery, "\n start transaction ;")
			if err := testkit.Receive(t, "the move", h.moved); err != nil {
				t.Fatal(err)
			}
			if got := here.Store().Counter("x"); got != 7 {
				t.Errorf("the counter is %d after the commit, want 7", got)
			}
			c.mustRun(wire.ComQuery, "INSERT INTO counter VALUES ('x', 5)")
			if got := here.Store().Counter("x"); got != 7 {
				t.Errorf("the counter is %d within the new transaction, want 7", got)
			}
			c.mustRun(wire.ComQuery, "COMMIT")
			if got := here.Store().Counter("x"); got != 12 {
				t.Errorf("the counter is %d at the end, want 12", got)
			}
			if q := there.Queries(); !slices.Contains(q, "\n start transaction ;") || slices.Contains(q, commitText) {
				t.Errorf("the new server got %q", q)
			}
			if q := here.Queries(); strings.Count(strings.Join(q, "\n"), "COMMIT") != 1 || slices.Contains(q, "\n start transaction ;") {
				t.Errorf("the old server got %q", q)
			}
		})
	}
}

// If the commit fails, BEGIN does, and nothing moves. If the move does, BEGIN goes on.
func TestBeginThatDoesNotMove(t *testing.T) {
	conflict := &wire.Error{Code: 9007, State: "HY000", Message: "Write conflict"}
	for name, tt := range map[string]struct {
		here, there mysqltest.Hook
		to          bool
		code        uint16
	}{
		"the commit fails":    {here: onQuery(commitText, mysqltest.Action{Error: conflict}), to: true, code: 9007},
		"the commit is odd":   {here: onQuery(commitText, mysqltest.Action{Packets: [][]byte{{1}}}), to: true, code: 1156},
		"the server dies":     {here: onQuery(commitText, mysqltest.Action{Close: true}), to: true, code: 1105},
		"another transaction": {here: onQuery(commitText, mysqltest.Action{Packets: [][]byte{wire.AppendOK(nil, &wire.OK{Status: wire.InTransaction}, 0)}}), to: true},
		"no server":           {},
		"the states fail":     {here: on(mysqltest.OnShowStates, mysqltest.Action{Error: conflict}), to: true},
		"the new server dies": {there: on(mysqltest.OnLogin, mysqltest.Action{Close: true}), to: true},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := pair(t, nil)
			here.SetHook(tt.here)
			there.SetHook(tt.there)
			r := newRig(t, nil, here.Addr())
			c := mustLogIn(t, r.addr(), nil)
			c.mustRun(wire.ComQuery, "BEGIN")
			c.mustRun(wire.ComQuery, "INSERT INTO counter VALUES ('x', 3)")
			to := ""
			if tt.to {
				to = there.Addr()
			}
			r.last().move(to)
			if err := c.run(wire.ComQuery, "BEGIN"); code(err) != tt.code || err != nil && tt.code == 0 {
				t.Fatalf("BEGIN: %v, want error %d", err, tt.code)
			}
			if c.seq != 1 {
				t.Errorf("the answer has number %d", c.seq)
			}
			if tt.code != 0 {
				return
			}
			if got := here.Store().Counter("x"); got != 3 {
				t.Errorf("the counter is %d, want 3", got)
			}
			if n := strings.Count(strings.Join(here.Queries(), "\n"), "COMMIT"); n != 1 {
				t.Errorf("%d commits", n)
			}
		})
	}
}

// What commits nothing, or cannot be told, goes to the server as it is.
func TestBeginIsLeftAlone(t *testing.T) {
	here, there := pair(t, nil)
	r := newRig(t, nil, here.Addr())
	c := mustLogIn(t, r.addr(), nil)
	c.mustRun(wire.ComQuery, "BEGIN")
	r.last().move(there.Addr())
	for _, text := range []string{"BEGIN PESSIMISTIC", "START TRANSACTION READ ONLY"} {
		c.mustRun(wire.ComQuery, text)
	}
	// A statement has long data, of which a COMMIT would know nothing.
	c.command(wire.ComStmtPrepare, "SELECT 1")
	for range 2 {
		c.mustRead()
	}
	c.command(wire.ComStmtSendLongData, "\x01\x00\x00\x00\x00\x00x")
	c.mustRun(wire.ComQuery, "BEGIN")
	if q := fmt.Sprint(here.Queries()); strings.Contains(q, "COMMIT") || !strings.Contains(q, "BEGIN PESSIMISTIC") || there.Conns() != 0 {
		t.Errorf("the server got %s", q)
	}
}

// Commands that come during a move wait for its end, however many they are, and more are
// not read than one read brings.
func TestCommandsWaitForTheMove(t *testing.T) {
	for name, tt := range map[string]struct {
		a    wire.Capabilities
		step mysqltest.Step
	}{
		"states": {0, mysqltest.OnShowStates}, "new server": {0, mysqltest.OnSetStates},
		"states, zlib": {wire.Compress, mysqltest.OnShowStates}, "new server, zlib": {wire.Compress, mysqltest.OnSetStates},
	} {
		t.Run(name, func(t *testing.T) {
			a := tt.a
			here, there := pair(t, nil)
			r := newRig(t, nil, here.Addr())
			c := mustLogIn(t, r.addr(), compressed(a))
			asked, goOn := make(chan struct{}, 1), make(chan struct{})
			hook := func(e mysqltest.Event) mysqltest.Action {
				if e.Step != tt.step {
					return mysqltest.Action{}
				}
				asked <- struct{}{}
				return mysqltest.Action{Wait: goOn}
			}
			here.SetHook(hook)
			there.SetHook(hook)
			h := r.last()
			h.move(there.Addr())
			testkit.Receive(t, "the step of the move", asked)
			in := func() (n uint64) { h.do(func() { n, _ = h.conn.Bytes() }); return n }
			before := in()
			const pings = 400_000
			ping, w := wire.AppendPacket(nil, 0, []byte{byte(wire.ComPing)}), c.writer
			go func() {
				for range pings / 1000 {
					if a != 0 {
						w.Seq = 0
						_, _ = c.net.Write(w.Append(nil, slices.Repeat(ping, 1000)))
						continue
					}
					_, _ = c.net.Write(slices.Repeat(ping, 1000))
				}
			}()
			testkit.WaitFor(t, "commands have come", func() bool { return in() > before })
			if n := in(); n > 300<<10 {
				t.Errorf("%d bytes were read during the move", n)
			}
			if n := len(here.Record().Commands); n != 1 {
				t.Errorf("the server got %d commands during the move, want SHOW SESSION_STATES alone", n)
			}
			close(goOn)
			if err := testkit.Receive(t, "the move", h.moved); err != nil {
				t.Fatal(err)
			}
			if a != 0 {
				c.reader.AnySeq = true
			}
			for i := range 2000 {
				if err := c.parseOK(c.mustRead()); err != nil {
					t.Fatalf("ping %d: %v", i, err)
				}
			}
		})
	}
}
