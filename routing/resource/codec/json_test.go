package codec

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
)

// plainValue returns the value that encoding/json returns for the same text.
func plainValue(n *yaml.Node) any {
	switch {
	case n.Kind == yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plainValue(n.Content[i+1])
		}
		return m
	case n.Kind == yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			list[i] = plainValue(c)
		}
		return list
	case n.Tag == "!!null":
		return nil
	case n.Tag == "!!bool":
		return n.Value == "true"
	case n.Tag == "!!str":
		return n.Value
	}
	return json.Number(n.Value)
}

// checkJSON compares the parser with that of the standard library. Ours accepts
// several values in a row, requires whole surrogate pairs and bounds the depth.
func checkJSON(t *testing.T, text string) {
	t.Helper()
	roots, err := parseJSON(text)
	var want any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	valid := json.Valid([]byte(text)) && d.Decode(&want) == nil
	switch {
	case err == nil && len(roots) == 1 && !valid:
		t.Errorf("%q is taken", text)
	case err == nil && len(roots) == 1 && !reflect.DeepEqual(plainValue(roots[0]), want):
		t.Errorf("%q is read as %#v, want %#v", text, plainValue(roots[0]), want)
	case err != nil && valid && !strings.Contains(err.Error(), "escape") && !strings.Contains(err.Error(), "nested"):
		t.Errorf("%q is refused: %v", text, err)
	case err != nil && (err.line < 1 || err.line > 1+strings.Count(text, "\n")):
		t.Errorf("%q: a fault in line %d", text, err.line)
	}
}

var jsonTexts = []string{
	`null`, `true`, `false`, `0`, `-0`, `-1.5e+10`, `1E2`, `12`, `""`, `"a"`, `[]`, `{}`, `[1, 2]`, `{"a": {"b": []}}`, "\t[\r\n]\n",
	`"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"`, `"é😀"`, `{"a": 1, "a": 2}`,
	``, `nul`, `truee`, `01`, `-`, `1.`, `.5`, `1e`, `+1`,
	`"`, `"\`, `"\u12"`, `"\u12g4"`, `"\x"`, `"\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ude00"`, "\"\n\"", "\"\x00\"", "\x00",
	`[`, `[1`, `[1,`, `[1,]`, `[,]`, `[1 2]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{a:1}`, `{"a" 1}`, `{1:1}`,
	`]`, `}`, `'a'`, `1 2`, `//`,
}

func TestJSONMatchesTheStandardLibrary(t *testing.T) {
	for _, text := range jsonTexts {
		checkJSON(t, text)
	}
}

func FuzzJSON(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if utf8.Valid(data) { // as Decode ensures
			checkJSON(t, string(data))
		}
	})
}

func TestRestoreRefusesInvalidObjects(t *testing.T) {
	for text, want := range map[string]string{
		``:                            "0 objects where one is expected",
		`{"kind":"Service"`:           "is not JSON: unexpected end",
		`{"kind":"Other","name":"a"}`: "unknown kind",
		`{"kind":"Service","name":"a","spec":{"x":1}}`:                                      "unknown field",
		`[{"kind":"Service","name":"a","spec":{}},{"kind":"Service","name":"b","spec":{}}]`: "2 objects where one is expected",
	} {
		if _, err := Restore([]byte(text), resource.RoutingKinds()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	// Restore accepts objects that later rules would refuse.
	o, err := Restore([]byte(`{"kind":"Listener","name":"a","spec":{"address":"nowhere","protocol":"kafka"}}`), resource.RoutingKinds())
	if err != nil || o.Spec.(*resource.Listener).Address != "nowhere" {
		t.Errorf("%v, %+v", err, o)
	}
}
