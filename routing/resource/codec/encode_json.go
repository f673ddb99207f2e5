package codec

import (
	"reflect"
	"strconv"
	"unicode/utf8"

	"penstock/routing/resource"
)

// jsonEncoder writes objects as JSON on one line.
type jsonEncoder struct{ clear bool }

func (e jsonEncoder) encodeObject(o resource.Object) []byte {
	dst := appendText([]byte(`{"kind":`), o.Kind)
	dst = appendText(append(dst, `,"name":`...), o.Name)
	if o.Version != 0 {
		dst = strconv.AppendUint(append(dst, `,"version":`...), o.Version, 10)
	}
	if len(o.Labels) > 0 {
		dst = e.encodeValue(append(dst, `,"labels":`...), reflect.ValueOf(o.Labels))
	}
	return append(e.encodeValue(append(dst, `,"spec":`...), reflect.ValueOf(o.Spec).Elem()), '}')
}

// encodeValue writes a value, which must not be nil.
func (e jsonEncoder) encodeValue(dst []byte, v reflect.Value) []byte {
	if text, ok := leafText(v); ok {
		return appendText(dst, text)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return e.encodeValue(dst, v.Elem())
	case reflect.Struct:
		if list, ok := listForm(v); ok {
			return e.encodeList(dst, list)
		}
		return e.encodeStruct(dst, v)
	case reflect.Slice:
		return e.encodeList(dst, v)
	case reflect.Map:
		dst = append(dst, '{')
		for i, k := range resource.SortedKeys(v) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = e.encodeValue(append(appendText(dst, k.String()), ':'), v.MapIndex(k))
		}
		return append(dst, '}')
	case reflect.Bool:
		return strconv.AppendBool(dst, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(dst, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(dst, v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		return append(dst, floatText(v.Float(), v.Type().Bits())...)
	}
	if secret, ok := v.Interface().(resource.Secret); ok && !e.clear {
		return appendText(dst, secret.String())
	}
	return appendText(dst, v.String())
}

func (e jsonEncoder) encodeStruct(dst []byte, v reflect.Value) []byte {
	dst = append(dst, '{')
	first := true
	for _, f := range resource.SchemaOf(v.Type()).Fields {
		fv := v.Field(f.Index)
		if isEmpty(fv) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = e.encodeValue(append(appendText(dst, f.Name), ':'), fv)
	}
	return append(dst, '}')
}

func (e jsonEncoder) encodeList(dst []byte, v reflect.Value) []byte {
	dst = append(dst, '[')
	if texts, ok := v.Interface().([]string); ok {
		for i, s := range texts { // fast path for lists of 100,000 names
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendText(dst, s)
		}
		return append(dst, ']')
	}
	for i := range v.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = e.encodeValue(dst, v.Index(i))
	}
	return append(dst, ']')
}

const hexDigits = "0123456789abcdef"

// appendText appends a JSON string. Invalid UTF-8, which decoding refuses,
// becomes the replacement character.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0 // s[:from] is written
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		size := 1
		switch {
		case c >= utf8.RuneSelf:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		default:
			dst = append(append(dst, `\u00`...), hexDigits[c>>4], hexDigits[c&15])
		}
		i += size
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}
