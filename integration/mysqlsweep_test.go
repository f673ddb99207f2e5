package integration

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"penstock/mysql/mysqltest"
	"penstock/mysql/wire"
)

// What differs behind a proxy, with the reason. Everything else in an answer is the same,
// packet for packet. (Greetings differ in salt, connection number and capabilities.)
const (
	differsCommand = "an unknown command ends the connection: nobody knows how its answer ends"
	differsFraming = "a command without a byte, with a packet number other than 0, or a COM_CHANGE_USER that cannot be read ends the connection"
	differsSHA2    = "caching_sha2_password without the cache needs TLS on both sides or on none"
	differsGuess   = "the server always names the plugin of the account, also where the client guessed it: two packets more"
	differsOld     = "a client without CLIENT_PLUGIN_AUTH is refused"
)

// sweepCaps are combinations of what a client may ask for.
var sweepCaps = []wire.Capabilities{
	0, wire.DeprecateEOF, wire.MultiStatements | wire.MultiResults | wire.PSMultiResults,
	wire.DeprecateEOF | wire.MultiStatements | wire.MultiResults | wire.PSMultiResults | wire.LocalFiles | wire.FoundRows | wire.ConnectAttrs |
		wire.PluginAuthLenencClientData | wire.CanHandleExpiredPasswords | wire.LongFlag,
	wire.MultiStatements | wire.MultiResults | wire.PSMultiResults | wire.LocalFiles | wire.FoundRows | wire.ConnectAttrs | wire.IgnoreSpace | wire.NoSchema,
}

// loginNotes returns what a login was answered: all packets, and the payload of the last.
func loginNotes(t *testing.T, addr string, l wireLogin) (all, last string) {
	t.Helper()
	c, err := dialWire(addr, l)
	if c == nil {
		t.Fatal(err)
	}
	c.conn.Close()
	all = strings.Join(c.notes, "\n")
	_, last = lastNote(all)
	return all, last
}

// sweepLogins logs in with each kind of account.
func sweepLogins(t *testing.T, p *proxied) {
	p.exec(t, "CREATE USER expired IDENTIFIED BY '"+expiredPassword+"' PASSWORD EXPIRE; GRANT ALL ON sweep.* TO expired")
	passwords := map[string]string{"app": appPassword, "ed": edPassword, "empty": "", "sock": appPassword, "gone": appPassword, "tlsonly": appPassword,
		"norights": appPassword, "expired": expiredPassword, "nobody": appPassword}
	logins := 0
	for user, password := range passwords {
		for i, caps := range sweepCaps {
			for _, database := range []string{"", "sweep", "nowhere"} {
				for _, guess := range []string{unknownPlugin, "mysql_native_password", "caching_sha2_password"} {
					l := wireLogin{user: user, password: password, database: database, plugin: guess, caps: caps}
					if i%2 == 1 && database != "nowhere" {
						l.password = wrongPassword
						if user == "ed" {
							l.password = strings.Repeat("w", len(edPassword))
						}
					}
					for _, secure := range []bool{false, true} {
						to := p.node.addr(map[bool]string{false: "plain", true: "tls"}[secure])
						if l.tls = nil; secure {
							l.tls = p.ca.Client("127.0.0.1")
						}
						if secure && (i > 1 || database == "") {
							continue
						}
						all, last := loginNotes(t, p.addr, l)
						gotAll, gotLast := loginNotes(t, to, l)
						if gotLast != last {
							t.Errorf("user %s, database %q, capabilities %s, plugin %s, TLS %v: %s, want %s", user, database, caps, guess, secure, gotLast, last)
						}
						if guess == unknownPlugin && gotAll != all {
							t.Errorf("user %s, database %q, capabilities %s, TLS %v:\n%s\nwant\n%s", user, database, caps, secure, gotAll, all)
						}
						if guess != unknownPlugin && gotAll == all && strings.Contains(all, ` "\x00`) && strings.Count(all, "\n") == 0 {
							t.Errorf("not any more: %s", differsGuess)
						}
						logins++
					}
				}
			}
		}
	}
	t.Logf("%d logins", logins)
	p.sweepExpired(t)
	p.sweepSHA2(t)
}

// sweepExpired logs in with an account that must change its password, and changes it.
func (p *proxied) sweepExpired(t *testing.T) {
	for _, caps := range sweepCaps {
		var direct []string
		for _, addr := range []string{p.addr, p.node.addr("plain")} {
			p.exec(t, "ALTER USER expired IDENTIFIED BY '"+expiredPassword+"' PASSWORD EXPIRE")
			c, err := dialWire(addr, wireLogin{user: "expired", password: expiredPassword, plugin: unknownPlugin, caps: caps})
			if err != nil {
				t.Fatal(err)
			}
			notes := slices.Clone(c.notes)
			for _, sql := range []string{"SELECT 1", "SET PASSWORD = PASSWORD('" + newPassword + "')", "SELECT 1"} {
				notes = append(notes, c.run(step{payload: append([]byte{byte(wire.ComQuery)}, sql...)})...)
			}
			c.conn.Close()
			if direct == nil {
				direct = notes
				if text := strings.Join(notes, "\n"); !strings.Contains(text, "must SET PASSWORD") {
					t.Errorf("directly: %s", text)
				}
			}
			wantSameText(t, "an expired password with "+caps.String(), strings.Join(notes, "\n"), strings.Join(direct, "\n"))
		}
	}
}

// sweepSHA2 logs in with caching_sha2_password, which MariaDB does not have.
func (p *proxied) sweepSHA2(t *testing.T) {
	s := mysqltest.New(t, mysqltest.Config{
		TLS: p.ca.issue("db.example.com", "127.0.0.1").server(), NoStates: true, Version: "8.0.36", Plugin: "caching_sha2_password",
		Users: map[string]mysqltest.User{
			"sha": {Password: appPassword, Plugin: "caching_sha2_password"}, "clear": {Password: appPassword, Plugin: "mysql_clear_password"},
			"app": {Password: appPassword}, "none": {Plugin: "caching_sha2_password"},
		},
	})
	secure := fmt.Sprintf("tls: {ca: %q, serverName: db.example.com}", p.ca.file)
	terminate := "tls: {mode: terminate, certificateRefs: [db]}"
	p.node.apply(service("sha", []string{s.Addr()}, "protocol: mysql") + service("sha-secure", []string{s.Addr()}, "protocol: mysql", secure) +
		listener("sha-plain", "protocol: mysql", "service: sha") + listener("sha-tls", "protocol: mysql", terminate, "service: sha-secure") +
		listener("sha-edge", "protocol: mysql", terminate, "service: sha"))
	for _, user := range []string{"sha", "clear", "app", "none", "nobody"} {
		for _, password := range []string{appPassword, wrongPassword, ""} {
			for _, at := range []string{"sha-plain", "sha-tls", "sha-edge"} {
				l := wireLogin{user: user, password: password, plugin: unknownPlugin, caps: wire.DeprecateEOF}
				if at != "sha-plain" {
					l.tls = p.ca.Client("127.0.0.1")
				}
				for _, cached := range []string{"not cached", "cached"} {
					login := func(addr string) string {
						if s.ForgetPasswords(); cached == "cached" {
							if _, err := dialWire(s.Addr(), wireLogin{user: "sha", password: appPassword, plugin: "caching_sha2_password"}); err != nil {
								t.Fatal(err)
							}
						}
						all, _ := loginNotes(t, addr, l)
						return all
					}
					want, got := login(s.Addr()), login(p.node.addr(at))
					full := strings.Contains(want, `"\x01\x04"`)
					if at == "sha-edge" && full {
						if !strings.Contains(got, "Penstock: caching_sha2_password needs TLS on both sides or on none") {
							t.Errorf("not any more: %s: %s, %s: %s", differsSHA2, at, user, got)
						}
						continue
					}
					wantSameText(t, fmt.Sprintf("%s, %s, password %q, %s", at, user, password, cached), got, want)
				}
			}
		}
	}
}

// both are two sessions of the same login, directly and through the proxy.
type both struct {
	direct, proxied *wireClient
}

func dialBoth(direct, proxied string, l wireLogin) (*both, error) {
	d, err := dialWire(direct, l)
	if err != nil {
		return nil, fmt.Errorf("directly: %w", err)
	}
	c, err := dialWire(proxied, l)
	if err != nil {
		d.conn.Close()
		return nil, fmt.Errorf("proxied: %w", err)
	}
	return &both{d, c}, nil
}

func (b *both) close() {
	if b == nil {
		return
	}
	b.direct.conn.Close()
	b.proxied.conn.Close()
}

// run runs a step in both sessions and returns an error if the answers differ.
func (b *both) run(s step) error {
	answer := make(chan []string, 1)
	go func() { answer <- b.direct.run(s) }()
	got := b.proxied.run(s)
	want := <-answer
	if slices.Equal(want, got) {
		return nil
	}
	return fmt.Errorf("%s %q:\n%s\nwant\n%s", s.command(), s.payload[:min(len(s.payload), 100)], strings.Join(got, "\n"), strings.Join(want, "\n"))
}

var pingStep = step{payload: []byte{byte(wire.ComPing)}}

// knownCommands are those that Penstock relays.
func knownCommand(c wire.Command) bool {
	return c < wire.ComClone || c == wire.ComStmtBulkExecute
}

// sweepCommands sends every byte as a command, with bodies of several lengths.
func sweepCommands(t *testing.T, p *proxied) {
	at := p.node.addr("plain")
	var b *both
	defer func() { b.close() }()
	for _, caps := range []wire.Capabilities{0, wire.DeprecateEOF} {
		for n := range 256 {
			b.close() // what follows COM_BINLOG_DUMP is not looked at by anyone
			b = nil
			for _, body := range []string{"", "\x01", "\x00\x00", "sweep", "fixed\x00", "\x01\x00\x00\x00\x01\x01\x00\x00\x00", strings.Repeat("\xff", 40)} {
				c := wire.Command(n)
				if c == wire.ComChangeUser { // sweepFraming has one that cannot be read, sweepSessions others
					continue
				}
				if b == nil || b.direct.closed || b.proxied.closed {
					b.close()
					var err error
					if b, err = dialBoth(p.addr, at, wireLogin{user: "app", password: appPassword, database: "sweep", plugin: unknownPlugin, caps: caps}); err != nil {
						t.Fatal(err)
					}
				}
				s := step{payload: append([]byte{byte(c)}, body...)}
				if knownCommand(c) {
					if err := b.run(s); err != nil {
						t.Error(err)
					}
					if !b.direct.closed {
						if err := b.run(pingStep); err != nil {
							t.Errorf("after %s %q: %v", c, body, err)
						}
					}
					continue
				}
				direct, got := strings.Join(b.direct.run(s), "\n"), strings.Join(b.proxied.run(s), "\n")
				if !strings.Contains(direct, "Unknown command") || !strings.Contains(got, "Penstock: unknown command") || !strings.HasPrefix(got, "1 \"\\xff\\x17\\x04") {
					t.Errorf("%s %q: %s, and directly %s", c, body, got, direct)
				}
				b.proxied.run(pingStep)
				if !b.proxied.closed {
					t.Errorf("not any more: %s: %s %q", differsCommand, c, body)
				}
			}
		}
	}
	p.sweepFraming(t, at)
}

// sweepFraming sends what is no command, and the login of an old client.
func (p *proxied) sweepFraming(t *testing.T, at string) {
	for what, raw := range map[string]string{
		"a command without a byte": "\x00\x00\x00\x00", "a packet number": "\x01\x00\x00\x05\x0e", "COM_CHANGE_USER": "\x02\x00\x00\x00\x11x",
	} {
		before := len(p.node.accesses()) // those before were so many that the port may be one of theirs
		c, err := dialWire(at, wireLogin{user: "app", password: appPassword, plugin: unknownPlugin})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.conn.Write([]byte(raw)); err != nil {
			t.Fatal(err)
		}
		c.notes = nil
		for !c.closed {
			_, _ = c.packet()
		}
		if text := strings.Join(c.notes, "\n"); !strings.Contains(text, `\xff\x84\x04#08S01Penstock: `) {
			t.Errorf("not any more: %s: %s: %s", differsFraming, what, text)
		}
		if a := p.node.endAfter(before, c.conn.LocalAddr()); a.Reason != "mysql_bad_packet" {
			t.Errorf("%s: the connection ended with %q: %+v", what, a.Reason, a)
		}
	}
	l := wireLogin{user: "app", password: appPassword, old: true}
	if _, last := loginNotes(t, p.addr, l); !strings.HasPrefix(last, `"\x00`) {
		t.Errorf("an old client, directly: %s", last)
	}
	if _, last := loginNotes(t, at, l); !strings.Contains(last, `\xff\xe3\x04#08004`) {
		t.Errorf("not any more: %s: %s", differsOld, last)
	}
}

// changeCase is a COM_CHANGE_USER.
type changeCase struct {
	user, password, database, plugin string
	caps                             wire.Capabilities
}

// notes changes the user of a new session of app, and returns what was answered, and who
// the session belongs to afterwards.
func (c changeCase) notes(addr string, secure *tls.Config) (answer, after string, err error) {
	s, err := dialWire(addr, wireLogin{user: "app", password: appPassword, database: "other", plugin: unknownPlugin, caps: c.caps, tls: secure})
	if err != nil {
		return "", "", err
	}
	defer s.conn.Close()
	s.run(step{payload: queryOf("SET @a = 1")})
	s.login.password, s.login.plugin = c.password, c.plugin
	change := &wire.ChangeUser{User: c.user, Database: c.database, Plugin: c.plugin, Collation: 45, Auth: s.proof(c.plugin, s.greeting.Salt[:])}
	answer = strings.Join(s.run(step{payload: wire.AppendChangeUser(nil, change, s.caps)}), "\n")
	return answer, strings.Join(s.run(step{payload: queryOf("SELECT CURRENT_USER(), DATABASE(), @a")}), "\n"), nil
}

// sweepChanges changes the user of sessions, with each kind of account. It does so at the
// same time, because MariaDB answers those that it refuses after a second.
func sweepChanges(t *testing.T, p *proxied) {
	var group errgroup.Group
	group.SetLimit(12)
	sweep := func(at string, secure *tls.Config, c changeCase) error {
		wantAnswer, wantAfter, err := c.notes(p.addr, secure)
		if err != nil {
			return fmt.Errorf("directly: %w", err)
		}
		gotAnswer, gotAfter, err := c.notes(p.node.addr(at), secure)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if c.plugin != unknownPlugin { // see differsGuess
			_, wantAnswer = lastNote(wantAnswer)
			_, gotAnswer = lastNote(gotAnswer)
		}
		if gotAnswer != wantAnswer || gotAfter != wantAfter {
			t.Errorf("%s, %+v:\n%s\n%s\nwant\n%s\n%s", at, c, gotAnswer, gotAfter, wantAnswer, wantAfter)
		}
		return nil
	}
	for _, at := range []string{"plain", "tls"} {
		var secure *tls.Config
		var caps wire.Capabilities
		if at == "tls" {
			secure, caps = p.ca.Client("127.0.0.1"), wire.DeprecateEOF|wire.ConnectAttrs|wire.PluginAuthLenencClientData
		}
		for _, user := range []string{"app", "ed", "empty", "nobody"} {
			for _, password := range []string{passwordOf(user), wrongPassword} {
				for _, database := range []string{"", "sweep", "nowhere"} {
					for _, plugin := range []string{unknownPlugin, "mysql_native_password"} {
						group.Go(func() error { return sweep(at, secure, changeCase{user, password, database, plugin, caps}) })
					}
				}
			}
		}
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// lastNote returns the packet number and the payload of the last of several notes.
func lastNote(notes string) (seq, payload string) {
	seq, payload, _ = strings.Cut(notes[strings.LastIndex(notes, "\n")+1:], " ")
	return seq, payload
}

// sweepSessions runs generated sessions.
func sweepSessions(t *testing.T, p *proxied) {
	plain, secure, edge := p.node.addr("plain"), p.node.addr("tls"), p.node.addr("edge")
	steps := 0
	rapid.Check(t, func(rt *rapid.T) {
		l := wireLogin{user: "app", password: appPassword, database: "sweep", plugin: unknownPlugin, caps: rapid.SampledFrom(sweepCaps).Draw(rt, "capabilities")}
		at := rapid.SampledFrom([]string{plain, plain, secure, edge}).Draw(rt, "listener")
		if at != plain {
			l.tls = p.ca.Client("127.0.0.1")
		}
		b, err := dialBoth(p.addr, at, l)
		if err != nil {
			rt.Fatal(err)
		}
		defer b.close()
		begin := step{payload: queryOf("CREATE TEMPORARY TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(9), b LONGBLOB) ENGINE=InnoDB")}
		if err := b.run(begin); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			s := drawStep(rt, b)
			s.cut = rapid.IntRange(0, 40).Draw(rt, "cut")
			if err := b.run(s); err != nil {
				rt.Fatal(err)
			}
			if steps++; b.direct.closed {
				return
			}
		}
		if err := b.run(pingStep); err != nil {
			rt.Fatal(err)
		}
	})
	t.Logf("%d steps", steps)
}

func queryOf(sql string) []byte { return append([]byte{byte(wire.ComQuery)}, sql...) }

// statementsOf are statements of all kinds of answers.
var statementsOf = []string{
	"SELECT 1", "SELECT * FROM fixed", "SELECT * FROM t", "SELECT 1 WHERE FALSE", "SELECT id, name FROM fixed WHERE id > 1",
	"INSERT INTO t (s) VALUES ('a'), ('b')", "INSERT IGNORE INTO t (s) VALUES ('much too long for it')", "UPDATE t SET s = 'a'", "DELETE FROM t LIMIT 1",
	"BEGIN", "START TRANSACTION READ ONLY", "COMMIT", "ROLLBACK", "SET autocommit = 0", "SET autocommit = 1", "COMMIT AND CHAIN",
	"SELEKT", "SELECT * FROM nowhere", "SELECT 1/0", "SHOW WARNINGS", "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'", "", ";", "# nothing",
	"CALL twice(3)", "CALL out_param(1, @o)", "CALL nowhere()", "USE other", "USE sweep", "USE nowhere", "SET @a = REPEAT('x', 300)", "SELECT @a, @o",
	"SET sql_mode = 'NO_BACKSLASH_ESCAPES'", "SET NAMES latin1", "SELECT seq FROM seq_1_to_300", "SELECT REPEAT('y', 70000)", "DO 1",
	"EXPLAIN SELECT * FROM fixed WHERE name = 'x'", "PREPARE s FROM 'SELECT ?'", "EXECUTE s USING @a", "LOCK TABLES fixed READ",
	"UNLOCK TABLES", "HANDLER fixed OPEN", "SELECT * FROM fixed PROCEDURE ANALYSE()", "GET DIAGNOSTICS @n = NUMBER", "INSERT INTO t (s) VALUES ('r') RETURNING id, s",
	"SELECT 1; SELECT 2", "SELECT 1; SELEKT", "INSERT INTO t (s) VALUES ('m'); SELECT * FROM t; COMMIT", "CALL twice(1); CALL twice(2)", "SELECT 1; LOAD DATA LOCAL INFILE 'f' INTO TABLE t (s); SELECT 2",
	"LOAD DATA LOCAL INFILE 'f' INTO TABLE t (s)", "LOAD DATA LOCAL INFILE 'f' INTO TABLE nowhere", "LOAD DATA LOCAL INFILE 'f' INTO TABLE t (s); SELECT COUNT(*) FROM t",
	"LOAD DATA LOCAL INFILE 'f' INTO TABLE t (s); LOAD DATA LOCAL INFILE 'f' INTO TABLE t (s)",
}

// preparable are statements for the binary protocol.
var preparable = []string{
	"SELECT ?, ?", "SELECT * FROM fixed", "SELECT * FROM fixed WHERE id >= ?", "SELECT id, s, b FROM t", "INSERT INTO t (s, b) VALUES (?, ?)", "SELEKT", "CALL twice(?)",
	"CALL out_param(?, ?)", "SELECT seq FROM seq_1_to_50", "UPDATE t SET s = ?", "DO ?", "SELECT 1 FROM nowhere", "SET @a = ?", "SELECT LENGTH(?)", "SHOW TABLES", "BEGIN", "COMMIT",
}

// drawStep draws a command.
func drawStep(rt *rapid.T, b *both) step {
	file := []byte(strings.Repeat("line\n", rapid.SampledFrom([]int{0, 1, 3000}).Draw(rt, "lines")))
	s := step{file: file, chunk: rapid.SampledFrom([]int{4, 1000, 1 << 20}).Draw(rt, "chunk")}
	body := func(c wire.Command, rest string) step {
		s.payload = append([]byte{byte(c)}, rest...)
		return s
	}
	id := rapid.Uint32Range(0, 5).Draw(rt, "id")
	if rapid.IntRange(0, 9).Draw(rt, "last") == 0 {
		id = 0xffffffff // MariaDB: the statement that was prepared last
	}
	number := string(binary.LittleEndian.AppendUint32(nil, id))
	switch rapid.IntRange(0, 17).Draw(rt, "command") {
	case 0, 1, 2, 3:
		return body(wire.ComQuery, rapid.SampledFrom(statementsOf).Draw(rt, "statement"))
	case 4, 5:
		return body(wire.ComStmtPrepare, rapid.SampledFrom(preparable).Draw(rt, "statement"))
	case 6, 7, 8:
		s.payload = executeOf(rt, id, b.direct.params[id])
		return s
	case 9:
		return body(wire.ComStmtSendLongData, number+"\x00\x00"+strings.Repeat("l", rapid.SampledFrom([]int{0, 5, 70_000}).Draw(rt, "size")))
	case 10:
		return body(wire.ComStmtFetch, number+string([]byte{rapid.Byte().Draw(rt, "rows") % 5, 0, 0, 0}))
	case 11:
		return body(wire.ComStmtReset, number)
	case 12:
		return body(wire.ComStmtClose, number)
	case 13:
		return body(wire.ComInitDB, rapid.SampledFrom([]string{"sweep", "other", "nowhere", "mysql"}).Draw(rt, "database"))
	case 14:
		return body(wire.ComFieldList, rapid.SampledFrom([]string{"fixed\x00", "fixed\x00na%", "nowhere\x00"}).Draw(rt, "table"))
	case 15:
		return body(wire.ComSetOption, rapid.SampledFrom([]string{"\x00\x00", "\x01\x00", "\x07\x00", ""}).Draw(rt, "option"))
	case 16:
		return drawChange(rt, b)
	}
	return body(rapid.SampledFrom([]wire.Command{
		wire.ComPing, wire.ComStatistics, wire.ComProcessInfo, wire.ComResetConnection, wire.ComDebug, wire.ComTime, wire.ComStmtBulkExecute,
	}).Draw(rt, "simple"), number)
}

// drawChange draws a COM_CHANGE_USER. Few fail: MariaDB answers those after a second.
func drawChange(rt *rapid.T, b *both) step {
	user := rapid.SampledFrom([]string{"app", "ed", "empty"}).Draw(rt, "user")
	password, database := passwordOf(user), rapid.SampledFrom([]string{"", "sweep"}).Draw(rt, "database")
	switch rapid.IntRange(0, 20).Draw(rt, "fault") {
	case 0:
		password = wrongPassword
	case 1:
		database = "nowhere"
	case 2:
		user = "nobody"
	}
	b.direct.login.password, b.proxied.login.password = password, password
	return step{payload: wire.AppendChangeUser(nil, &wire.ChangeUser{
		User: user, Database: database, Plugin: unknownPlugin, Collation: 45,
	}, b.direct.caps)}
}

// passwordOf returns the password of an account to which the sweep changes.
func passwordOf(user string) string {
	return map[string]string{"app": appPassword, "ed": edPassword, "nobody": appPassword}[user]
}

// executeOf returns COM_STMT_EXECUTE with text for each parameter, and perhaps a cursor.
func executeOf(rt *rapid.T, id uint32, params uint16) []byte {
	p := binary.LittleEndian.AppendUint32([]byte{byte(wire.ComStmtExecute)}, id)
	p = append(p, byte(rapid.IntRange(0, 1).Draw(rt, "cursor")), 1, 0, 0, 0)
	if params == 0 {
		return p
	}
	null := rapid.IntRange(0, 1).Draw(rt, "null")
	p = append(p, byte(null), 1)
	for range params {
		p = append(p, 0xfd, 0) // VAR_STRING
	}
	for range int(params) - null {
		p = wire.AppendString(p, rapid.SampledFrom([]string{"", "7", "text"}).Draw(rt, "parameter"))
	}
	return p
}

// sweepLarge sends and asks for payloads about the size at which packets are split.
func sweepLarge(t *testing.T, p *proxied) {
	for i, caps := range []wire.Capabilities{wire.LocalFiles, wire.LocalFiles | wire.DeprecateEOF} {
		l, at := wireLogin{user: "app", password: appPassword, database: "sweep", plugin: unknownPlugin, caps: caps}, "plain"
		if i == 1 {
			l.tls, at = p.ca.Client("127.0.0.1"), "tls"
		}
		b, err := dialBoth(p.addr, p.node.addr(at), l)
		if err != nil {
			t.Fatal(err)
		}
		run := func(s step) {
			t.Helper()
			if err := b.run(s); err != nil {
				t.Error(err)
			}
		}
		run(step{payload: queryOf("CREATE TEMPORARY TABLE big (b LONGBLOB)")})
		run(step{payload: append([]byte{byte(wire.ComStmtPrepare)}, "SELECT LENGTH(?)"...)})
		for _, size := range []int{wire.MaxPayload - 1, wire.MaxPayload, wire.MaxPayload + 1} {
			const frame = "SELECT LENGTH('')"
			run(step{payload: queryOf("SELECT LENGTH('" + strings.Repeat("q", size-len(frame)-1) + "')")})
			run(step{payload: queryOf(fmt.Sprintf("SELECT REPEAT('r', %d)", size-4))}) // and a length of 4 bytes
			long := append([]byte{byte(wire.ComStmtSendLongData), 1, 0, 0, 0, 0, 0}, make([]byte, size-7)...)
			run(step{payload: long})
			run(step{payload: append([]byte{byte(wire.ComStmtExecute), 1, 0, 0, 0, 0, 1, 0, 0, 0}, 0, 1, 0xfc, 0)})
		}
		run(step{payload: queryOf("SELECT REPEAT('s', 16777216)")}) // whose length begins with the byte that ends rows
		run(step{payload: queryOf("LOAD DATA LOCAL INFILE 'f' INTO TABLE big"), file: []byte(strings.Repeat("x", wire.MaxPayload+5)), chunk: wire.MaxPayload})
		run(step{payload: queryOf("SELECT LENGTH(b) FROM big")})
		run(pingStep)
		b.close()
	}
}
