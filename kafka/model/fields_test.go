package model

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// fieldComments maps "Type.Field" to the comment of each struct field here.
func fieldComments(t *testing.T) map[string]string {
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
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						comments[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
					}
				}
			}
			return true
		})
	}
	return comments
}

var saysDefault = regexp.MustCompile(`Default "?([^\s,";]+?)"?(?:[,.;]? |[,.;]?$)`)

// The comments are the manual: each field has one, and the default and the
// bounds that it tells are those of the field's tags.
func TestCommentsTellTheDefaultsAndBounds(t *testing.T) {
	comments := fieldComments(t)
	fields := 0
	eachField(func(s reflect.Type, f reflect.StructField) {
		fields++
		name := s.Name() + "." + f.Name
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
		if key := f.Tag.Get("yaml"); f.Tag.Get("form") == "" && !regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`).MatchString(key) {
			t.Errorf("%s has the key %q", name, key)
		}
	})
	if fields < 40 {
		t.Errorf("only %d fields were looked at", fields)
	}
}
