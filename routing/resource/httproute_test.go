package resource

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"testing"
)

// Each file in testdata/http/bad breaks the rules of one part.
func TestBadHTTPRoutesMatchExpectedFaults(t *testing.T) {
	for _, file := range glob(t, "testdata/http/bad/*.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, faults := Decode(filepath.Base(file), data, RoutingKinds())
			got := faults.Error() + "\n"
			if *update {
				if err := os.WriteFile(file+".txt", []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) || len(faults) == 0 {
				t.Errorf("faults:\n%swant:\n%s", got, want)
			}
		})
	}
}

func httpRoute(t *testing.T, file string) Object {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, faults := Decode(file, data, RoutingKinds())
	if len(faults) > 0 || len(objects) != 1 {
		t.Fatalf("%d objects, faults:\n%v", len(objects), faults)
	}
	return objects[0]
}

func TestHTTPRoutesRoundTrip(t *testing.T) {
	o := httpRoute(t, "testdata/http/good/every-field.yaml")
	again, err := Restore(EncodeWithSecrets(o), RoutingKinds())
	if err != nil || !Equal(o, again) {
		t.Errorf("%v\n%s", err, EncodeWithSecrets(o))
	}
	if shown, faults := Decode("", EncodeYAML(o), RoutingKinds()); len(faults) > 0 || !Equal(o, shown[0]) {
		t.Errorf("%v\n%s", faults, EncodeYAML(o))
	}
	var paths []string
	for _, ref := range o.Spec.Refs() {
		if !ref.Optional || ref.Kind != "Service" {
			t.Errorf("%+v", ref)
		}
		paths = append(paths, ref.Path+" "+ref.Name)
	}
	want := []string{
		"spec.targetRef.name frontend_kuma-demo_svc_8080",
		"spec.to[0].targetRef.name shop",
		"spec.to[0].rules[0].default.backendRefs[0].name shop",
		"spec.to[0].rules[0].default.backendRefs[1].name shop-next",
	}
	if !slices.Equal(paths, want) {
		t.Errorf("%q", paths)
	}
}

func TestHTTPRouteDefaults(t *testing.T) {
	o := httpRoute(t, "testdata/http/good/every-field.yaml")
	before := string(EncodeWithSecrets(o))
	r := o.Spec.(*MeshHTTPRoute).WithDefaults()
	rules := r.To[0].Rules
	if rules[0].Matches[0].Headers[0].Type != "Exact" {
		t.Errorf("%+v", rules[0].Matches[0].Headers[0])
	}
	if refs := rules[1].Default.BackendRefs; len(refs) != 1 || refs[0].Name != "shop" || *refs[0].Weight != 1 {
		t.Errorf("a rule without backends leads to the destination: %+v", refs)
	}
	if refs := rules[2].Default.BackendRefs; len(refs) != 0 {
		t.Errorf("a redirect leads to a backend: %+v", refs)
	}
	if after := string(EncodeWithSecrets(o)); after != before {
		t.Errorf("the original changed: %s", after)
	}
	r = (&MeshHTTPRoute{To: []HTTPRouteTo{{Rules: []HTTPRule{{Default: HTTPDefault{Filters: []HTTPFilter{
		{Type: "RequestRedirect", RequestRedirect: &RequestRedirect{Scheme: "https"}},
	}}}}}}}).WithDefaults()
	if r.TargetRef.Kind != "Mesh" || *r.To[0].Rules[0].Default.Filters[0].RequestRedirect.StatusCode != 302 {
		t.Errorf("%+v", r)
	}
}

// The count before a regular expression is built is not less than its states,
// and close enough to refuse no harmless expression.
func TestRegularExpressionSizeIsCheckedBeforeBuilding(t *testing.T) {
	for _, text := range []string{
		"/", "/a", "/v[0-9]+/.*", "(a|b|c)*", "[a-z]{1,9}", "(?i)hello{3,7}", `\pL+`, `(\w+\.)+com`,
		"(a{10}){10}", "(?:a?){50}", ".*Firefox.*",
	} {
		re, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		counted := states(re)
		if counted > maxRegexpStates {
			t.Errorf("%s is refused: %d states", text, counted)
		}
		if len(prog.Inst) > 3*counted+4 {
			t.Errorf("%s becomes %d instructions, and counts as %d", text, len(prog.Inst), counted)
		}
	}
}

// Regular expressions are counted per destination, in every place; those that
// are stored already stay valid.
func TestRegularExpressionsPerDestinationAreBounded(t *testing.T) {
	route := func(rules int) *MeshHTTPRoute {
		var to HTTPRouteTo
		for i := range rules {
			to.Rules = append(to.Rules, HTTPRule{Matches: []HTTPMatch{{
				Path:        &PathMatch{Type: "RegularExpression", Value: fmt.Sprintf("/a%d", i)},
				Headers:     []HeaderMatch{{Type: "RegularExpression", Name: "a", Value: "b"}, {Name: "c", Value: "d"}},
				QueryParams: []QueryMatch{{Type: "RegularExpression", Name: "a", Value: "b"}},
			}, {Path: &PathMatch{Type: "RegularExpression", Value: fmt.Sprintf("/b%d", i)}}}})
		}
		other := HTTPRouteTo{TargetRef: TargetRef{Kind: "MeshService", Name: "other"}, Rules: to.Rules[:1]}
		to.TargetRef = TargetRef{Kind: "MeshService", Name: "shop"}
		return &MeshHTTPRoute{To: []HTTPRouteTo{to, other}}
	}
	for rules, want := range map[int]string{
		maxRegexps / 4: "",
		maxRegexps/4 + 1: fmt.Sprintf(
			"to[0].rules must hold at most %d regular expressions in all: "+
				"each is tried on every request not matched before (%d)",
			maxRegexps, maxRegexps+4,
		),
	} {
		got := ""
		route(rules).Validate(func(path, message string, value any) { got += fmt.Sprintf("%s %s (%v)", path, message, value) })
		if got != want {
			t.Errorf("%d rules: %q, want %q", rules, got, want)
		}
	}
	stored := EncodeWithSecrets(Object{Key: Key{"MeshHTTPRoute", "a"}, Spec: route(maxRegexps)})
	if _, err := Restore(stored, RoutingKinds()); err != nil {
		t.Error(err)
	}
}
