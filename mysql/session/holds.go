package session

import (
	"encoding/binary"
	"errors"
	"slices"

	"penstock/mysql/wire"
)

// ErrHolds is what a Hold is.
var ErrHolds = errors.New("the session holds something")

// Hold is what a session holds that another server does not have. As an error it is the
// reason why a session does not move.
type Hold string

// Error implements error.
func (h Hold) Error() string { return "the session holds " + string(h) }

// Is implements errors.Is.
func (h Hold) Is(target error) bool { return target == ErrHolds }

// What a session may hold.
const (
	HoldUserVariable    Hold = "a user variable"
	HoldVariable        Hold = "a session variable that only its server can have"
	HoldTemporaryTable  Hold = "a temporary table"
	HoldPrepared        Hold = "a prepared statement"
	HoldUserLock        Hold = "a lock of GET_LOCK"
	HoldTableLock       Hold = "a lock on tables"
	HoldHandler         Hold = "an open handler"
	HoldSequence        Hold = "the last value of a sequence"
	HoldGTID            Hold = "its last GTID"
	HoldRole            Hold = "a role"
	HoldNextTransaction Hold = "a setting for its next transaction"
	HoldConnectionID    Hold = "its connection ID, which the client knows"
	HoldCharacterSet    Hold = "a character set that Penstock does not read"
	HoldFoundRows       Hold = "the number of rows of SQL_CALC_FOUND_ROWS"
	HoldWarnings        Hold = "the warnings or the error of its last statement"
	HoldFunction        Hold = "what a stored function may have left"
	HoldSeveral         Hold = "what a query of several statements may have left"
	HoldUnreadable      Hold = "what a statement may have left that Penstock does not understand"
	HoldUnknown         Hold = "what a statement of another kind may have left"
	HoldCommand         Hold = "what a command of the protocol may have left"
)

// maxPrepared is the number of prepared statements that are told apart.
const maxPrepared = 1024

// keeper knows what a session holds, from its commands and from the statements in them.
// A session has one only where its service moves it by a login of its own; see rejoin.
// What is held stays so until the session is reset, but for what a statement takes from
// the one before.
type keeper struct {
	text     statement
	left     int  // bytes of the text that are still to come
	reading  bool // a text
	prepares bool // it is that of COM_STMT_PREPARE
	lost     bool // the client asks for what was lost by a question or a move

	always   Hold                // until a reset
	last     Hold                // until the next statement
	found    Hold                // until the next SELECT
	prepared map[uint32]struct{} // open statements
	set      []string            // session variables that were set by name

	// A question to the server or a move has come between the last statement and the
	// next, so FOUND_ROWS() and ROW_COUNT() no longer speak of it.
	noFoundRows, noRowCount bool
}

// newKeeper returns the keeper of a session that begins with a collation.
func newKeeper(collation uint16) *keeper {
	k := &keeper{}
	k.reset(collation)
	return k
}

// reset forgets what is held: the server does, too.
func (k *keeper) reset(collation uint16) {
	*k = keeper{text: k.text, set: k.set[:0], noFoundRows: k.noFoundRows, noRowCount: k.noRowCount}
	if !isSafeCollation(collation) {
		k.always = HoldCharacterSet
	}
}

// isSafeCollation reports whether a collation is that of one of safeCharsets.
func isSafeCollation(id uint16) bool {
	return slices.Contains([]uint16{5, 8, 11, 15, 31, 33, 45, 46, 47, 48, 49, 63, 65, 83, 94, 255}, id) ||
		id >= 192 && id <= 215 || id >= 223 && id <= 247
}

// holds returns what is held; nil: nothing.
func (k *keeper) holds() error {
	for _, h := range [...]Hold{k.always, k.last, k.found} {
		if h != "" {
			return h
		}
	}
	if len(k.prepared) > 0 {
		return HoldPrepared
	}
	if k.reading {
		return ErrBusy
	}
	return nil
}

// keep notes what is held until a reset; the first one stays.
func (k *keeper) keep(h Hold) {
	if k.always == "" {
		k.always = h
	}
}

// command notes a command of length bytes, of which first and then rest have come.
func (k *keeper) command(first, rest []byte, length int, status wire.Status) {
	switch c := wire.Command(first[0]); c {
	case wire.ComQuery, wire.ComStmtPrepare:
		if length == wire.MaxPayload {
			k.keep(HoldUnreadable) // it goes on in another packet
			return
		}
		k.prepares = c == wire.ComStmtPrepare
		k.text.begin(status&wire.NoBackslashEscapes != 0)
		k.reading, k.left = true, length-1
		k.more(first[1:])
		k.more(rest)
	case wire.ComStmtExecute, wire.ComStmtBulkExecute:
		k.last, k.found, k.noFoundRows, k.noRowCount = "", "", false, false
	case wire.ComStmtClose:
		if len(first) >= 5 {
			delete(k.prepared, binary.LittleEndian.Uint32(first[1:]))
		}
	case wire.ComQuit, wire.ComInitDB, wire.ComPing, wire.ComStatistics, wire.ComFieldList, wire.ComProcessInfo,
		wire.ComStmtReset, wire.ComStmtFetch, wire.ComStmtSendLongData, wire.ComResetConnection:
	default:
		k.keep(HoldCommand)
	}
}

// more reads more bytes of a text; those behind its end are not looked at.
func (k *keeper) more(p []byte) {
	if !k.reading {
		return
	}
	n := min(len(p), k.left)
	k.text.feed(p[:n])
	if k.left -= n; k.left > 0 {
		return
	}
	k.text.end()
	k.reading = false
	k.conclude()
}

// conclude notes what a statement leaves behind.
func (k *keeper) conclude() {
	t := &k.text
	if t.hold != "" {
		k.keep(t.hold)
	}
	k.lost = k.lost || t.foundRows && k.noFoundRows || t.rowCount && k.noRowCount
	if t.calculates && k.prepares {
		k.keep(HoldFoundRows) // it is not known when it is executed
	}
	if t.selects && !k.prepares {
		if k.found = ""; t.calculates {
			k.found = HoldFoundRows
		}
		k.noFoundRows = k.noFoundRows && t.foundRows
	}
	if !k.prepares {
		k.noRowCount = false
		if t.verb != showWord { // SHOW WARNINGS leaves them
			k.last = ""
		}
	}
	for _, name := range t.names {
		switch {
		case slices.Contains(k.set, name):
		case len(k.set) == maxNames:
			k.keep(HoldVariable)
		default:
			k.set = append(k.set, name)
		}
	}
}

// answered notes the first bytes of a packet of the server.
func (k *keeper) answered(first []byte) {
	if wire.IsError(first) {
		k.last = HoldWarnings
	}
}

// warned notes the number of warnings in an OK or EOF packet, if there are bytes for it.
func (k *keeper) warned(count []byte) {
	if len(count) < 2 || binary.LittleEndian.Uint16(count) > 0 {
		k.last = HoldWarnings
	}
}

// opened notes a prepared statement.
func (k *keeper) opened(id uint32) {
	if len(k.prepared) == maxPrepared {
		k.keep(HoldPrepared)
		return
	}
	if k.prepared == nil {
		k.prepared = map[uint32]struct{}{}
	}
	k.prepared[id] = struct{}{}
}

// asked notes that the server has been asked something.
func (k *keeper) asked() { k.noFoundRows, k.noRowCount = true, true }
