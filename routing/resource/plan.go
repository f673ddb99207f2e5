package resource

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
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
//	                   that key selects its type; see VariantSpec
//
// A field that has a default and is no pointer cannot be written as 0 or "".

// plan caches the fields and tags of a struct type.
type plan struct {
	fields []field
	byName map[string]int // yaml key -> place in fields
	names  []string       // yaml keys, in order
	list   int            // index of the field of form:"list"; -1: none
}

// field is one field of a struct.
type field struct {
	name    string // yaml key
	index   int
	pointer bool
	def     string
	oneOf   []string
	lo, hi  int64 // if bounded
	bounded bool
	span    string // "3s..1h"
	inner   bool   // holds structs, which have checks and defaults of their own
	variant string // yaml key of the field whose word selects this one's type
}

// plans caches planOf, a pure function of the type. The map is replaced and
// never changed, so that the lookup for each value that is compared, checked or
// filled in takes no lock.
var (
	plans   atomic.Pointer[map[reflect.Type]*plan]
	plansMu sync.Mutex // held while the map is replaced
)

func planOf(t reflect.Type) *plan {
	if known := plans.Load(); known != nil {
		if p, ok := (*known)[t]; ok {
			return p
		}
	}
	p := makePlan(t)
	plansMu.Lock()
	defer plansMu.Unlock()
	next := map[reflect.Type]*plan{t: p}
	if known := plans.Load(); known != nil {
		maps.Copy(next, *known)
	}
	plans.Store(&next)
	return p
}

func makePlan(t reflect.Type) *plan {
	p := &plan{byName: map[string]int{}, list: -1}
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Tag.Get("form") == "list" {
			p.list = i
			continue
		}
		name, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if !sf.IsExported() || name == "" || name == "-" {
			continue
		}
		f := field{
			name:    name,
			index:   i,
			pointer: sf.Type.Kind() == reflect.Pointer,
			def:     sf.Tag.Get("default"),
			oneOf:   strings.Fields(sf.Tag.Get("oneof")),
			span:    sf.Tag.Get("range"),
			inner:   holdsStruct(sf.Type),
			variant: sf.Tag.Get("variant"),
		}
		if lo, hi, ok := strings.Cut(f.span, ".."); ok {
			f.lo, f.hi, f.bounded = number(lo), number(hi), true
		}
		p.byName[name] = len(p.fields)
		p.fields = append(p.fields, f)
		p.names = append(p.names, name)
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

// CheckFields checks the ranges and words of a spec's field tags, at any depth.
// Fields that are left out pass. Validate methods call it first.
func CheckFields(spec any, report func(path, message string, value any)) {
	checkStruct(reflect.ValueOf(spec).Elem(), nil, report)
}

func checkStruct(v reflect.Value, path []byte, report func(path, message string, value any)) {
	p := planOf(v.Type())
	if p.list >= 0 {
		checkInner(v.Field(p.list), path, report)
	}
	for i := range p.fields {
		f := &p.fields[i]
		fv := v.Field(f.index)
		if !f.inner && !f.bounded && len(f.oneOf) == 0 || fv.IsZero() {
			continue
		}
		if fv.Kind() == reflect.Pointer {
			fv = fv.Elem()
		}
		at := appendStep(path, f.name)
		switch {
		case f.inner:
			checkInner(fv, at, report)
		case f.bounded && (fv.Int() < f.lo || fv.Int() > f.hi):
			lo, hi, _ := strings.Cut(f.span, "..")
			report(string(at), fmt.Sprintf("must be from %s to %s", lo, hi), fv.Interface())
		case len(f.oneOf) > 0 && !slices.Contains(f.oneOf, fv.String()):
			report(string(at), "must be "+orList(f.oneOf)+didYouMean(fv.String(), f.oneOf), fv.String())
		}
	}
}

func checkInner(v reflect.Value, path []byte, report func(path, message string, value any)) {
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
		for _, k := range sortedKeys(v) {
			checkInner(v.MapIndex(k), appendStep(path, k.String()), report)
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
