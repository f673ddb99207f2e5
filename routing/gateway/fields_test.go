package gateway

import (
	"reflect"
	"testing"

	"penstock/routing/resource/manual"
)

func eachField(t reflect.Type, seen map[reflect.Type]bool, do func(reflect.Type, reflect.StructField)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	for i := range t.NumField() {
		do(t, t.Field(i))
		eachField(t.Field(i).Type, seen, do)
	}
}

func TestCommentsMatchDefaultsAndBounds(t *testing.T) {
	var fields []manual.Field
	seen := map[reflect.Type]bool{}
	for _, kind := range Kinds() {
		eachField(reflect.TypeOf(kind.New()), seen, func(s reflect.Type, f reflect.StructField) {
			fields = append(fields, manual.Field{Struct: s, StructField: f})
		})
	}
	manual.Check(t, fields)
}
