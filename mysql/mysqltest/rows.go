package mysqltest

import (
	"encoding/binary"
	"math"
	"strconv"

	"penstock/mysql/wire"
)

// Types of columns.
const (
	typeLonglong  = 8
	typeDouble    = 5
	typeVarString = 253
)

// result is what a statement leads to: rows, an OK, or a request for a file.
type result struct {
	columns  []string // nil: no rows
	types    []byte   // of the columns
	next     func() []any
	ok       wire.OK // Status and Warnings are added
	infile   string  // LOAD DATA LOCAL INFILE
	answered bool    // a hook has answered
}

// table returns a result with rows. The first row decides on types.
func table(columns []string, rows ...[]any) *result {
	r := &result{columns: columns, types: make([]byte, len(columns))}
	for i := range columns {
		r.types[i] = typeVarString
		if len(rows) > 0 {
			r.types[i] = typeOf(rows[0][i])
		}
	}
	r.next = func() []any {
		if len(rows) == 0 {
			return nil
		}
		row := rows[0]
		rows = rows[1:]
		return row
	}
	return r
}

func typeOf(v any) byte {
	switch v.(type) {
	case int64:
		return typeLonglong
	case float64:
		return typeDouble
	}
	return typeVarString
}

// definition returns a Protocol::ColumnDefinition41.
func definition(db, name string, columnType byte) []byte {
	p := wire.AppendString(nil, "def")
	p = wire.AppendString(p, db)
	p = wire.AppendString(p, "")
	p = wire.AppendString(p, "")
	p = wire.AppendString(p, name)
	p = wire.AppendString(p, name)
	collation, length := uint16(46), uint32(math.MaxUint32)
	if columnType != typeVarString {
		collation, length = 63, 20 // binary
	}
	p = binary.LittleEndian.AppendUint16(append(p, 0x0c), collation)
	p = binary.LittleEndian.AppendUint32(p, length)
	return append(p, columnType, 0, 0, 0, 0, 0)
}

// writeColumns writes the number and definitions of columns, without an end.
func (c *conn) writeColumns(r *result) {
	c.write(wire.AppendInt(nil, uint64(len(r.columns))))
	for i, name := range r.columns {
		c.write(definition(c.db, name, r.types[i]))
	}
}

// writeRows writes rows until there are none, and their end.
func (c *conn) writeRows(r *result, encode func([]any) []byte, more wire.Status) error {
	const held = 64 << 10
	for row := r.next(); row != nil; row = r.next() {
		c.write(encode(row))
		if len(c.out) > held {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	c.writeEnd(c.status() | more)
	return nil
}

// textRow encodes a row of the text protocol.
func textRow(row []any) []byte {
	var p []byte
	for _, v := range row {
		if v == nil {
			p = append(p, 0xfb)
			continue
		}
		p = wire.AppendString(p, textOf(v))
	}
	return p
}

// textOf returns a value as text.
func textOf(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return v
	}
	return ""
}

// binaryRow encodes a row of the binary protocol, for columns of types.
func binaryRow(types []byte) func([]any) []byte {
	return func(row []any) []byte {
		const reserved = 2 // bits at the beginning of the bitmap of NULLs
		nulls := make([]byte, (len(row)+7+reserved)/8)
		var values []byte
		for i, v := range row {
			switch {
			case v == nil:
				nulls[(i+reserved)/8] |= 1 << ((i + reserved) % 8)
			case types[i] == typeLonglong:
				n, _ := v.(int64)
				values = binary.LittleEndian.AppendUint64(values, uint64(n))
			case types[i] == typeDouble:
				f, _ := v.(float64)
				values = binary.LittleEndian.AppendUint64(values, math.Float64bits(f))
			default:
				values = wire.AppendString(values, textOf(v))
			}
		}
		return append(append([]byte{0}, nulls...), values...)
	}
}
