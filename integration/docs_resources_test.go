package integration

import (
	"fmt"
	"go/ast"
	"go/token"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"penstock/kafka"
	"penstock/kafka/model"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// allKinds returns the documented kinds of resources.
func allKinds() []resource.Kind {
	types := kafka.Types()
	return slices.Concat(resource.RoutingKinds(), gateway.Kinds(), model.Kinds(types))
}

// The comments of the structs in routing/resource, routing/gateway and
// kafka/model are the reference of the resources.
func TestDocsResources(t *testing.T) {
	m := manual{comments: structComments(t, "routing/resource", "routing/gateway", "kafka/model")}
	for _, kind := range allKinds() {
		var b strings.Builder
		m.table(t, &b, kind.Name, "spec", reflect.TypeOf(kind.New()).Elem())
		checkGenerated(t, "docs/resources.md", kind.Name, b.String())
	}
}

// structComments maps "folder.Type" and "folder.Type.Field" to the comments of
// the structs in the given folders.
func structComments(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	comments := map[string]string{}
	forEachGoFile(t, func(path string, file *ast.File, _ *token.FileSet) {
		folder := path[:max(strings.LastIndexByte(path, '/'), 0)]
		if !slices.Contains(folders, folder) || strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, d := range file.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range gen.Specs {
				typ, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				comments[folder+"."+typ.Name.Name] = oneLine(gen.Doc.Text())
				s, ok := typ.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						comments[folder+"."+typ.Name.Name+"."+name.Name] = oneLine(f.Doc.Text())
					}
				}
			}
		}
	})
	return comments
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// manual generates tables of fields.
type manual struct{ comments map[string]string }

// of returns the comment of a struct or of one of its fields.
func (m *manual) of(s reflect.Type, field string) string {
	key := strings.TrimPrefix(s.PkgPath(), module+"/") + "." + s.Name()
	if field != "" {
		key += "." + field
	}
	return m.comments[key]
}

// inner is a struct that is a field of another.
type inner struct {
	path, title string // title: if it differs from path
	typ         reflect.Type
}

// table writes a table of a struct's fields, and then of the structs inside it.
func (m *manual) table(t *testing.T, b *strings.Builder, kind, path string, s reflect.Type) {
	t.Helper()
	m.tableOf(t, b, kind, inner{path, path, s})
}

func (m *manual) tableOf(t *testing.T, b *strings.Builder, kind string, at inner) {
	t.Helper()
	path, s := at.path, at.typ
	fmt.Fprintf(b, "### %s: %s\n\n", kind, at.title)
	if path != "spec" {
		last := path[strings.LastIndexByte(path, '.')+1:]
		fmt.Fprintf(b, "%s\n\n", strings.Replace(m.of(s, ""), s.Name(), "`"+last+"`", 1))
	}
	b.WriteString("| field | type | default | bounds | meaning |\n|---|---|---|---|---|\n")
	var below []inner
	for i := range s.NumField() {
		f := s.Field(i)
		if !f.IsExported() || f.Tag.Get("form") != "" {
			continue
		}
		comment := m.of(s, f.Name)
		if comment == "" {
			t.Errorf("%s.%s has no comment", s.Name(), f.Name)
			continue
		}
		typ, inside := m.typeOf(kind, path+"."+f.Tag.Get("yaml"), f.Type)
		below = append(below, inside...)
		def, meaning := m.explain(s, f, comment)
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.Tag.Get("yaml"), typ, def, bounds(f), strings.ReplaceAll(meaning, "|", `\|`))
	}
	for _, in := range below {
		b.WriteString("\n")
		m.tableOf(t, b, kind, in)
	}
}

// typeOf returns the documented type of a field, and the structs that it refers
// to.
func (m *manual) typeOf(kind, at string, t reflect.Type) (word string, below []inner) {
	word, list := typeWord(t)
	if word == "object" {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		title := at
		if list {
			at += "[]"
			title = at
		} else if form, ok := listForm(t); ok {
			// It is written as a list, or as an object with the other fields.
			title = at + " without a list"
			below = append(below, inner{at + "[]", at + "[]", form})
			word = fmt.Sprintf("list of [object](#%s)s, or [object](#%s)", anchor(kind+": "+at+"[]"), anchor(kind+": "+title))
			return word, append(below, inner{at, title, t})
		}
		below = append(below, inner{at, title, t})
		word = fmt.Sprintf("[object](#%s)", anchor(kind+": "+title))
	}
	if list {
		word = "list of " + word + "s"
	}
	return word, below
}

// listForm returns the element type of a struct that may also be written as a
// list.
func listForm(t reflect.Type) (reflect.Type, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("form") == "list" {
			return f.Type.Elem(), true
		}
	}
	return nil, false
}

// typeWord returns the documented type of one value, and whether it is a list.
func typeWord(t reflect.Type) (word string, list bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice {
		word, _ = typeWord(t.Elem())
		return word, true
	}
	switch {
	case t == reflect.TypeFor[resource.Duration]():
		return "duration", false
	case t == reflect.TypeFor[resource.Secret]():
		return "text, hidden", false
	case t == reflect.TypeFor[netip.Prefix]():
		return "network", false
	case t == reflect.TypeFor[resource.Size]():
		return "size", false
	case t == reflect.TypeFor[model.PortRange]():
		return "text", false
	case t.Kind() == reflect.Interface:
		return "mapping", false
	case t.Kind() == reflect.Struct:
		return "object", false
	case t.Kind() == reflect.Map:
		return "map of texts", false
	case t.Kind() == reflect.Bool:
		return "true or false", false
	case t.Kind() == reflect.Int:
		return "number", false
	case t.Kind() == reflect.String:
		return "text", false
	}
	return t.String(), false
}

func bounds(f reflect.StructField) string {
	if words := f.Tag.Get("oneof"); words != "" {
		return "`" + strings.Join(strings.Fields(words), "`, `") + "`"
	}
	if lo, hi, ok := strings.Cut(f.Tag.Get("range"), ".."); ok {
		return lo + " to " + hi
	}
	return ""
}

var quoted = regexp.MustCompile(`"([^"]+)"`)

// explain extracts the default from a field's comment and rewrites the rest in
// terms of the YAML. Tests next to the structs check that defaults in comments
// and tags agree.
func (m *manual) explain(s reflect.Type, f reflect.StructField, comment string) (def, meaning string) {
	if d := f.Tag.Get("default"); d != "" {
		def = "`" + d + "`"
	}
	var kept []string
	for _, sentence := range sentences(comment) {
		switch word, rest, _ := strings.Cut(strings.TrimSuffix(sentence, "."), " "); {
		case (word == "Default" || word == "Default:") && f.Name != "Default":
			value, more, _ := strings.Cut(rest, ";")
			if f.Tag.Get("range") != "" {
				value, _, _ = strings.Cut(value, ",")
			}
			if def == "" {
				def = value
			}
			if more = strings.TrimSpace(more); more != "" {
				kept = append(kept, upperFirst(more)+".")
			}
		case word == "Required" || word == "Required,":
			def = strings.TrimSpace("required " + rest)
		default:
			kept = append(kept, sentence)
		}
	}
	if lo, _, _ := strings.Cut(f.Tag.Get("range"), ".."); def == "" && (lo == "" || lo == "0") {
		switch f.Type.Kind() {
		case reflect.Int:
			def = "`0`"
		case reflect.Bool:
			def = "`false`"
		}
	}
	return inYAML(s, f, def), quoted.ReplaceAllString(inYAML(s, f, strings.Join(kept, " ")), "`$1`")
}

// inYAML replaces names of struct fields by their YAML names.
func inYAML(s reflect.Type, f reflect.StructField, text string) string {
	for i := range s.NumField() {
		other := s.Field(i)
		at := regexp.MustCompile(`\b` + other.Name + `\b`)
		if other.Name == f.Name {
			at = regexp.MustCompile(`^` + f.Name + `\b`) // elsewhere it is an English word
		}
		text = at.ReplaceAllString(text, "`"+other.Tag.Get("yaml")+"`")
	}
	return text
}

// sentences splits a comment after each full stop that a capital letter
// follows.
func sentences(text string) []string {
	var all []string
	from := 0
	for i := 0; i+2 < len(text); i++ {
		if text[i] == '.' && text[i+1] == ' ' && unicode.IsUpper(rune(text[i+2])) {
			all = append(all, text[from:i+1])
			from = i + 2
		}
	}
	return append(all, text[from:])
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
