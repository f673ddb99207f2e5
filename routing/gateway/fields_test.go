package gateway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// fieldComments maps "Type.Field" to the comment of each field of gateway.go.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "gateway.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
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
	return comments
}

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

var saysDefault = regexp.MustCompile(`Default "?([^\s,";]+?)"?(?:[,.;]? |[,.;]?$)`)

// The comments are the manual: each field has one, and the default and the
// bounds that it tells are those of the field's tags.
func TestCommentsTellTheDefaultsAndBounds(t *testing.T) {
	comments, seen, fields := fieldComments(t), map[reflect.Type]bool{}, 0
	for _, kind := range Kinds() {
		eachField(reflect.TypeOf(kind.New()), seen, func(s reflect.Type, f reflect.StructField) {
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
			if _, hi, ok := strings.Cut(f.Tag.Get("range"), ".."); ok && !strings.Contains(strings.ReplaceAll(comment, ",", ""), hi) {
				t.Errorf("%s: the range ends at %s, the comment does not say so: %s", name, hi, comment)
			}
		})
	}
	if fields < 40 {
		t.Errorf("only %d fields were looked at", fields)
	}
}
