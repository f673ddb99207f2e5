package resource

import (
	"maps"
	"reflect"
	"slices"
)

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
		if IsLeaf(a) {
			return reflect.DeepEqual(a.Interface(), b.Interface())
		}
		p := SchemaOf(a.Type())
		if p.List >= 0 && !sameValue(a.Field(p.List), b.Field(p.List)) {
			return false
		}
		for _, f := range p.Fields {
			if !sameValue(a.Field(f.Index), b.Field(f.Index)) {
				return false
			}
		}
		return true
	}
	return a.Equal(b)
}
