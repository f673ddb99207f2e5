package logs

import (
	"encoding/binary"
	"log/slog"
	"math"
	"strconv"
	"time"

	"penstock/node/accesslog"
	"penstock/node/api"
)

const (
	// maxText bounds the message and each value of a line, in bytes.
	maxText = 4 << 10
	// maxLine bounds the payload of a line.
	maxLine = 16 << 10
	// truncatedKey is the key of the number of bytes that are left out of a line.
	truncatedKey = "truncated"
	// roomForTruncated is what is kept free for it.
	roomForTruncated = 32
)

// The kinds of values in a payload.
const (
	kindText     = iota // its length and bytes
	kindInt             // a varint
	kindUint            // a uvarint
	kindDuration        // a varint
	kindFloat           // 8 bytes
	kindBool            // 1 byte
	kindTime            // a varint: nanoseconds since 1970
)

// known are keys and messages that a payload has by their number.
var known, numbers = func() (list []string, byText map[string]uint64) {
	list = append(list, "") // 0: the text follows
	for e := accesslog.Connected; e <= accesslog.Requested; e++ {
		list = append(list, e.String())
	}
	list = append(list, accesslog.Fields...)
	list = append(list, "connection", "name", "node", "file", "address", "kind", "index", "reasons", "signal", "from", "to", truncatedKey)
	byText = map[string]uint64{}
	for i, s := range list {
		byText[s] = uint64(i) //nolint:gosec // not negative
	}
	return list, byText
}()

// appendLine appends the payload of a line: its time, level, message and values.
func appendLine(dst []byte, at time.Time, level slog.Level, message string, attrs []slog.Attr) []byte {
	start, cut := len(dst), 0
	dst = binary.AppendVarint(dst, at.UnixNano())
	dst = binary.AppendVarint(dst, int64(level))
	message, n := bounded(message)
	cut += n
	dst = appendKnown(dst, message)
	for i := range attrs {
		before := len(dst)
		dst, n = appendAttr(dst, &attrs[i])
		cut += n
		if len(dst)-start > maxLine-roomForTruncated {
			cut += len(dst) - before
			dst = dst[:before]
		}
	}
	if cut > 0 {
		a := slog.Int(truncatedKey, cut)
		dst, _ = appendAttr(dst, &a)
	}
	return dst
}

// bounded cuts a text to maxText bytes, and returns how many are cut off.
func bounded(s string) (text string, cut int) {
	if len(s) <= maxText {
		return s, 0
	}
	return s[:maxText], len(s) - maxText
}

// appendKnown appends a key or a message.
func appendKnown(dst []byte, s string) []byte {
	if n := numbers[s]; n > 0 {
		return binary.AppendUvarint(dst, n)
	}
	dst = append(dst, 0)
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// appendAttr appends a value with its key, and returns how many bytes of it are cut off.
func appendAttr(dst []byte, a *slog.Attr) (_ []byte, cut int) {
	key, cut := bounded(a.Key)
	dst = appendKnown(dst, key)
	v := a.Value
	switch v.Kind() {
	case slog.KindInt64:
		return binary.AppendVarint(append(dst, kindInt), v.Int64()), cut
	case slog.KindUint64:
		return binary.AppendUvarint(append(dst, kindUint), v.Uint64()), cut
	case slog.KindDuration:
		return binary.AppendVarint(append(dst, kindDuration), int64(v.Duration())), cut
	case slog.KindFloat64:
		return binary.BigEndian.AppendUint64(append(dst, kindFloat), math.Float64bits(v.Float64())), cut
	case slog.KindBool:
		if v.Bool() {
			return append(dst, kindBool, 1), cut
		}
		return append(dst, kindBool, 0), cut
	case slog.KindTime:
		return binary.AppendVarint(append(dst, kindTime), v.Time().UnixNano()), cut
	}
	text, n := bounded(v.String())
	dst = binary.AppendUvarint(append(dst, kindText), uint64(len(text)))
	return append(dst, text...), cut + n
}

// reader reads a payload.
type reader struct{ rest []byte }

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	r.rest = r.rest[n:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.rest = r.rest[n:]
	return v
}

func (r *reader) bytes(n uint64) []byte {
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// known returns a key or a message. It is that of known if number is not 0.
func (r *reader) known() (number uint64, text []byte) {
	if number = r.uvarint(); number > 0 {
		return number, nil
	}
	return 0, r.bytes(r.uvarint())
}

// value is one that was read, without its text.
type value struct {
	kind byte
	n    uint64 // of the other kinds, as bits
	text []byte
}

func (r *reader) value() (v value) {
	v.kind = r.bytes(1)[0]
	switch v.kind {
	case kindText:
		v.text = r.bytes(r.uvarint())
	case kindInt, kindDuration, kindTime:
		v.n = uint64(r.varint()) //nolint:gosec // bits
	case kindUint:
		v.n = r.uvarint()
	case kindFloat:
		v.n = binary.BigEndian.Uint64(r.bytes(8))
	case kindBool:
		v.n = uint64(r.bytes(1)[0])
	}
	return v
}

// appendText appends the value as people read it.
func (v *value) appendText(dst []byte) []byte {
	signed := int64(v.n) //nolint:gosec // bits
	switch v.kind {
	case kindInt:
		return strconv.AppendInt(dst, signed, 10)
	case kindUint:
		return strconv.AppendUint(dst, v.n, 10)
	case kindDuration:
		return append(dst, time.Duration(signed).String()...)
	case kindFloat:
		return strconv.AppendFloat(dst, math.Float64frombits(v.n), 'g', -1, 64)
	case kindBool:
		return strconv.AppendBool(dst, v.n == 1)
	case kindTime:
		return time.Unix(0, signed).UTC().AppendFormat(dst, time.RFC3339Nano)
	}
	return append(dst, v.text...)
}

// entry returns the line of a payload.
func (l *Logs) entry(payload []byte) api.LogEntry {
	r := reader{payload}
	e := api.LogEntry{At: time.Unix(0, r.varint()).UTC(), Node: l.node, Level: levelText(slog.Level(r.varint()))}
	e.Message = textOf(r.known())
	var buffer [64]byte
	for len(r.rest) > 0 {
		key := textOf(r.known())
		v := r.value()
		e.Attrs = append(e.Attrs, api.LogAttr{Key: key, Value: string(v.appendText(buffer[:0]))})
	}
	return e
}

func textOf(number uint64, text []byte) string {
	if number > 0 {
		return known[number]
	}
	return string(text)
}

// levelText returns debug, info, warn or error.
func levelText(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warn"
	case l >= slog.LevelInfo:
		return "info"
	}
	return "debug"
}
