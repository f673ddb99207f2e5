package session

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"penstock/mysql/wire"
)

// answerTo returns the packets of an answer to a question: rows of three columns, where
// "NULL" is NULL.
func answerTo(caps wire.Capabilities, status wire.Status, rows ...[3]string) []byte {
	p := wire.AppendPacket(nil, 1, []byte{3})
	for range 3 {
		p = wire.AppendPacket(p, 2, []byte("\x03def"))
	}
	if caps&wire.DeprecateEOF == 0 {
		p = wire.AppendPacket(p, 3, wire.AppendEOF(nil, 0, status))
	}
	for _, row := range rows {
		var b []byte
		for _, v := range row {
			if v == "NULL" {
				b = append(b, 0xfb)
				continue
			}
			b = wire.AppendString(b, v)
		}
		p = wire.AppendPacket(p, 4, b)
	}
	if caps&wire.DeprecateEOF == 0 {
		return wire.AppendPacket(p, 5, wire.AppendEOF(nil, 0, status))
	}
	return wire.AppendPacket(p, 5, wire.AppendOK(nil, &wire.OK{Status: status, EndsRows: true}, caps))
}

func TestQuestionsAreRead(t *testing.T) {
	for _, caps := range []wire.Capabilities{0, wire.DeprecateEOF} {
		all := answerTo(caps, wire.Autocommit, [3]string{"sql_mode", "ANSI", "NULL"}, [3]string{"TIME_ZONE", "", "SYSTEM"})
		for n := 1; n <= len(all); n += 7 {
			var q question
			var done bool
			for rest := all; len(rest) > 0; rest = rest[min(n, len(rest)):] {
				var err error
				if done, err = q.read(rest[:min(n, len(rest))], caps); err != nil {
					t.Fatal(err)
				}
			}
			if !done || q.status != wire.Autocommit || len(q.facts) != 2 ||
				q.facts["SQL_MODE"] != (fact{session: "ANSI"}) || q.facts["TIME_ZONE"] != (fact{global: "SYSTEM", known: true}) {
				t.Fatalf("in pieces of %d: done %t, %v, %v", n, done, q.status, q.facts)
			}
		}
	}
}

func TestBadAnswersToQuestions(t *testing.T) {
	row := func(p string) []byte {
		whole := answerTo(0, 0)
		return wire.AppendPacket(whole[:len(whole)-9], 4, []byte(p))
	}
	var many [][3]string
	for i := range maxFacts + 1 {
		many = append(many, [3]string{fmt.Sprint(i), "", ""})
	}
	var large [][3]string
	for i := range maxAnswer/60000 + 1 {
		large = append(large, [3]string{fmt.Sprint(i), strings.Repeat("x", 60000), ""})
	}
	for name, p := range map[string][]byte{
		"columns": wire.AppendPacket(nil, 1, []byte{4}), "empty": wire.AppendPacket(nil, 1, nil), "short row": row("\x01a\x01b"), "long row": row("\x01a\x01b\x01c\x01d"),
		"cut row": row("\x01a\x01b\x05c"), "many rows": answerTo(0, 0, many...), "bytes behind": append(answerTo(0, 0), 1),
		"large": answerTo(0, 0, large...), "large packet": wire.AppendHeader(nil, maxLogin+1, 1),
	} {
		var q question
		if done, err := q.read(p, 0); done || err == nil {
			t.Errorf("%s: done %t, %v; want an error", name, done, err)
		}
	}
	var q question
	refusal := wire.AppendPacket(nil, 1, wire.AppendError(nil, &wire.Error{Code: 1142, State: "42000", Message: "no secret"}))
	if done, err := q.read(refusal, 0); !done || err == nil || !strings.Contains(err.Error(), "1142") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a refusal: done %t, %v; want error 1142 without its message", done, err)
	}
}

// state returns facts of a session that can move, with changes.
func state(changes ...[3]string) facts {
	f := facts{
		".END": {session: "1"}, ".VARIABLES": {session: "0"}, ".DATABASE": {session: "d"}, ".USER": {session: "app@%"},
		"CHARACTER_SET_CLIENT": {session: "utf8mb4", global: "latin1", known: true}, "SQL_MODE": {session: "STRICT", global: "STRICT", known: true},
		"TIMESTAMP": {session: "1"}, "LAST_INSERT_ID": {session: "0"}, "PROXY_USER": {session: ""},
	}
	for _, c := range changes {
		if c[1] == "-" {
			delete(f, c[0])
			continue
		}
		f[c[0]] = fact{session: c[1], global: c[2], known: c[2] != "NULL"}
	}
	return f
}

// What a new session is given, and what it cannot be given.
func TestDifferences(t *testing.T) {
	for name, tt := range map[string]struct {
		was, now facts
		set      []string
		restore  []string
		other    string
		err      string
	}{
		"none":             {was: state(), now: state()},
		"per connection":   {was: state([3]string{"TIMESTAMP", "2", "NULL"}), now: state()},
		"character set":    {was: state(), now: state([3]string{"CHARACTER_SET_CLIENT", "latin1", "latin1"}), restore: []string{"CHARACTER_SET_CLIENT"}},
		"insert ID":        {was: state([3]string{"LAST_INSERT_ID", "5", "NULL"}), now: state(), restore: []string{"LAST_INSERT_ID"}},
		"set by name":      {was: state([3]string{"SQL_MODE", "ANSI", "STRICT"}), now: state(), set: []string{"SQL_MODE"}, restore: []string{"SQL_MODE"}},
		"set to default":   {was: state(), now: state([3]string{"SQL_MODE", "ANSI", "ANSI"}), set: []string{"SQL_MODE"}, restore: []string{"SQL_MODE"}},
		"other default":    {was: state(), now: state([3]string{"SQL_MODE", "ANSI", "ANSI"})},
		"set in secret":    {was: state([3]string{"SQL_MODE", "ANSI", "STRICT"}), now: state(), other: "SQL_MODE"},
		"session only":     {was: state([3]string{"PROXY_USER", "x", "NULL"}), now: state(), other: "PROXY_USER"},
		"gone":             {was: state(), now: state([3]string{"SQL_MODE", "-", ""})},
		"gone, though set": {was: state(), now: state([3]string{"SQL_MODE", "-", ""}), set: []string{"SQL_MODE"}, other: "SQL_MODE"},
		"second name":      {was: state([3]string{"SQL_MODE", "ANSI", "STRICT"}, [3]string{"LAST_INSERT_ID", "5", "NULL"}), now: state(), restore: []string{"LAST_INSERT_ID"}, other: "SQL_MODE"},
		"database":         {was: state(), now: state([3]string{".DATABASE", "e", "NULL"}), err: "another database"},
		"account":          {was: state(), now: state([3]string{".USER", "app@localhost", "NULL"}), err: "another user"},
		"incomplete":       {was: state(), now: state([3]string{".END", "-", ""}), err: "not complete"},
	} {
		restore, other, err := tt.was.differences(tt.now, tt.set)
		if !slices.Equal(restore, tt.restore) || other != tt.other || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %q, %q, %v; want %q, %q and an error with %q", name, restore, other, err, tt.restore, tt.other, tt.err)
		}
	}
}

// What the server says of a session that Penstock has not seen.
func TestWhatTheServerKnows(t *testing.T) {
	if err := state().movable(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		change [3]string
		want   error
	}{
		{[3]string{".VARIABLES", "1", "NULL"}, HoldUserVariable},
		{[3]string{"COM_CREATE_TEMPORARY_TABLE", "1", "NULL"}, HoldTemporaryTable},
		{[3]string{"COM_PREPARE_SQL", "2", "NULL"}, HoldPrepared},
		{[3]string{"COM_LOCK_TABLES", "2", "NULL"}, HoldTableLock},
		{[3]string{"CHARACTER_SET_CLIENT", "gbk", "latin1"}, HoldCharacterSet},
		{[3]string{"CHARACTER_SET_CLIENT", "utf8", "gbk"}, HoldCharacterSet},
		{[3]string{"SQL_MODE", "PIPES_AS_CONCAT,ORACLE", "NULL"}, HoldUnreadable},
	} {
		if err := state(tt.change).movable(); !errors.Is(err, tt.want) {
			t.Errorf("%q: %v, want %v", tt.change, err, tt.want)
		}
	}
}

func TestValuesAreQuoted(t *testing.T) {
	f := state([3]string{"A", `it's a \`, "NULL"}, [3]string{"B", "1.5", "NULL"}, [3]string{"C", "1.2.3", "NULL"}, [3]string{"CHARACTER_SET_RESULTS", "", "NULL"}, [3]string{"D", "", "NULL"})
	names := []string{"A", "B", "C", "CHARACTER_SET_RESULTS", "D"}
	for noEscapes, want := range map[bool]string{
		false: "\x03SET @@SESSION.a = 'it''s a \\\\', @@SESSION.b = 1.5, @@SESSION.c = '1.2.3', @@SESSION.character_set_results = NULL, @@SESSION.d = ''",
		true:  "\x03SET @@SESSION.a = 'it''s a \\', @@SESSION.b = 1.5, @@SESSION.c = '1.2.3', @@SESSION.character_set_results = NULL, @@SESSION.d = ''",
	} {
		if got := string(f.appendSet(nil, names, noEscapes)); got != want {
			t.Errorf("no escapes %t:\n%s\nwant\n%s", noEscapes, got, want)
		}
	}
}

// The answers are those of another implementation: Python's hashlib after the formulas
// of the protocol's documentation.
func TestScrambles(t *testing.T) {
	salt := []byte("01234567890123456789")
	for plugin, want := range map[string]string{nativePassword: "7abe1a8776b59e931059451f81e596a60dbbf7a8", cachingSHA2: "1a2da2573c2faa367e2afddb54cdfd11a95ed22eef0167151196a6fc8e3d3813"} {
		if got := hex.EncodeToString(scramble(plugin, "secret", salt)); got != want {
			t.Errorf("%s: %s, want %s", plugin, got, want)
		}
		if got := scramble(plugin, "", salt); len(got) > 0 {
			t.Errorf("%s without a password: %x, want nothing", plugin, got)
		}
	}
}

func FuzzQuestions(f *testing.F) {
	f.Add(answerTo(0, 0, [3]string{"a", "b", "NULL"}), false)
	f.Add(answerTo(wire.DeprecateEOF, 0, [3]string{"a", "b", "NULL"}), true)
	f.Fuzz(func(t *testing.T, p []byte, deprecate bool) {
		var caps wire.Capabilities
		if deprecate {
			caps = wire.DeprecateEOF
		}
		var whole, pieces question
		done, err := whole.read(p, caps)
		if err != nil || !done {
			return
		}
		_ = whole.facts.movable()
		_, _, _ = whole.facts.differences(whole.facts, nil)
		for i := range p {
			if done, err = pieces.read(p[i:i+1], caps); err != nil {
				t.Fatal(err)
			}
		}
		if !done || len(pieces.facts) != len(whole.facts) {
			t.Fatalf("%d facts in pieces, %d in one", len(pieces.facts), len(whole.facts))
		}
	})
}
