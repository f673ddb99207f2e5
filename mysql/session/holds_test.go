package session

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/mysql/wire"
)

// query tells a keeper a query, in pieces of n bytes.
func feedQuery(k *keeper, text string, n int, status wire.Status) {
	payload := append([]byte{byte(wire.ComQuery)}, text...)
	first := payload[:min(len(payload), peek)]
	rest := payload[len(first):]
	now := min(len(rest), n)
	k.command(first, rest[:now], len(payload), status)
	for rest = rest[now:]; len(rest) > 0; rest = rest[min(len(rest), n):] {
		k.more(rest[:min(len(rest), n)])
	}
}

// held returns what a session holds after a query.
func held(text string, n int, status wire.Status) Hold {
	k := newKeeper(45)
	feedQuery(k, text, n, status)
	h, _ := k.holds().(Hold)
	if k.reading {
		return "reading"
	}
	return h
}

// What a query leaves behind.
var queries = []struct {
	text string
	want Hold
}{
	// Nothing.
	{"", ""},
	{"/* only a comment */", ""},
	{"SELECT 1", ""},
	{"select 1;", ""},
	{"SELECT 1 ; -- the end", ""},
	{"/* from app */ SELECT a, `b c`, 'it''s', 'a\\'b' FROM t WHERE x IN (1,2) AND (y = 2 OR z = 3) -- why\n LIMIT 3", ""},
	{"(SELECT 1) UNION (SELECT 2)", ""},
	{"SELECT COUNT(*), max(a), Now(), CONCAT('a', \"b\") FROM d.t USE INDEX (i) JOIN u USING (id) GROUP BY a HAVING (a > 1)", ""},
	{"SELECT CAST(a AS DECIMAL(10, 2)), CASE WHEN (a) THEN (b) ELSE (c) END, IF(a, b, c) FROM (SELECT 1) x", ""},
	{"SELECT ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) FROM t", ""},
	{"SELECT * FROM t WHERE MATCH (a) AGAINST ('word')", ""},
	{"SELECT @@autocommit, @@session.sql_mode, @@GLOBAL.wait_timeout", ""},
	{"SELECT LAST_INSERT_ID()", ""},
	{"SELECT 'a@b', `a@b`, 5-1, 5--1, 4/2, a.b.c FROM t", ""},
	{"INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'y')", ""},
	{"INSERT INTO `d`.`t`(a,b) VALUES (1, UPPER('x')) ON DUPLICATE KEY UPDATE a = VALUES(a)", ""},
	{"REPLACE t VALUES (1)", ""},
	{"INSERT t SELECT 1", ""},
	{"UPDATE t SET a = a + 1 WHERE id = 3", ""},
	{"DELETE FROM t WHERE id = 3", ""},
	{"BEGIN", ""},
	{"BEGIN WORK;", ""},
	{"START TRANSACTION WITH CONSISTENT SNAPSHOT", ""},
	{"COMMIT", ""},
	{"ROLLBACK TO SAVEPOINT a", ""},
	{"RELEASE SAVEPOINT a", ""},
	{"USE d", ""},
	{"SHOW TABLES", ""},
	{"EXPLAIN SELECT 1", ""},
	{"DO SLEEP(0)", ""},
	{"SET NAMES utf8mb4", ""},
	{"SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin', sql_mode = ''", ""},
	{"SET CHARACTER SET utf8", ""},
	{"SET autocommit=0", ""},
	{"SET @@autocommit = 1, @@session.sql_mode=CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES'), LOCAL wait_timeout := 5", ""},
	{"SET GLOBAL max_connections = 5", ""},
	{"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY", ""},
	{"SET SESSION tx_isolation = 'READ-COMMITTED'", ""},
	{"SET character_set_client = utf8, character_set_results = NULL", ""},

	// User variables.
	{"SET @a = 1", HoldUserVariable},
	{"SET autocommit = 1, @a = 1", HoldUserVariable},
	{"SET sql_mode = @a", HoldUserVariable},
	{"SELECT @a := 1", HoldUserVariable},
	{"SELECT 1 INTO @a", HoldUserVariable},
	{"SELECT a FROM t INTO @`a`", HoldUserVariable},
	{"SELECT 1 INTO @'a'", HoldUserVariable},
	{"SELECT 1 INTO @.a", HoldUserVariable},
	{"SELECT @@@a", HoldUnreadable},
	{"SELECT 1 INTO @", HoldUnreadable},

	// Functions.
	{"SELECT GET_LOCK('a', 1)", HoldUserLock},
	{"SELECT get_lock ('a', 1)", HoldUserLock},
	{"DO RELEASE_ALL_LOCKS()", HoldUserLock},
	{"SELECT f(1)", HoldFunction},
	{"SELECT `f`(1)", HoldFunction},
	{"SELECT \"f\"(1)", HoldFunction},
	{"SELECT d.count(1)", HoldFunction},
	{"SELECT d . count(1)", HoldFunction},
	{"SELECT d./* x */count(1)", HoldFunction},
	{"SELECT count (1)", HoldFunction},
	{"SELECT count/**/(1)", HoldFunction},
	{"SELECT f /* x */ -- y\n (1)", HoldFunction},
	{"INSERT INTO t (a) VALUES (f(1))", HoldFunction},
	{"INSERT INTO t SET a = f(1)", HoldFunction},
	{"INSERT INTO t SELECT f(1)", HoldFunction},
	{"SELECT against('a')", HoldFunction},
	{"SELECT " + strings.Repeat("f", 100) + "(1)", HoldFunction},
	{"SELECT CONNECTION_ID()", HoldConnectionID},
	{"SELECT NEXTVAL(s)", HoldSequence},
	{"SELECT NEXT VALUE FOR s", HoldSequence},
	{"SELECT s.nextval", HoldSequence},
	{"SELECT PREVIOUS VALUE FOR s", HoldSequence},
	{"SELECT @@last_gtid", HoldGTID},
	{"SELECT @@session.last_gtid", HoldGTID},
	{"SELECT SQL_CALC_FOUND_ROWS a FROM t LIMIT 1", HoldFoundRows},

	// Statements.
	{"CREATE TEMPORARY TABLE t (a INT)", HoldTemporaryTable},
	{"CREATE OR REPLACE TEMPORARY TABLE t SELECT 1", HoldTemporaryTable},
	{"CREATE PROCEDURE p() BEGIN END", HoldFunction},
	{"CREATE DATABASE d", HoldUnknown},
	{"LOCK TABLES t READ", HoldTableLock},
	{"FLUSH TABLES WITH READ LOCK", HoldTableLock},
	{"BACKUP STAGE START", HoldTableLock},
	{"PREPARE p FROM 'SELECT 1'", HoldPrepared},
	{"EXECUTE IMMEDIATE 'SELECT 1'", HoldPrepared},
	{"HANDLER t OPEN", HoldHandler},
	{"CALL p()", HoldUnknown},
	{"LOAD DATA INFILE 'a' INTO TABLE t", HoldUnknown},
	{"XA START 'a'", HoldUnknown},
	{"START SLAVE", HoldUnknown},
	{"BEGIN NOT ATOMIC SELECT 1; END", HoldUnknown},
	{"RELEASE x", HoldUnknown},
	{"FROBNICATE", HoldUnknown},
	{"SET ROLE r", HoldRole},
	{"SET DEFAULT ROLE r", HoldUnknown},
	{"SET PASSWORD = PASSWORD('x')", HoldUnknown},
	{"SET STATEMENT max_statement_time=1 FOR SELECT 1", HoldUnknown},
	{"SET TRANSACTION READ ONLY", HoldNextTransaction},
	{"SET GLOBAL x = 1, TRANSACTION READ ONLY", HoldNextTransaction},
	{"SET tx_isolation = 'SERIALIZABLE'", HoldNextTransaction},
	{"SET @@transaction_read_only = 1", HoldNextTransaction},
	{"SET timestamp = 5", HoldVariable},
	{"SET pseudo_thread_id = 5", HoldVariable},
	{"SET NAMES gbk", HoldCharacterSet},
	{"SET NAMES DEFAULT", HoldCharacterSet},
	{"SET CHARACTER SET 'sjis'", HoldCharacterSet},
	{"SET character_set_client = 28", HoldCharacterSet},
	{"SET @@session.character_set_client = @@global.character_set_client", HoldCharacterSet},
	{"SET sql_mode = '', NAMES big5", HoldCharacterSet},
	{"SET `sql_mode` = ''", HoldUnreadable},
	{"SET", HoldUnreadable},
	{"SET sql_mode", HoldUnreadable},
	{"SET a.b = 1", HoldUnreadable},
	{"SET NAMES", HoldUnreadable},

	// What cannot be told.
	{"SELECT 1; SELECT 2", HoldSeveral},
	{"SELECT 1;;'x'", HoldSeveral},
	{"/*!50000 SET @a = 1 */", HoldUnreadable},
	{"SELECT /*!50000 GET_LOCK('a', 1), */ 1", HoldUnreadable},
	{"SELECT /*M! 1, */ 1", HoldUnreadable},
	{"SELECT /*+ SET_VAR(sql_mode='') */ 1", HoldUnreadable},
	{"SELECT 'open", HoldUnreadable},
	{"SELECT /* open", HoldUnreadable},
	{"SELECT \"a\\\" GET_LOCK(\"", HoldUnreadable},
	{"'SELECT'", HoldUnreadable},
	{"\x00SELECT 1", HoldUnreadable},
	{"{SELECT 1}", HoldUnreadable},
}

func TestWhatAQueryLeaves(t *testing.T) {
	for _, q := range queries {
		for _, n := range []int{1, 7, 1 << 20} {
			if got := held(q.text, n, 0); got != q.want {
				t.Errorf("%s (in pieces of %d): %q, want %q", q.text, n, got, q.want)
			}
		}
	}
}

// Without escapes a backslash is a character, so a string ends before what hides in it.
func TestBackslashesAreReadAsTheServerDoes(t *testing.T) {
	const text = `SELECT 'a\', @x := 1, 'b'`
	if got := held(text, 100, 0); got != HoldUnreadable {
		t.Errorf("with escapes: %q, want %q", got, HoldUnreadable)
	}
	if got := held(text, 100, wire.NoBackslashEscapes); got != HoldUserVariable {
		t.Errorf("without: %q, want %q", got, HoldUserVariable)
	}
	const long = `SELECT '` + "0123456789012345678901234567890123456789012345678901234567890123456789"
	if got := held(long+`\', @x := 1, 'b'`, 100, wire.NoBackslashEscapes); got != HoldUserVariable {
		t.Errorf("behind a long string: %q, want %q", got, HoldUserVariable)
	}
	if got := held(long+`\', @x := 1, 'b`+"'", 100, 0); got != HoldUnreadable {
		t.Errorf("in a long string: %q, want %q", got, HoldUnreadable)
	}
	if got := held(long+`''\'', GET_LOCK('a', 1)`, 100, 0); got != HoldUserLock {
		t.Errorf("behind a long string with quotes: %q, want %q", got, HoldUserLock)
	}
}

// However a text is cut, it leaves the same.
func TestQueriesInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{
			"SELECT", "SET", "INSERT INTO", "@", "@@", "a", "count", "f", "(", ")", ".", ",", "=", ":=", ";", "'", "\"", "`", "\\", "/*", "*/", "!",
			"--", "\n", " ", "#", "GET_LOCK", "NAMES", "utf8", "VALUES", "1", strings.Repeat("x", 50),
		}), 1, 20).Draw(t, "parts")
		text := strings.Join(parts, "")
		whole := held(text, 1<<20, 0)
		if got := held(text, rapid.IntRange(1, 9).Draw(t, "piece"), 0); got != whole {
			t.Fatalf("%q: %q in pieces and %q in one", text, got, whole)
		}
	})
}

// What is held goes when the session is reset, or with the next statement.
func TestHoldsEnd(t *testing.T) {
	k := newKeeper(45)
	want := func(what string, want error) {
		t.Helper()
		if got := k.holds(); got != want {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
	want("a new session", nil)
	feedQuery(k, "SET @a = 1", 100, 0)
	feedQuery(k, "SELECT 1", 100, 0)
	want("after a variable", HoldUserVariable)
	k.reset(45)
	want("after a reset", nil)

	feedQuery(k, "SELECT SQL_CALC_FOUND_ROWS 1", 100, 0)
	feedQuery(k, "COMMIT", 100, 0)
	want("after COMMIT", HoldFoundRows)
	feedQuery(k, "SELECT 1", 100, 0)
	want("after another SELECT", nil)

	k.warned([]byte{1, 0})
	want("with a warning", HoldWarnings)
	feedQuery(k, "SHOW WARNINGS", 100, 0)
	want("after SHOW WARNINGS", HoldWarnings)
	feedQuery(k, "COMMIT", 100, 0)
	want("after the next statement", nil)
	k.answered([]byte{0xff, 1, 2})
	want("with an error", HoldWarnings)
	k.command([]byte{byte(wire.ComStmtExecute), 1, 0, 0, 0}, nil, 5, 0)
	want("after an execution", nil)

	k.opened(7)
	want("with a statement", HoldPrepared)
	k.command([]byte{byte(wire.ComStmtClose), 8, 0, 0, 0}, nil, 5, 0)
	want("after another one's end", HoldPrepared)
	k.command([]byte{byte(wire.ComStmtClose), 7, 0, 0, 0}, nil, 5, 0)
	want("after its end", nil)
	for i := range uint32(maxPrepared) + 1 {
		k.opened(i)
	}
	k.prepared = nil
	want("after too many statements", HoldPrepared)

	k.reset(28)
	want("with GBK", HoldCharacterSet)
	k.reset(45)
	k.command([]byte{byte(wire.ComSetOption), 0, 0}, nil, 3, 0)
	want("after COM_SET_OPTION", HoldCommand)
	k.reset(45)
	k.command([]byte{byte(wire.ComQuery)}, nil, wire.MaxPayload, 0)
	want("after a query of several packets", HoldUnreadable)
}

// A client is not told the rows of a question for those of its own statement.
func TestRowsAreNotMistaken(t *testing.T) {
	for _, tt := range []struct {
		queries []string
		lost    bool
	}{
		{[]string{"SELECT FOUND_ROWS()"}, true},
		{[]string{"SELECT ROW_COUNT()"}, true},
		{[]string{"UPDATE t SET a = 1", "SELECT ROW_COUNT()"}, false},
		{[]string{"UPDATE t SET a = 1", "SELECT FOUND_ROWS()"}, true},
		{[]string{"SELECT 1", "SELECT FOUND_ROWS()"}, false},
		{[]string{"COMMIT"}, false},
	} {
		k := newKeeper(45)
		k.asked()
		for _, q := range tt.queries {
			feedQuery(k, q, 100, 0)
		}
		if k.lost != tt.lost {
			t.Errorf("%q: lost %t, want %t", tt.queries, k.lost, tt.lost)
		}
	}
}

func FuzzQueries(f *testing.F) {
	for _, q := range queries {
		f.Add(q.text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, n int) {
		n = max(n&0xff, 1)
		whole := held(text, len(text)+1, 0)
		if got := held(text, n, 0); got != whole {
			t.Fatalf("%q: %q in pieces of %d and %q in one", text, got, n, whole)
		}
		// What follows a statement is never taken for a part of it that does no harm.
		if h := held(text+"\n;GET_LOCK('a')", n, 0); h == "" && !opens(text) {
			t.Fatalf("%q with a lock behind it leaves nothing", text)
		}
	})
}

// opens reports whether a text may swallow what is behind it.
func opens(text string) bool { return strings.ContainsAny(text, "'\"`\\*/") }

func BenchmarkQueries(b *testing.B) {
	k := newKeeper(45)
	for _, text := range []string{
		"SELECT c FROM sbtest1 WHERE id = 12345",
		"INSERT INTO t (a, b) VALUES " + strings.TrimSuffix(strings.Repeat("(1, 'a text of some length that is inserted'),", 200), ","),
	} {
		b.Run("", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for range b.N {
				feedQuery(k, text, 1<<20, 0)
			}
			if k.holds() != nil {
				b.Fatal(k.holds())
			}
		})
	}
}
