package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"penstock/mysql/wire"
)

// Bounds of an answer to a question. MariaDB 10.11 answers with 7 KiB.
const (
	maxAnswer = 256 << 10
	maxFacts  = 4096
)

// questionText asks a MariaDB server what the session is like: three columns, the name,
// the session's value and that of new sessions. It needs no privilege, and begins no
// transaction. A session that limits the rows of its answers lacks the last one.
//
// The counters count statements in stored routines and triggers as well, which cannot
// be seen in what the client sends.
const questionText = `SELECT VARIABLE_NAME, SESSION_VALUE, GLOBAL_VALUE FROM information_schema.SYSTEM_VARIABLES WHERE VARIABLE_SCOPE <> 'GLOBAL'` +
	` UNION ALL SELECT VARIABLE_NAME, VARIABLE_VALUE, NULL FROM information_schema.SESSION_STATUS WHERE VARIABLE_VALUE <> '0' AND VARIABLE_NAME IN` +
	` ('COM_CREATE_TEMPORARY_TABLE', 'COM_CREATE_TABLE', 'COM_CREATE_SEQUENCE', 'COM_LOCK_TABLES', 'COM_FLUSH', 'COM_BACKUP', 'COM_BACKUP_LOCK', 'COM_HA_OPEN', 'COM_PREPARE_SQL')` +
	` UNION ALL SELECT '.variables', COUNT(*), NULL FROM information_schema.USER_VARIABLES` +
	` UNION ALL SELECT '.database', DATABASE(), NULL UNION ALL SELECT '.user', CURRENT_USER(), NULL UNION ALL SELECT '.role', CURRENT_ROLE(), NULL` +
	` UNION ALL SELECT '.end', 1, NULL`

func appendQuestion(dst []byte) []byte {
	return append(append(dst, byte(wire.ComQuery)), questionText...)
}

// counters say what a statement in a stored routine may have left.
var counters = map[string]Hold{
	"COM_CREATE_TEMPORARY_TABLE": HoldTemporaryTable, "COM_CREATE_TABLE": HoldTemporaryTable, "COM_CREATE_SEQUENCE": HoldTemporaryTable,
	"COM_LOCK_TABLES": HoldTableLock, "COM_FLUSH": HoldTableLock, "COM_BACKUP": HoldTableLock, "COM_BACKUP_LOCK": HoldTableLock,
	"COM_HA_OPEN": HoldHandler, "COM_PREPARE_SQL": HoldPrepared,
}

// facts are the answer to a question.
type facts map[string]fact

// fact is a row. A value that is NULL is "", and that of new sessions is then not known.
type fact struct {
	session, global string
	known           bool // global is not NULL
}

// question reads an answer, in whatever pieces it comes.
type question struct {
	buf         []byte
	size        int
	columns     int
	definitions int // that are still to come, with the EOF behind them
	facts       facts
	status      wire.Status
}

// read takes bytes. An error with done is the server's own.
func (q *question) read(p []byte, caps wire.Capabilities) (done bool, err error) {
	if q.size += len(p); q.size > maxAnswer {
		return false, fmt.Errorf("more than %d bytes about the state of a session", maxAnswer)
	}
	q.buf = append(q.buf, p...)
	for {
		payload, _, rest, err := packet(q.buf)
		if err != nil || payload == nil {
			return false, err
		}
		q.buf = rest
		done, err := q.readPacket(payload, caps)
		if done && len(rest) > 0 {
			return false, errors.New("bytes behind the answer about the state of a session")
		}
		if done || err != nil {
			return done, err
		}
	}
}

func (q *question) readPacket(p []byte, caps wire.Capabilities) (done bool, err error) {
	switch {
	case wire.IsError(p):
		e, err := wire.ParseError(p)
		if err == nil {
			err = fmt.Errorf("the question about the state of the session: error %d", e.Code)
		}
		return true, err
	case q.columns == 0:
		if n, _, ok := wire.Int(p); !ok || n != 3 {
			return false, errors.New("the state of a session has other columns than three")
		}
		q.columns, q.definitions, q.facts = 3, 3, facts{}
		if caps&wire.DeprecateEOF == 0 {
			q.definitions++
		}
	case q.definitions > 0:
		q.definitions--
	case len(p) > 0 && wire.IsRowsEnd(p[0], len(p), caps):
		return q.readEnd(p, caps)
	default:
		return false, q.readRow(p)
	}
	return false, nil
}

func (q *question) readEnd(p []byte, caps wire.Capabilities) (done bool, err error) {
	if caps&wire.DeprecateEOF == 0 {
		_, q.status, err = wire.ParseEOF(p)
	} else {
		var ok wire.OK
		ok, err = wire.ParseOK(p, caps)
		q.status = ok.Status
	}
	return err == nil, err
}

func (q *question) readRow(p []byte) error {
	var values [3]string
	var known [3]bool
	for i := range values {
		if len(p) > 0 && p[0] == 0xfb {
			p = p[1:]
			continue
		}
		v, n, ok := wire.String(p)
		if !ok {
			return errors.New("a bad row about the state of a session")
		}
		values[i], known[i], p = string(v), true, p[n:]
	}
	if len(q.facts) == maxFacts || len(p) > 0 {
		return errors.New("a bad row about the state of a session")
	}
	q.facts[strings.ToUpper(values[0])] = fact{session: values[1], global: values[2], known: known[2]}
	return nil
}

// movable returns why a session of which f is the state cannot move.
func (f facts) movable() error {
	if _, ok := f[".END"]; !ok {
		return fmt.Errorf("%w: the answer is not complete", errNoStates)
	}
	if f[".VARIABLES"].session != "0" {
		return HoldUserVariable
	}
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if _, ok := f[name]; ok {
			return counters[name]
		}
	}
	charset := f["CHARACTER_SET_CLIENT"]
	if !safeCharsets[strings.ToUpper(charset.session)] || !safeCharsets[strings.ToUpper(charset.global)] {
		return HoldCharacterSet
	}
	if strings.Contains(f["SQL_MODE"].session, "ORACLE") {
		return HoldUnreadable // its grammar is another one
	}
	return nil
}

func (f facts) database() string { return f[".DATABASE"].session }

// differences returns the variables that a new session must be given to be like f, and
// another one that differs, which may be a second name of one of these; "": there is
// none. set are those that the client has set. An error says why the sessions can never
// be alike.
func (f facts) differences(now facts, set []string) (restore []string, other string, err error) {
	if err := now.movable(); err != nil {
		return nil, "", fmt.Errorf("at the new server: %v", err) //nolint:errorlint // it is not this session's
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		was := f[name]
		is, exists := now[name]
		switch {
		case perConnection[name], exists && is.session == was.session:
		case strings.HasPrefix(name, "."):
			return nil, "", refusal(fmt.Sprintf("the session has another %s at the new server", strings.ToLower(name[1:])))
		case exists && (restored[name] || slices.Contains(set, name)):
			restore = append(restore, name)
		case was.known && was.session == was.global && !slices.Contains(set, name):
			// The servers have different defaults: the session gets those of its server.
		default:
			other = name
		}
	}
	return restore, other, nil
}

// appendSet appends the command that gives a new session the values of f.
func (f facts) appendSet(dst []byte, names []string, noEscapes bool) []byte {
	dst = append(append(dst, byte(wire.ComQuery)), "SET "...)
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(append(append(dst, "@@SESSION."...), strings.ToLower(name)...), " = "...)
		switch v := f[name].session; {
		case v == "" && name == "CHARACTER_SET_RESULTS":
			dst = append(dst, "NULL"...)
		case isNumber(v):
			dst = append(dst, v...)
		default:
			dst = append(append(append(dst, '\''), escape(v, noEscapes)...), '\'')
		}
	}
	return dst
}

// isNumber reports whether a value needs no quotes.
func isNumber(v string) bool {
	return v != "" && strings.Trim(v, "0123456789.") == "" && v[0] != '.' && strings.Count(v, ".") <= 1
}

func escape(v string, noEscapes bool) string {
	if !noEscapes {
		v = strings.ReplaceAll(v, `\`, `\\`)
	}
	return strings.ReplaceAll(v, `'`, `''`)
}
