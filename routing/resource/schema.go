package resource

import (
	"encoding"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Field tags besides yaml hold defaults and simple bounds, next to the comment
// that documents them:
//
//	default:"5s"       the value of a field that is left out
//	range:"3s..1h"     the least and the most, for numbers and durations
//	oneof:"tcp tls"    the allowed words
//	form:"list"        the struct may be written as this list instead; the
//	                   field has no key of its own
//	variant:"type"     the field is an interface; the word in the field with
//	                   that key selects its type; see codec.VariantSpec
//
// A field that has a default and is no pointer cannot be written as 0 or "".

// Schema holds the fields and tags of a struct type.
type Schema struct {
	Fields []Field
	ByName map[string]int // yaml key -> place in Fields
	Names  []string       // yaml keys, in order
	List   int            // index of the field of form:"list"; -1: none
}

// Field is one field of a struct.
type Field struct {
	Name     string // yaml key
	Index    int    // in the struct
	Pointer  bool
	Default  string // "": none
	OneOf    []string
	Min, Max int64 // if bounded
	Bounded  bool
	Range    string // "3s..1h"
	Nested   bool   // holds structs, which have checks and defaults of their own
	Variant  string // yaml key of the field whose word selects this one's type
}

// schemas caches SchemaOf, a pure function of the type. The map is replaced and
// never changed, so that the lookup for each value that is compared, checked or
// filled in takes no lock.
var (
	schemas   atomic.Pointer[map[reflect.Type]*Schema]
	schemasMu sync.Mutex // held while the map is replaced
)

// SchemaOf returns the schema of a struct type.
func SchemaOf(t reflect.Type) *Schema {
	if known := schemas.Load(); known != nil {
		if p, ok := (*known)[t]; ok {
			return p
		}
	}
	p := makeSchema(t)
	schemasMu.Lock()
	defer schemasMu.Unlock()
	next := map[reflect.Type]*Schema{t: p}
	if known := schemas.Load(); known != nil {
		maps.Copy(next, *known)
	}
	schemas.Store(&next)
	return p
}

func makeSchema(t reflect.Type) *Schema {
	p := &Schema{ByName: map[string]int{}, List: -1}
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Tag.Get("form") == "list" {
			p.List = i
			continue
		}
		name, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if !sf.IsExported() || name == "" || name == "-" {
			continue
		}
		f := Field{
			Name:    name,
			Index:   i,
			Pointer: sf.Type.Kind() == reflect.Pointer,
			Default: sf.Tag.Get("default"),
			OneOf:   strings.Fields(sf.Tag.Get("oneof")),
			Range:   sf.Tag.Get("range"),
			Nested:  holdsStruct(sf.Type),
			Variant: sf.Tag.Get("variant"),
		}
		if lo, hi, ok := strings.Cut(f.Range, ".."); ok {
			f.Min, f.Max, f.Bounded = number(lo), number(hi), true
		}
		p.ByName[name] = len(p.Fields)
		p.Fields = append(p.Fields, f)
		p.Names = append(p.Names, name)
	}
	return p
}

func holdsStruct(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(textType)
}

// number parses a bound or default of a tag: a whole number, a size in bytes or
// a duration in nanoseconds. It needs no error, since a test parses all tags.
func number(s string) int64 {
	if size, err := ParseSize(s); err == nil {
		return int64(size)
	}
	d, _ := ParseDuration(s)
	return int64(d)
}

var textType = reflect.TypeFor[encoding.TextUnmarshaler]()

// IsLeaf reports whether v is written as one scalar.
func IsLeaf(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map, reflect.Interface:
		return v.CanAddr() && reflect.PointerTo(v.Type()).Implements(textType)
	}
	return true
}

// SortedKeys returns the keys of a map in order.
func SortedKeys(m reflect.Value) []reflect.Value {
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return keys
}
