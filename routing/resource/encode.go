package resource

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// EncodeWithSecrets returns the form in which objects are stored and sent to a
// node to be applied: JSON, one form for one content, with exactly the fields
// that the user wrote and SECRETS IN CLEAR. Restore decodes it.
func EncodeWithSecrets(o Object) []byte { return jsonEncoder{clear: true}.encodeObject(o) }

// EncodeJSON returns an object as indented JSON, secrets hidden.
func EncodeJSON(o Object) []byte {
	var out bytes.Buffer
	// Indent fails only for invalid JSON, which the encoder does not write.
	_ = json.Indent(&out, jsonEncoder{}.encodeObject(o), "", "  ")
	out.WriteByte('\n')
	return out.Bytes()
}

// EncodeYAML returns an object as YAML, secrets hidden, with the fields in the
// order of the manual. It can be applied again; see FillHidden.
func EncodeYAML(o Object) []byte {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	// No error is possible: the tree is well-formed, and the buffer accepts it.
	_ = e.Encode(yamlObject(o))
	_ = e.Close()
	return out.Bytes()
}

// Equal reports whether two objects have the same content. A default that is
// written out differs from one that is left out: it stays when the default
// changes.
func Equal(a, b Object) bool {
	va, vb := reflect.ValueOf(a.Spec), reflect.ValueOf(b.Spec)
	return a.Key == b.Key && maps.Equal(a.Labels, b.Labels) && va.IsValid() && vb.IsValid() && va.Type() == vb.Type() && sameValue(va, vb)
}

// Same reports whether two values of a spec, such as the configurations of two
// filters, have the same content. Nil means left out.
func Same(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	return va.Type() == vb.Type() && sameValue(va, vb)
}

// sameValue compares values of one type. An empty list or map equals a nil one;
// a pointer to an empty struct does not equal nil.
func sameValue(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		a, b = a.Elem(), b.Elem()
		return a.Type() == b.Type() && sameValue(a, b)
	case reflect.Slice:
		if texts, ok := a.Interface().([]string); ok {
			return slices.Equal(texts, b.Interface().([]string))
		}
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !sameValue(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.Len() != b.Len() {
			return false
		}
		for it := a.MapRange(); it.Next(); {
			other := b.MapIndex(it.Key())
			if !other.IsValid() || !sameValue(it.Value(), other) {
				return false
			}
		}
		return true
	case reflect.Struct:
		if isLeaf(a) {
			return reflect.DeepEqual(a.Interface(), b.Interface())
		}
		p := planOf(a.Type())
		if p.list >= 0 && !sameValue(a.Field(p.list), b.Field(p.list)) {
			return false
		}
		for _, f := range p.fields {
			if !sameValue(a.Field(f.index), b.Field(f.index)) {
				return false
			}
		}
		return true
	}
	return a.Equal(b)
}

// isEmpty reports whether a value was left out and is not written. A non-nil
// pointer is written even if it points to an empty struct: "tls: {}" has a
// meaning.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		if isLeaf(v) {
			return v.IsZero()
		}
		for _, f := range planOf(v.Type()).fields {
			if !isEmpty(v.Field(f.index)) {
				return false
			}
		}
		_, list := listForm(v)
		return !list
	}
	return v.IsZero()
}

// listForm returns the list that a struct is written as, if any.
func listForm(v reflect.Value) (reflect.Value, bool) {
	p := planOf(v.Type())
	if p.list < 0 || v.Field(p.list).Len() == 0 {
		return reflect.Value{}, false
	}
	return v.Field(p.list), true
}

// leafText returns the text of a value that is written as a string, such as a
// duration or a network.
func leafText(v reflect.Value) (string, bool) {
	if v.Kind() == reflect.String || !isLeaf(v) {
		return "", false
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText() // does not fail for decoded and zero values
		return string(text), err == nil
	}
	return "", false
}

// floatText formats a number so that it is parsed as a float again.
func floatText(f float64, bits int) string {
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// sortedKeys returns the keys of a map in order.
func sortedKeys(m reflect.Value) []reflect.Value {
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return keys
}
