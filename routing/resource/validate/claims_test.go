package validate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/hostname"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// claimant is a SetChecker that claims names and addresses and reports
// conflicts.
type claimant struct {
	names, addresses []string
	checked          *[]string
}

func (w *claimant) Validate(func(path, message string, value any)) {}
func (w *claimant) Refs() []resource.Ref {
	return []resource.Ref{{Key: key("Listener", "edge"), Path: "spec.at"}}
}

func (w *claimant) Claims() (all []validate.Claim) {
	for i, name := range w.names {
		all = append(all, validate.Claim{Listener: "edge", Name: name, Path: resource.Item("spec.names", i)})
	}
	return all
}

func (w *claimant) Listens() (all []validate.Listen) {
	for _, a := range w.addresses {
		all = append(all, validate.Listen{Address: a, Path: "spec.addresses"})
	}
	return all
}

func (w *claimant) CheckInSet(v *validate.View) {
	for _, c := range v.OwnClaims() {
		if r, ok := v.FirstConflict(c); ok {
			v.Fault(c.Path, "meets "+r.String(), c.Name)
		}
	}
	if w.checked != nil {
		*w.checked = append(*w.checked, v.Key().Name)
	}
}

func putClaimant(name string, w *claimant) resource.Change {
	return resource.Put(resource.Object{Key: key("Wanting", name), Spec: w})
}

// claimIncludes reports whether a claim includes a name.
func claimIncludes(claim, name string) bool {
	if suffix, ok := strings.CutPrefix(claim, "*"); ok {
		return strings.HasSuffix(name, suffix) && len(name) > len(suffix)
	}
	if p, err := hostname.ParseNumbered(claim); err == nil {
		_, ok := p.Match(name)
		return ok
	}
	return claim == name
}

// Two claims conflict if they have a name in common, in either order.
func TestClaimsConflictOverACommonName(t *testing.T) {
	pool := []string{
		"a.x.y", "b.a.x.y", "a-1.x.y", "a-2.x.y", "a-01.x.y", "1-a-2.x.y", "*.x.y", "*.a.x.y", "*.y", "x.y", "a-1.z.y",
		"a-$(nodeId).x.y", "$(nodeId)-a-2.x.y", "1-a-$(nodeId).x.y", "a-$(nodeId).z.y", "a-$(nodeId).a.x.y", "$(nodeId).x.y", "7.x.y",
	}
	var universe []string
	for _, domain := range []string{".x.y", ".a.x.y", ".z.y", ".b.a.x.y"} {
		for _, label := range []string{"a", "b", "a-1", "a-2", "a-01", "1-a-2", "1-a-1", "2-a-2", "7", "q"} {
			universe = append(universe, label+domain)
		}
	}
	universe = append(universe, "x.y", "a.x.y", "y", "z.y")
	meet := func(a, b string) bool {
		return slices.ContainsFunc(universe, func(n string) bool { return claimIncludes(a, n) && claimIncludes(b, n) })
	}
	rapid.Check(t, func(t *rapid.T) {
		s, have := new(validate.Set), map[string]string{}
		for i := range rapid.IntRange(1, 8).Draw(t, "steps") {
			name := fmt.Sprint("w", rapid.IntRange(0, 4).Draw(t, "who"))
			if rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
				s = s.Next([]resource.Change{resource.Delete(key("Wanting", name))})
				delete(have, name)
				continue
			}
			claim := rapid.SampledFrom(pool).Draw(t, "claim")
			next, faults, _ := s.With([]resource.Change{putClaimant(name, &claimant{names: []string{claim}})})
			wrong := 0
			for other, theirs := range have {
				if other != name && meet(claim, theirs) {
					wrong = 1
				}
			}
			met := slices.ContainsFunc(faults, func(f resource.Fault) bool { return strings.Contains(f.Message, "meets") })
			if met != (wrong > 0) {
				t.Fatalf("step %d: %s wants %s, others have %v: %v", i, name, claim, have, faults)
			}
			s = next
			have[name] = claim
		}
		for name := range have {
			s = s.Next([]resource.Change{resource.Delete(key("Wanting", name))})
		}
		if left := s.IndexSizes(); slices.Max(slices.Collect(maps.Values(left))) > 0 {
			t.Fatalf("entries that nobody stands for: %v", left)
		}
	})
}

func TestLaterOfTwoClaimsIsReported(t *testing.T) {
	edge := put("Listener", "edge", &resource.Listener{Protocol: "kafka", Address: ":1"})
	// Within one object, and between two that are put together.
	_, faults, _ := new(validate.Set).With([]resource.Change{
		edge, putClaimant("b", &claimant{names: []string{"a.x", "a.x"}}), putClaimant("a", &claimant{names: []string{"a.x"}}),
	})
	wantFaults(t, faults, "Wanting/b spec.names[1]: meets Wanting/b spec.names[0]", "Wanting/a spec.names[0]: meets Wanting/b spec.names[0]")
	// A name that moves from one object to another is free.
	s := mustWith(t, new(validate.Set), edge, putClaimant("a", &claimant{names: []string{"a.x"}}))
	mustWith(t, s, putClaimant("b", &claimant{names: []string{"a.x"}}), putClaimant("a", &claimant{}))
}

// An object that refers to a changed one is checked again, once, and no other.
func TestReferrersOfAChangeAreChecked(t *testing.T) {
	var asked []string
	s := mustWith(t, new(validate.Set), put("Listener", "edge", &resource.Listener{Protocol: "kafka", Address: ":1"}),
		putClaimant("a", &claimant{checked: &asked}), putClaimant("b", &claimant{checked: &asked}))
	asked = nil
	s = mustWith(t, s, putClaimant("a", &claimant{checked: &asked}))
	if !slices.Equal(asked, []string{"a"}) {
		t.Errorf("asked %v, want a alone", asked)
	}
	asked = nil
	s = mustWith(
		t, s, putClaimant("b", &claimant{checked: &asked}),
		put("Listener", "edge", &resource.Listener{Protocol: "kafka", Address: ":2"}),
	)
	slices.Sort(asked)
	if !slices.Equal(asked, []string{"a", "b"}) {
		t.Errorf("asked %v, want a and b once", asked)
	}
	asked = nil
	mustWith(t, s, put("Listener", "other", &resource.Listener{Protocol: "kafka", Address: ":3"}))
	if len(asked) > 0 {
		t.Errorf("asked %v about a listener that nobody has", asked)
	}
}

func TestAddressesOfOtherKindsConflictWithListeners(t *testing.T) {
	edge := put("Listener", "edge", &resource.Listener{Protocol: "kafka", Address: ":1"})
	s := mustWith(t, new(validate.Set), edge, putClaimant("a", &claimant{addresses: []string{":90", ":91", "127.0.0.1:92"}}))
	_, faults, _ := s.With([]resource.Change{put("Listener", "other", &resource.Listener{Address: "0.0.0.0:91"})})
	wantFaults(t, faults, "Listener/other spec.address: overlaps with the address of Wanting/a")
	_, faults, _ = s.With([]resource.Change{putClaimant("b", &claimant{addresses: []string{"127.0.0.1:93", "[::]:90", "[::]:91"}})})
	wantFaults(t, faults, "Wanting/b spec.addresses: overlaps with the address of Wanting/a ([::]:90)")
	s = mustWith(t, s, putClaimant("a", &claimant{}))
	mustWith(t, s, putClaimant("b", &claimant{addresses: []string{"[::]:90", "[::]:91"}}))
}
