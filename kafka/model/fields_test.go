package model

import (
	"reflect"
	"regexp"
	"testing"

	"penstock/routing/resource/manual"
)

func TestCommentsMatchDefaultsAndBounds(t *testing.T) {
	var fields []manual.Field
	eachField(func(s reflect.Type, f reflect.StructField) {
		fields = append(fields, manual.Field{Struct: s, StructField: f})
		if key := f.Tag.Get("yaml"); f.Tag.Get("form") == "" && !regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`).MatchString(key) {
			t.Errorf("%s.%s has the key %q", s.Name(), f.Name, key)
		}
	})
	manual.Check(t, fields)
}
