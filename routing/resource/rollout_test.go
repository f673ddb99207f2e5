package resource_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

func canary(t *testing.T, steps string) *resource.MeshTCPRoute {
	t.Helper()
	return decode(t, `
kind: MeshTCPRoute
name: canary
spec:
  to:
  - targetRef: {kind: MeshService, name: apps}
    rules:
    - default: {backendRefs: [{kind: MeshServiceSubset, name: apps, weight: 9, tags: {version: v1}}, `+
		`{kind: MeshServiceSubset, name: apps, weight: 7, tags: {version: v2}}, {kind: MeshService, name: more}]}
  rollout: {backend: {name: apps, tags: {version: v2}}, steps: `+steps+`}
`)[0].Spec.(*resource.MeshTCPRoute)
}

// Only the leader writes Rollouts; users cannot apply them.
func TestUsersCannotApplyRollouts(t *testing.T) {
	o := resource.Object{Key: resource.Key{resource.KindRollout, "canary"}, Spec: &resource.Rollout{
		Of: "0011", Phase: resource.RolloutPaused, Step: 2, Weight: 50,
		Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Spent: resource.Duration(time.Second), Reason: "because",
	}}
	kinds := append(resource.RoutingKinds(), resource.RolloutKind())
	stored := codec.EncodeWithSecrets(o)
	back, err := codec.Restore(stored, kinds)
	if err != nil || !resource.Equal(o, back) || !back.Spec.(*resource.Rollout).Same(o.Spec.(*resource.Rollout)) {
		t.Errorf("%s comes back as %+v, %v", stored, back.Spec, err)
	}
	for _, text := range []string{string(stored), string(codec.EncodeYAML(o))} {
		_, faults := codec.Decode("x.yaml", []byte(text), kinds)
		if len(faults) != 1 || !strings.Contains(faults.Error(), "Rollout/canary: is written only by the cluster's leader") {
			t.Errorf("applied, it is told %v", faults)
		}
	}
	_, faults := codec.Decode("x.yaml", []byte("kind: Rollot\nname: a\nspec: {}\n"), kinds)
	if strings.Contains(faults.Error(), "Rollout") {
		t.Errorf("a kind that nobody applies is among the known ones: %v", faults)
	}
}

// The new backend gets exactly its percentage, and the others keep their
// proportion, whatever the new one's own weight is.
func TestRolloutWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &resource.MeshTCPRoute{
			To:      []resource.RouteTo{{TargetRef: resource.TargetRef{Kind: "MeshService", Name: "a"}, Rules: []resource.RouteRule{{}}}},
			Rollout: &resource.RouteRollout{Backend: resource.RolloutBackend{Name: "new"}},
		}
		refs := &r.To[0].Rules[0].Default.BackendRefs
		weights := rapid.SliceOfN(rapid.IntRange(0, 1_000_000), 1, 5).Filter(func(w []int) bool { return w[0] > 0 }).Draw(t, "weights")
		for i := range weights {
			*refs = append(*refs, resource.BackendRef{
				Kind: "MeshService", Name: "old", Tags: map[string]string{"n": string(rune('a' + i))}, Weight: &weights[i],
			})
		}
		at := rapid.IntRange(0, len(weights)).Draw(t, "at")
		own := rapid.IntRange(0, 1_000_000).Draw(t, "own")
		*refs = append((*refs)[:at], append([]resource.BackendRef{{Kind: "MeshService", Name: "new", Weight: &own}}, (*refs)[at:]...)...)
		percent := rapid.IntRange(0, 100).Draw(t, "percent")
		got := r.RolloutWeights(percent)
		sum, others := 0, 0
		for i, w := range got {
			sum += w
			if i != at {
				others += *(*refs)[i].Weight
			}
		}
		if got[at]*100 != sum*percent {
			t.Fatalf("%v: the new one, %d, gets %d of %d, want %d %%", got, at, got[at], sum, percent)
		}
		for i, w := range got {
			if i != at && w*others != *(*refs)[i].Weight*(sum-got[at]) {
				t.Fatalf("%v: backend %d is not in proportion to its weight", got, i)
			}
		}
		if sum >= 1<<40 {
			t.Fatalf("the weights sum up to %d, more than a split takes", sum)
		}
	})
}

func TestRolloutIDIdentifiesARollout(t *testing.T) {
	const steps = "[{weight: 5, for: 10m}, {weight: 100}]"
	of := canary(t, steps).RolloutID()
	same := canary(t, steps)
	same.Rollout.Abort.Connections = 7
	same.TargetRef = &resource.TargetRef{Kind: "MeshService", Name: "web"}
	if got := same.RolloutID(); got != of || of == "" {
		t.Errorf("bounds and sources make it another: %q and %q", of, got)
	}
	if got := same.WithDefaults().RolloutID(); got != of {
		t.Errorf("defaults make it another: %q and %q", of, got)
	}
	for _, other := range []string{
		"[{weight: 6, for: 10m}, {weight: 100}]", "[{weight: 5, for: 11m}, {weight: 100}]",
		"[{weight: 5, for: 10m}, {weight: 100, for: 1m}]", "[{weight: 100}]",
	} {
		if canary(t, other).RolloutID() == of {
			t.Errorf("%s is taken for %s", other, steps)
		}
	}
	elsewhere := canary(t, steps)
	elsewhere.Rollout.Backend = resource.RolloutBackend{Name: "more"}
	if elsewhere.RolloutID() == of {
		t.Error("another backend is taken for the same rollout")
	}
	if got := (&resource.MeshTCPRoute{}).RolloutID(); got != "" {
		t.Errorf("a route without a rollout has %q", got)
	}
}

func TestRolloutText(t *testing.T) {
	r := canary(t, "[{weight: 5, for: 10m}, {weight: 50, for: 1h}, {weight: 100}]")
	want := "5 % of new connections to apps go to apps {version=v2} for 10m, then 50 % for 1h, finally 100 %, watched for 1m; " +
		"back to 0 % if more than 5 % of at least 20 connects within 1m fail or more than 30 % of its endpoints are ejected"
	if got := r.RolloutText(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if r.Rollout.Steps[2].For != nil {
		t.Error("the route's own steps were changed")
	}
}
