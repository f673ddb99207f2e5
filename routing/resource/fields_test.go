package resource

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"penstock/routing/resource/manual"
)

// specStructs returns the structs of all specs.
func specStructs() []reflect.Type {
	var specs []reflect.Type
	for _, k := range RoutingKinds() {
		specs = append(specs, reflect.TypeOf(k.New()))
	}
	return manual.Structs(specs)
}

func TestCommentsMatchDefaultsAndBounds(t *testing.T) {
	var fields []manual.Field
	for _, s := range specStructs() {
		for i := range s.NumField() {
			if f := s.Field(i); f.IsExported() {
				fields = append(fields, manual.Field{Struct: s, StructField: f})
			}
		}
	}
	manual.Check(t, fields)
}

func TestFieldTagsAreValid(t *testing.T) {
	for _, s := range specStructs() {
		for i := range s.NumField() {
			f, name := s.Field(i), s.Name()+"."+s.Field(i).Name
			if !f.IsExported() { // cannot be written
				continue
			}
			if key := f.Tag.Get("yaml"); !regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`).MatchString(key) {
				t.Errorf("%s has the key %q", name, key)
			}
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			lo, hi, bounded := strings.Cut(f.Tag.Get("range"), "..")
			def := f.Tag.Get("default")
			read := func(text string) int64 {
				if inner == reflect.TypeFor[Duration]() {
					d, err := ParseDuration(text)
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					return int64(d)
				}
				if inner == reflect.TypeFor[Size]() {
					size, err := ParseSize(text)
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					return int64(size)
				}
				if strings.Trim(text, "0123456789") != "" {
					t.Errorf("%s: %s is no number", name, text)
				}
				return number(text)
			}
			if bounded && read(lo) >= read(hi) {
				t.Errorf("%s: bad range", name)
			}
			if bounded && def != "" && (read(def) < read(lo) || read(def) > read(hi)) {
				t.Errorf("%s: the default is out of range", name)
			}
			if words := f.Tag.Get("oneof"); def != "" && words != "" && !strings.Contains(" "+words+" ", " "+def+" ") {
				t.Errorf("%s: the default is none of the words", name)
			}
		}
	}
}

func TestEscapes(t *testing.T) {
	for in, want := range map[string]string{
		``: "", `PING\r\n`: "PING\r\n", `\x00\xff`: "\x00\xff", `\0`: "\x00", `\0a`: "\x00a", `"'`: `"'`, `\"\'`: `"'`,
		"a\nb": "a\nb", `é`: "é", `\u00e9`: "é", `\\n`: `\n`, `\101`: "A",
	} {
		if got, err := Unescape(in); err != nil || string(got) != want {
			t.Errorf("Unescape(%q) = %q, %v", in, got, err)
		}
	}
	for _, in := range []string{`\`, `\z`, `\x1`, `\u12`, `a\`} {
		if got, err := Unescape(in); err == nil {
			t.Errorf("Unescape(%q) = %q", in, got)
		}
	}
}
