package integration

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/node/api"
	"penstock/node/kinds"
	"penstock/routing"
)

// uiTypes are the types of the JSON that the dashboard reads and sends; those that they
// contain follow from them.
var uiTypes = []any{
	api.Error{}, api.Status{}, api.Members{}, api.Version{}, api.TopologyResult{}, api.Endpoints{}, api.EffectiveResult{},
	api.TelemetryResult{}, api.Sessions{}, api.Problems{}, api.Connections{}, api.Trace{}, api.FlowResult{}, api.LogsItem{},
	api.AuditItem{}, api.Limits{}, api.Rollouts{}, api.RolloutResult{}, api.HistoryResult{}, api.ApplyResult{}, api.DeleteResult{},
	api.ExplainRequest{}, routing.Explanation{}, api.SimulateResult{}, api.CloseConnectionsRequest{}, api.ClosedConnections{},
	api.DrainRequest{}, api.DrainResult{}, api.TopSample{}, api.Permissions{},
}

const uiTypesFile = "../node/ui/app/src/lib/types.ts"

// The dashboard is compiled against the types that nodes send: a field that is renamed in
// Go is an error of tsc.
func TestDashboardTypesAreTheNodes(t *testing.T) {
	g := typeScript{done: map[string]reflect.Type{}}
	for _, v := range uiTypes {
		if err := g.declare(reflect.TypeOf(v)); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(g.declared)
	want := "// Generated from the types of node/api by TestDashboardTypesAreTheNodes. Do not edit.\n//\n" +
		"// A list or a map may be null. Durations are nanoseconds, times RFC 3339, bytes base64.\n\n" + strings.Join(g.declared, "\n") +
		kindNames()
	if *update {
		if err := os.WriteFile(filepath.FromSlash(uiTypesFile), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.FromSlash(uiTypesFile))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what node/api gives: run go test ./integration -run DashboardTypes -update", uiTypesFile)
	}
}

// kindNames writes the kinds of resources that have a page in the dashboard.
func kindNames() string {
	text := "\nexport const kinds = [\n"
	for _, k := range kinds.All() {
		text += fmt.Sprintf("  [%q, %q],\n", k.Name, k.Plural)
	}
	return text + "] as const;\n"
}

// typeScript writes Go types as they look in JSON.
type typeScript struct {
	done     map[string]reflect.Type
	declared []string
}

// declare writes a named type, once, and the ones that it contains.
func (g *typeScript) declare(t reflect.Type) error {
	name := t.Name()
	if known, ok := g.done[name]; ok {
		if known != t {
			return fmt.Errorf("both %v and %v would be the type %s", known, t, name)
		}
		return nil
	}
	g.done[name] = t
	if t.Kind() != reflect.Struct {
		text, err := g.contents(t)
		g.declared = append(g.declared, fmt.Sprintf("export type %s = %s;\n", name, text))
		return err
	}
	var fields strings.Builder
	if err := g.fields(&fields, t); err != nil {
		return err
	}
	g.declared = append(g.declared, fmt.Sprintf("export interface %s {\n%s}\n", name, fields.String()))
	return nil
}

// fields writes the fields of a struct; those of an embedded one are its own in JSON.
func (g *typeScript) fields(b *strings.Builder, t reflect.Type) error {
	for f := range t.Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == "-" || !f.IsExported():
			continue
		case f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct:
			if err := g.fields(b, f.Type); err != nil {
				return err
			}
			continue
		case tag == "":
			tag = f.Name
		}
		text, err := g.reference(f.Type)
		if err != nil {
			return err
		}
		optional := ""
		if strings.Contains(options, "omit") {
			optional, text = "?", strings.TrimSuffix(text, " | null")
		}
		fmt.Fprintf(b, "  %s%s: %s;\n", tag, optional, text)
	}
	return nil
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// reference returns how a field of type t is written.
func (g *typeScript) reference(t reflect.Type) (string, error) {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "string", nil
	case t == reflect.TypeFor[time.Duration]():
		return "number", nil
	case t == reflect.TypeFor[api.Points]():
		return "(number | null)[]", nil
	case t.Kind() == reflect.Pointer:
		text, err := g.reference(t.Elem())
		return text + " | null", err
	case t.Implements(textMarshaler):
		return "string", nil
	case t.Implements(jsonMarshaler):
		return "", fmt.Errorf("%v has its own JSON: say here what it looks like", t)
	case t.Kind() == reflect.Struct:
		return t.Name(), g.declare(t)
	}
	return g.contents(t)
}

// contents returns how a type that is no struct is written.
func (g *typeScript) contents(t reflect.Type) (string, error) {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean", nil
	case reflect.String:
		return "string", nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "string", nil
		}
		text, err := g.reference(t.Elem())
		if strings.Contains(text, "|") {
			text = "(" + text + ")"
		}
		return text + "[] | null", err
	case reflect.Map:
		text, err := g.reference(t.Elem())
		return "Record<string, " + text + "> | null", err
	}
	if t.ConvertibleTo(reflect.TypeFor[float64]()) {
		return "number", nil
	}
	return "", fmt.Errorf("%v has no counterpart in TypeScript", t)
}
