package validate_test

import (
	"fmt"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// Regular expressions are counted per destination, in every place; those that
// are stored already stay valid.
func TestRegularExpressionsPerDestinationAreBounded(t *testing.T) {
	const maxRegexps = 100
	route := func(rules int) *resource.MeshHTTPRoute {
		var to resource.HTTPRouteTo
		for i := range rules {
			to.Rules = append(to.Rules, resource.HTTPRule{Matches: []resource.HTTPMatch{{
				Path:        &resource.PathMatch{Type: "RegularExpression", Value: fmt.Sprintf("/a%d", i)},
				Headers:     []resource.HeaderMatch{{Type: "RegularExpression", Name: "a", Value: "b"}, {Name: "c", Value: "d"}},
				QueryParams: []resource.QueryMatch{{Type: "RegularExpression", Name: "a", Value: "b"}},
			}, {Path: &resource.PathMatch{Type: "RegularExpression", Value: fmt.Sprintf("/b%d", i)}}}})
		}
		other := resource.HTTPRouteTo{TargetRef: resource.TargetRef{Kind: "MeshService", Name: "other"}, Rules: to.Rules[:1]}
		to.TargetRef = resource.TargetRef{Kind: "MeshService", Name: "shop"}
		return &resource.MeshHTTPRoute{To: []resource.HTTPRouteTo{to, other}}
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
		validate.Spec(route(rules), func(path, message string, value any) { got += fmt.Sprintf("%s %s (%v)", path, message, value) })
		if got != want {
			t.Errorf("%d rules: %q, want %q", rules, got, want)
		}
	}
	stored := codec.EncodeWithSecrets(resource.Object{Key: key("MeshHTTPRoute", "a"), Spec: route(maxRegexps)})
	if _, err := codec.Restore(stored, resource.RoutingKinds()); err != nil {
		t.Error(err)
	}
}
