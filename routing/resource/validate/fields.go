package validate

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"penstock/routing/resource"
)

// Fields checks the ranges and words of a spec's field tags, at any depth.
// Fields that are left out pass. It is the first check of every spec.
func Fields(spec any, report Report) {
	checkStruct(reflect.ValueOf(spec).Elem(), nil, report)
}

func checkStruct(v reflect.Value, path []byte, report Report) {
	p := resource.SchemaOf(v.Type())
	if p.List >= 0 {
		checkInner(v.Field(p.List), path, report)
	}
	for i := range p.Fields {
		f := &p.Fields[i]
		fv := v.Field(f.Index)
		if !f.Nested && !f.Bounded && len(f.OneOf) == 0 || fv.IsZero() {
			continue
		}
		if fv.Kind() == reflect.Pointer {
			fv = fv.Elem()
		}
		at := resource.AppendStep(path, f.Name)
		switch {
		case f.Nested:
			checkInner(fv, at, report)
		case f.Bounded && (fv.Int() < f.Min || fv.Int() > f.Max):
			lo, hi, _ := strings.Cut(f.Range, "..")
			report(string(at), fmt.Sprintf("must be from %s to %s", lo, hi), fv.Interface())
		case len(f.OneOf) > 0 && !slices.Contains(f.OneOf, fv.String()):
			report(string(at), "must be "+orList(f.OneOf)+resource.DidYouMean(fv.String(), f.OneOf), fv.String())
		}
	}
}

func checkInner(v reflect.Value, path []byte, report Report) {
	switch v.Kind() {
	case reflect.Struct:
		checkStruct(v, path, report)
	case reflect.Slice:
		for i := range v.Len() {
			at := append(strconv.AppendInt(append(path, '['), int64(i), 10), ']')
			checkInner(v.Index(i), at, report)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			checkInner(v.Elem(), path, report)
		}
	case reflect.Map:
		for _, k := range resource.SortedKeys(v) {
			checkInner(v.MapIndex(k), resource.AppendStep(path, k.String()), report)
		}
	}
}

// orList formats words as "a, b or c".
func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
