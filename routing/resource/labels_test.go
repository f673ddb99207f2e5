package resource

import (
	"fmt"
	"strings"
	"testing"
)

func TestLabelsAreEncodedInOneForm(t *testing.T) {
	o := decode(t, "kind: Service\nname: a\nspec: {}\nlabels: {zone: 1.10, app.example.com/part-of: shop}")[0]
	stored := string(EncodeWithSecrets(o))
	if want := `{"kind":"Service","name":"a","labels":{"app.example.com/part-of":"shop","zone":"1.10"},"spec":{}}`; stored != want {
		t.Errorf("%s\nwant\n%s", stored, want)
	}
	shown := string(EncodeYAML(o))
	if want := "kind: Service\nname: a\nlabels:\n  app.example.com/part-of: shop\n  zone: \"1.10\"\nspec: {}\n"; shown != want {
		t.Errorf("%s\nwant\n%s", shown, want)
	}
	if back, err := Restore(
		[]byte(`{"kind":"Service","name":"a","labels":{"of a later version":"~"},"spec":{}}`), RoutingKinds(),
	); err != nil || len(back.Labels) != 1 {
		t.Errorf("an admitted object is refused: %v, %v", back.Labels, err)
	}
}

func TestHasLabels(t *testing.T) {
	o := decode(t, "kind: Service\nname: a\nspec: {}\nlabels: {team: a, empty: \"\"}")[0]
	for _, c := range []struct {
		labels map[string]string
		want   bool
	}{
		{nil, true},
		{map[string]string{"team": "a"}, true},
		{map[string]string{"team": "a", "empty": ""}, true},
		{map[string]string{"team": "b"}, false},
		{map[string]string{"team": "a", "other": ""}, false},
	} {
		if got := o.HasLabels(c.labels); got != c.want {
			t.Errorf("%v: %v", c.labels, got)
		}
	}
}

func TestLabelFaults(t *testing.T) {
	if faults := LabelFaults(map[string]string{"a.example.com/b": "c", "d": ""}); len(faults) > 0 {
		t.Error(faults)
	}
	faults := LabelFaults(map[string]string{"a b": "c", "d": "e f"})
	if len(faults) != 2 || !strings.HasPrefix(faults[0], "label a b: the name") || !strings.HasPrefix(faults[1], "label d: the value") {
		t.Error(faults)
	}
	many := map[string]string{}
	for i := range MaxLabels + 1 {
		many[fmt.Sprint("l", i)] = ""
	}
	if faults := LabelFaults(many); len(faults) != 1 || faults[0] != "65 labels; a resource has at most 64" {
		t.Error(faults)
	}
}

func TestHasSecrets(t *testing.T) {
	for _, k := range append(RoutingKinds(), freeKinds()...) {
		if got, want := k.HasSecrets(), k.Name == "Certificate"; got != want {
			t.Errorf("%s: %v", k.Name, got)
		}
	}
}

func TestWithLabels(t *testing.T) {
	changes := []Change{}
	for _, o := range decode(t, "kind: Service\nname: b\nlabels: {l: x}\nspec: {}\n---\n"+
		"kind: Service\nname: a\nlabels: {l: x}\nspec: {}\n---\n"+
		"kind: Listener\nname: l\nlabels: {l: x}\nspec: {address: \":1\"}\n---\n"+
		"kind: Service\nname: c\nspec: {}") {
		changes = append(changes, Put(o))
	}
	set, _, _ := new(Set).With(changes)
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
