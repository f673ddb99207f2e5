package accesslog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Format appends the line of a record, without a newline at its end or inside, and
// returns dst if the format has no line for it. One goroutine uses it.
type Format func(dst []byte, r *Record) []byte

// The names of the formats.
const (
	FormatText    = "text"    // key=value, as slog writes it
	FormatJSON    = "json"    // one object
	FormatHAProxy = "haproxy" // HAProxy's tcplog and httplog
	FormatEnvoy   = "envoy"   // Envoy's default line
)

// FormatNames lists the formats.
var FormatNames = []string{FormatText, FormatJSON, FormatHAProxy, FormatEnvoy}

// NewFormat returns the format with this name. With fields, lines have these alone, in
// this order, each of them in every line.
func NewFormat(name string, fields []string) (Format, error) {
	for i, f := range fields {
		switch {
		case !slices.Contains(Fields, f):
			return nil, fmt.Errorf("there is no field %.40q: want some of %s", f, strings.Join(Fields, ", "))
		case slices.Contains(fields[:i], f):
			return nil, fmt.Errorf("field %s is given twice", f)
		}
	}
	switch name {
	case FormatText, FormatJSON:
		if len(fields) > 0 {
			return pickedFormat(fields, name == FormatJSON), nil
		}
		return slogFormat(name == FormatJSON), nil
	case FormatHAProxy, FormatEnvoy:
		if len(fields) > 0 {
			return nil, fmt.Errorf("the format %s has fields of its own: pick fields with text or json", name)
		}
		if name == FormatHAProxy {
			return appendHAProxy, nil
		}
		return appendEnvoy, nil
	}
	return nil, fmt.Errorf("%.40q: want one of %s", name, strings.Join(FormatNames, ", "))
}

// Seconds converts durations to seconds, which slog writes as nanoseconds in JSON.
// It is a ReplaceAttr function for slog.HandlerOptions.
func Seconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key, a.Value.Duration().Seconds())
	}
	return a
}

// slogFormat writes as slog's handlers do.
func slogFormat(asJSON bool) Format {
	var out bytes.Buffer
	var h slog.Handler = slog.NewTextHandler(&out, nil)
	if asJSON {
		h = slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: Seconds})
	}
	var attrs []slog.Attr
	return func(dst []byte, r *Record) []byte {
		attrs = r.AppendAttrs(attrs[:0])
		line := slog.NewRecord(r.At, slog.LevelInfo, r.Event.String(), 0)
		line.AddAttrs(attrs...)
		out.Reset()
		_ = h.Handle(context.Background(), line) // a Buffer returns no error
		written := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
		if asJSON {
			return appendWithoutControls(dst, written)
		}
		// slog quotes the other controls, but not a DEL.
		return append(dst, bytes.ReplaceAll(written, []byte{0x7f}, []byte(`\x7f`))...)
	}
}

// pickedFormat writes the values of some fields. A value that the record does not have
// is - in text, and null in JSON.
func pickedFormat(fields []string, asJSON bool) Format {
	var attrs []slog.Attr
	return func(dst []byte, r *Record) []byte {
		attrs = append(r.AppendAttrs(attrs[:0]), slog.Time("time", r.At), slog.String("level", slog.LevelInfo.String()),
			slog.String("msg", r.Event.String()))
		if asJSON {
			dst = append(dst, '{')
		}
		for i, f := range fields {
			value := slog.Value{}
			for _, a := range attrs {
				if a.Key == f {
					value = a.Value
				}
			}
			switch {
			case asJSON && i > 0:
				dst = append(dst, ',')
			case i > 0:
				dst = append(dst, ' ')
			}
			if asJSON {
				dst = append(append(append(dst, '"'), f...), `":`...)
				dst = appendJSONValue(dst, value)
			} else {
				dst = append(append(dst, f...), '=')
				dst = appendTextValue(dst, value)
			}
		}
		if asJSON {
			dst = append(dst, '}')
		}
		return dst
	}
}

func appendJSONValue(dst []byte, v slog.Value) []byte {
	switch v.Kind() {
	case slog.KindString:
		return appendJSONString(dst, v.String())
	case slog.KindInt64:
		return strconv.AppendInt(dst, v.Int64(), 10)
	case slog.KindUint64:
		return strconv.AppendUint(dst, v.Uint64(), 10)
	case slog.KindDuration:
		return strconv.AppendFloat(dst, v.Duration().Seconds(), 'g', -1, 64)
	case slog.KindTime:
		return appendJSONString(dst, v.Time().Format(time.RFC3339Nano))
	}
	return append(dst, "null"...)
}

func appendJSONString(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // it is a string: there is none
		return append(dst, "null"...)
	}
	return appendWithoutControls(dst, b)
}

// appendWithoutControls appends JSON with the control characters escaped that JSON allows
// in strings, and that terminals act on: DEL and U+0080 to U+009F.
func appendWithoutControls(dst, b []byte) []byte {
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == 0x7f:
			dst = append(dst, `\u007f`...)
		case c == 0xc2 && i+1 < len(b) && b[i+1] < 0xa0:
			i++
			dst = fmt.Appendf(dst, `\u%04x`, b[i])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func appendTextValue(dst []byte, v slog.Value) []byte {
	switch v.Kind() {
	case slog.KindAny: // not there
		return append(dst, '-')
	case slog.KindTime:
		return v.Time().AppendFormat(dst, "2006-01-02T15:04:05.000Z07:00")
	case slog.KindString:
		if s := v.String(); s == "-" || needsQuotes(s) {
			return strconv.AppendQuote(dst, s)
		}
	}
	return append(dst, v.String()...)
}

// needsQuotes reports whether a value must be quoted, by the rules of slog's text.
func needsQuotes(s string) bool {
	return s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == '"' || r == '=' || r == 0x7f || !strconv.IsPrint(r)
	})
}
