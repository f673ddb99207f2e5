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

// EncodeWithSecrets gives the form in which objects are stored and sent to a
// node to be applied: JSON, one form for one content, with exactly the fields
// that the user wrote and SECRETS IN CLEAR. Restore reads it.
func EncodeWithSecrets(o Object) []byte { return jsonEncoder{clear: true}.object(o) }

// EncodeJSON gives an object for people and programs, secrets hidden.
func EncodeJSON(o Object) []byte {
	var out bytes.Buffer
	// What the encoder writes is JSON, which is all that Indent asks for.
	_ = json.Indent(&out, jsonEncoder{}.object(o), "", "  ")
	out.WriteByte('\n')
	return out.Bytes()
}

// EncodeYAML gives an object for people, secrets hidden, with the fields in
// the order of the manual. It can be applied again; see FillHidden.
func EncodeYAML(o Object) []byte {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	// Neither the tree, which is well-formed, nor the buffer gives an error.
	_ = e.Encode(yamlObject(o))
	_ = e.Close()
	return out.Bytes()
}

// Equal tells whether two objects say the same. A default that is written out
// differs from one that is left out: it stays when the default changes.
func Equal(a, b Object) bool {
	va, vb := reflect.ValueOf(a.Spec), reflect.ValueOf(b.Spec)
	return a.Key == b.Key && maps.Equal(a.Labels, b.Labels) && va.IsValid() && vb.IsValid() && va.Type() == vb.Type() && sameValue(va, vb)
}

// Same tells whether two values of a spec, such as the configurations of two
// filters, say the same. Nil is what is left out.
func Same(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	return va.Type() == vb.Type() && sameValue(va, vb)
}

// sameValue compares values of one type. An empty list or map is one that is
// left out; a pointer that is left out is not one to an empty struct.
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

// isEmpty tells what is not written: what the user left out. A pointer that is
// there is written even when what it points to is empty: "tls: {}" says
// something.
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

// listForm gives the list that a struct is written as, if it is.
func listForm(v reflect.Value) (reflect.Value, bool) {
	p := planOf(v.Type())
	if p.list < 0 || v.Field(p.list).Len() == 0 {
		return reflect.Value{}, false
	}
	return v.Field(p.list), true
}

// leafText gives the text of a value that is written as one, such as a
// duration or a network.
func leafText(v reflect.Value) (string, bool) {
	if v.Kind() == reflect.String || !isLeaf(v) {
		return "", false
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText() // of values that were decoded or are zero
		return string(text), err == nil
	}
	return "", false
}

// floatText writes a number so that it is read as a float again.
func floatText(f float64, bits int) string {
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// sortedKeys gives the keys of a map in one order.
func sortedKeys(m reflect.Value) []reflect.Value {
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return keys
}
