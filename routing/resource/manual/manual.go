// Package manual checks the comments of resources' fields, which are the users'
// manual, against the fields' tags. It is for tests.
package manual

import (
	"encoding"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Field is a field of a struct that users write.
type Field struct {
	Struct reflect.Type
	reflect.StructField
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// Structs returns the struct types that users write as mappings and that are
// reachable from the specs of the kinds, each once.
func Structs(kinds []reflect.Type) (structs []reflect.Type) {
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(textUnmarshaler) || slices.Contains(structs, t) {
			return
		}
		structs = append(structs, t)
		for i := range t.NumField() {
			visit(t.Field(i).Type)
		}
	}
	for _, t := range kinds {
		visit(t)
	}
	return structs
}

var saysDefault = regexp.MustCompile(`Default (?:is )?"?([^\s,";]+?)"?(?:[,.;]? |[,.;]?$)`)

// Check fails unless each field, of structs of the package under test, has a
// comment that gives the default, words and bounds of its tags.
func Check(t *testing.T, fields []Field) {
	t.Helper()
	comments := comments(t)
	for _, f := range fields {
		name := f.Struct.Name() + "." + f.Name
		comment := comments[name]
		if comment == "" {
			t.Errorf("%s has no comment", name)
		}
		if def := f.Tag.Get("default"); def != "" {
			if m := saysDefault.FindStringSubmatch(comment); m == nil || m[1] != def {
				t.Errorf("%s: the default is %s, the comment says %q: %s", name, def, m, comment)
			}
		}
		for _, word := range strings.Fields(f.Tag.Get("oneof")) {
			if !strings.Contains(comment, word) {
				t.Errorf("%s: %s is not in the comment: %s", name, word, comment)
			}
		}
		if lo, hi, ok := strings.Cut(f.Tag.Get("range"), ".."); ok {
			plain := strings.ReplaceAll(comment, ",", "")
			if !strings.Contains(plain, hi) || lo != "0" && !strings.Contains(plain, lo) {
				t.Errorf("%s: the range is %s..%s, the comment does not say so: %s", name, lo, hi, comment)
			}
		}
	}
	if len(fields) < 40 {
		t.Errorf("only %d fields were looked at", len(fields))
	}
}

// comments maps "Type.Field" to the comment of each struct field of the package
// under test, whose folder a test runs in.
func comments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	comments := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						for _, name := range f.Names {
							comments[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
						}
					}
				}
			}
			return true
		})
	}
	return comments
}
