package mysqltest

import (
	"encoding/binary"
	"fmt"
	"math"

	"penstock/mysql/wire"
)

// stmt is a prepared statement.
type stmt struct {
	id      uint32
	text    string
	db      string
	columns []string // of the rows it will have
	params  int
	types   []byte            // of the parameters, two bytes each, from the last execute that told them
	long    map[uint16][]byte // COM_STMT_SEND_LONG_DATA
	cursor  *result
}

func (s *stmt) closeCursor() { s.cursor = nil }

// prepare parses a statement that may have parameters.
func prepare(id uint32, text, db string) (*stmt, error) {
	p, err := parse(text)
	if err != nil {
		return nil, err
	}
	return &stmt{id: id, text: text, db: db, columns: p.selected(), params: p.params(), long: map[uint16][]byte{}}, nil
}

func (c *conn) stmtPrepare(text string) error {
	s, err := prepare(c.lastStmt+1, text, c.db)
	if err != nil {
		return err
	}
	c.lastStmt++
	c.stmts[s.id] = s
	p := binary.LittleEndian.AppendUint32([]byte{0}, s.id)
	p = binary.LittleEndian.AppendUint16(p, uint16(len(s.columns)))
	p = binary.LittleEndian.AppendUint16(p, uint16(s.params))
	c.write(append(p, 0, 0, 0))
	part := func(n int, name func(int) string) {
		for i := range n {
			c.write(definition(c.db, name(i), typeVarString))
		}
		if n > 0 && c.caps&wire.DeprecateEOF == 0 {
			c.writeEnd(c.status())
		}
	}
	part(s.params, func(int) string { return "?" })
	part(len(s.columns), func(i int) string { return s.columns[i] })
	return nil
}

// stmtCommand executes a command that names a prepared statement.
func (c *conn) stmtCommand(command wire.Command, body []byte) error {
	if len(body) < 4 {
		return errCommand
	}
	id := binary.LittleEndian.Uint32(body)
	s := c.stmts[id]
	switch command {
	case wire.ComStmtClose: // without an answer
		delete(c.stmts, id)
		return nil
	case wire.ComStmtSendLongData: // without an answer
		if s != nil && len(body) >= 6 {
			param := binary.LittleEndian.Uint16(body[4:])
			s.long[param] = append(s.long[param], body[6:]...)
		}
		return nil
	}
	if s == nil {
		return wire.Error{Code: 1243, State: "HY000", Message: fmt.Sprintf("Unknown prepared statement handler (%d) given to %v", id, command)}
	}
	switch command {
	case wire.ComStmtReset:
		clear(s.long)
		s.closeCursor()
		c.writeOK(&wire.OK{Status: c.status()})
		return nil
	case wire.ComStmtFetch:
		return c.fetch(s, body)
	}
	return c.stmtExecute(s, body)
}

func (c *conn) stmtExecute(s *stmt, body []byte) error {
	const fixed, readOnlyCursor = 9, 1
	s.closeCursor()
	args, err := s.arguments(body)
	clear(s.long)
	if err != nil {
		return err
	}
	p, err := parse(s.text)
	if err != nil {
		return err
	}
	c.warnings = nil
	r, err := c.execute(p, args)
	if err != nil {
		return err
	}
	switch {
	case r.answered:
		return nil
	case r.infile != "":
		return wire.Error{Code: 1295, State: "HY000", Message: "LOAD DATA cannot be prepared"}
	case r.columns == nil:
		c.answerOK(r, 0)
		return nil
	}
	c.writeColumns(r)
	if len(body) >= fixed && body[4]&readOnlyCursor != 0 {
		s.cursor = r
		c.writeEnd(c.status() | wire.CursorExists)
		return nil
	}
	if c.caps&wire.DeprecateEOF == 0 {
		c.writeEnd(c.status())
	}
	return c.writeRows(r, binaryRow(r.types), 0)
}

// fetch sends the next rows of a cursor.
func (c *conn) fetch(s *stmt, body []byte) error {
	if len(body) < 8 {
		return errCommand
	}
	if s.cursor == nil {
		return wire.Error{Code: 1421, State: "HY000", Message: fmt.Sprintf("The statement (%d) has no open cursor.", s.id)}
	}
	encode := binaryRow(s.cursor.types)
	for range binary.LittleEndian.Uint32(body[4:]) {
		row := s.cursor.next()
		if row == nil {
			s.closeCursor()
			c.writeEnd(c.status() | wire.CursorExists | wire.LastRowSent)
			return nil
		}
		c.write(encode(row))
	}
	c.writeEnd(c.status() | wire.CursorExists)
	return nil
}

// arguments decodes the parameters of COM_STMT_EXECUTE.
func (s *stmt) arguments(body []byte) ([]any, error) {
	const fixed = 9 // ID, flags, iteration count
	if s.params == 0 {
		return nil, nil
	}
	nulls := (s.params + 7) / 8
	if len(body) < fixed+nulls+1 {
		return nil, errCommand
	}
	bitmap, rest := body[fixed:fixed+nulls], body[fixed+nulls+1:]
	if body[fixed+nulls] == 1 {
		if len(rest) < 2*s.params {
			return nil, errCommand
		}
		s.types, rest = append([]byte(nil), rest[:2*s.params]...), rest[2*s.params:]
	}
	if len(s.types) != 2*s.params {
		return nil, wire.Error{Code: 1210, State: "HY000", Message: "Incorrect arguments to EXECUTE"}
	}
	args := make([]any, s.params)
	for i := range args {
		if long, ok := s.long[uint16(i)]; ok {
			args[i] = string(long)
			continue
		}
		if bitmap[i/8]&(1<<(i%8)) != 0 {
			continue
		}
		v, n, ok := decodeArgument(s.types[2*i], rest)
		if !ok {
			return nil, errCommand
		}
		args[i], rest = v, rest[n:]
	}
	return args, nil
}

// decodeArgument reads a value of the binary protocol and returns its length.
func decodeArgument(columnType byte, p []byte) (v any, n int, ok bool) {
	const (
		typeTiny, typeShort, typeLong, typeFloat = 1, 2, 3, 4
		typeNull, typeTimestamp, typeInt24       = 6, 7, 9
		typeDate, typeTime, typeDatetime         = 10, 11, 12
	)
	switch columnType {
	case typeNull:
		return nil, 0, true
	case typeTiny:
		n = 1
	case typeShort:
		n = 2
	case typeLong, typeInt24, typeFloat:
		n = 4
	case typeLonglong, typeDouble:
		n = 8
	case typeTimestamp, typeDate, typeTime, typeDatetime:
		if len(p) == 0 || len(p) < 1+int(p[0]) {
			return nil, 0, false
		}
		n = 1 + int(p[0])
		return fmt.Sprintf("%x", p[1:n]), n, true
	default:
		s, n, ok := wire.String(p)
		return string(s), n, ok
	}
	if len(p) < n {
		return nil, 0, false
	}
	switch columnType {
	case typeTiny:
		return int64(int8(p[0])), n, true
	case typeShort:
		return int64(int16(binary.LittleEndian.Uint16(p))), n, true
	case typeFloat:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p))), n, true
	case typeDouble:
		return math.Float64frombits(binary.LittleEndian.Uint64(p)), n, true
	case typeLonglong:
		return int64(binary.LittleEndian.Uint64(p)), n, true
	}
	return int64(int32(binary.LittleEndian.Uint32(p))), n, true
}
