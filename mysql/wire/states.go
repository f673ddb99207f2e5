package wire

import (
	"bytes"
	"fmt"
	"strings"
)

// The statements and names by which TiDB 6.5 and later hands a session to another
// server, as its parser and its protocol have them. The states are JSON that only
// servers interpret; the token is a signed credential that lives 60 s.
const (
	// ShowStates asks for the states of the session: one row with two columns.
	ShowStates = "SHOW SESSION_STATES"
	// TokenPlugin is the authentication plugin that takes the token.
	TokenPlugin = "tidb_session_token"

	setStates   = "SET SESSION_STATES '"
	statesName  = "Session_states"
	tokenName   = "Session_token"
	statesCount = 2 // columns
)

// statesEscaper escapes JSON for a string in single quotes.
var statesEscaper = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

// States is what a server answers to ShowStates.
type States struct {
	JSON  string // for AppendSetStates
	Token []byte // a secret; empty if the session cannot move now
}

// AppendShowStates appends the command that asks for the states.
func AppendShowStates(dst []byte) []byte {
	return append(append(dst, byte(ComQuery)), ShowStates...)
}

// AppendSetStates appends the command that gives a new session the states json.
// The server must not have NO_BACKSLASH_ESCAPES in force for new sessions: it
// answers with an error otherwise. The payload may need several packets.
func AppendSetStates(dst []byte, json string) []byte {
	dst = append(append(dst, byte(ComQuery)), setStates...)
	return append(append(dst, statesEscaper.Replace(json)...), '\'')
}

// TokenLogin returns l with the token in place of its authentication data.
func TokenLogin(l Login, token []byte) Login {
	l.Plugin, l.Auth = TokenPlugin, token
	l.Capabilities |= PluginAuth | SecureConnection | PluginAuthLenencClientData
	return l
}

// StatesReader reads the answer to ShowStates, packet by packet. The zero value is
// ready for the first.
type StatesReader struct {
	States States // once Add has returned done

	step    statesStep
	columns int // definitions that have been read
}

type statesStep uint8

const (
	statesCountDue statesStep = iota
	statesColumnDue
	statesColumnsEndDue
	statesRowDue
	statesRowsEndDue
	statesDone
)

// Add takes the next payload, put together where it spans several packets. done
// reports that the answer is complete. An error that the server answers with is
// an Error. After an error, the reader is useless.
func (r *StatesReader) Add(p []byte, caps Capabilities) (done bool, err error) {
	if len(p) == 0 {
		return false, fmt.Errorf("%w: session states: empty packet", ErrMalformed)
	}
	// A row may begin with 0xff only by mistake: lengths do not.
	if IsError(p) {
		refusal, err := ParseError(p)
		if err == nil {
			err = refusal
		}
		return false, err
	}
	switch r.step {
	case statesCountDue:
		if n, size, ok := Int(p); !ok || size != len(p) || n != statesCount {
			return false, fmt.Errorf("%w: session states: the answer does not have %d columns", ErrMalformed, statesCount)
		}
		r.step = statesColumnDue
	case statesColumnDue:
		err = r.column(p, caps)
	case statesColumnsEndDue:
		_, _, err = ParseEOF(p)
		r.step = statesRowDue
	case statesRowDue:
		r.States, err = parseStatesRow(p)
		r.step = statesRowsEndDue
	case statesRowsEndDue:
		return r.end(p, caps)
	case statesDone:
		err = fmt.Errorf("%w: session states: a packet after the end", ErrMalformed)
	}
	return false, err
}

// column checks the name in a column's definition (Protocol::ColumnDefinition41).
func (r *StatesReader) column(p []byte, caps Capabilities) error {
	f := fields{packet: "session states", b: p}
	for _, field := range []string{"catalog", "schema", "table", "original table"} {
		f.string("a column's " + field)
	}
	want := statesName
	if r.columns == 1 {
		want = tokenName
	}
	if name := f.string("a column's name"); f.err == nil && !strings.EqualFold(string(name), want) {
		f.fail("a column", "is not "+want)
	}
	f.rest()
	if r.columns++; r.columns == statesCount {
		r.step = statesColumnsEndDue
		if caps&DeprecateEOF != 0 {
			r.step = statesRowDue
		}
	}
	return f.done()
}

// parseStatesRow parses a text row: a length-encoded string for each column, or
// NULL.
func parseStatesRow(p []byte) (States, error) {
	f := fields{packet: "session states", b: p}
	json := f.nullable("the states")
	token := f.nullable("the token")
	if err := f.done(); err != nil {
		return States{}, err
	}
	return States{JSON: string(json), Token: bytes.Clone(token)}, nil
}

// nullable reads a value of a text row; nil is NULL.
func (f *fields) nullable(field string) []byte {
	if len(f.b) > 0 && f.b[0] == headerNull {
		f.span(1, field)
		return nil
	}
	return f.string(field)
}

func (r *StatesReader) end(p []byte, caps Capabilities) (done bool, err error) {
	switch {
	case !IsRowsEnd(p[0], len(p), caps):
		err = fmt.Errorf("%w: session states: more than one row", ErrMalformed)
	case caps&DeprecateEOF != 0:
		_, err = ParseOK(p, caps)
	default:
		_, _, err = ParseEOF(p)
	}
	if err == nil {
		r.step = statesDone
	}
	return err == nil, err
}
