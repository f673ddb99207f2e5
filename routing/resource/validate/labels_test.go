package validate_test

import (
	"fmt"
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

func TestLabelFaults(t *testing.T) {
	if faults := validate.Labels(map[string]string{"a.example.com/b": "c", "d": ""}); len(faults) > 0 {
		t.Error(faults)
	}
	faults := validate.Labels(map[string]string{"a b": "c", "d": "e f"})
	if len(faults) != 2 || !strings.HasPrefix(faults[0], "label a b: the name") || !strings.HasPrefix(faults[1], "label d: the value") {
		t.Error(faults)
	}
	many := map[string]string{}
	for i := range validate.MaxLabels + 1 {
		many[fmt.Sprint("l", i)] = ""
	}
	if faults := validate.Labels(many); len(faults) != 1 || faults[0] != "65 labels; a resource has at most 64" {
		t.Error(faults)
	}
}

func TestWithLabels(t *testing.T) {
	changes := []resource.Change{}
	for _, o := range decode(t, "kind: Service\nname: b\nlabels: {l: x}\nspec: {}\n---\n"+
		"kind: Service\nname: a\nlabels: {l: x}\nspec: {}\n---\n"+
		"kind: Listener\nname: l\nlabels: {l: x}\nspec: {address: \":1\"}\n---\n"+
		"kind: Service\nname: c\nspec: {}") {
		changes = append(changes, resource.Put(o))
	}
	set, _, _ := new(validate.Set).With(changes)
	for _, c := range []struct {
		kind   string
		labels map[string]string
		want   string
	}{
		{"", map[string]string{"l": "x"}, "Listener/l Service/a Service/b"},
		{"Service", map[string]string{"l": "x"}, "Service/a Service/b"},
		{"Service", nil, "Service/a Service/b Service/c"},
		{"", map[string]string{"l": "y"}, ""},
	} {
		var names []string
		for _, o := range set.WithLabels(c.kind, c.labels) {
			names = append(names, o.String())
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%q %v: %s, want %s", c.kind, c.labels, got, c.want)
		}
	}
}
