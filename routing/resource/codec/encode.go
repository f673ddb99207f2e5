package codec

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
)

// EncodeWithSecrets returns the form in which objects are stored and sent to a
// node to be applied: JSON, one form for one content, with exactly the fields
// that the user wrote and SECRETS IN CLEAR. Restore decodes it.
func EncodeWithSecrets(o resource.Object) []byte { return jsonEncoder{clear: true}.encodeObject(o) }

// EncodeJSON returns an object as indented JSON, secrets hidden.
func EncodeJSON(o resource.Object) []byte {
	var out bytes.Buffer
	// Indent fails only for invalid JSON, which the encoder does not write.
	_ = json.Indent(&out, jsonEncoder{}.encodeObject(o), "", "  ")
	out.WriteByte('\n')
	return out.Bytes()
}

// EncodeYAML returns an object as YAML, secrets hidden, with the fields in the
// order of the manual. It can be applied again; see FillHidden.
func EncodeYAML(o resource.Object) []byte {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	// No error is possible: the tree is well-formed, and the buffer accepts it.
	_ = e.Encode(yamlObject(o))
	_ = e.Close()
	return out.Bytes()
}

// isEmpty reports whether a value was left out and is not written. A non-nil
// pointer is written even if it points to an empty struct: "tls: {}" has a
// meaning.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		if resource.IsLeaf(v) {
			return v.IsZero()
		}
		for _, f := range resource.SchemaOf(v.Type()).Fields {
			if !isEmpty(v.Field(f.Index)) {
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
	p := resource.SchemaOf(v.Type())
	if p.List < 0 || v.Field(p.List).Len() == 0 {
		return reflect.Value{}, false
	}
	return v.Field(p.List), true
}

// leafText returns the text of a value that is written as a string, such as a
// duration or a network.
func leafText(v reflect.Value) (string, bool) {
	if v.Kind() == reflect.String || !resource.IsLeaf(v) {
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
