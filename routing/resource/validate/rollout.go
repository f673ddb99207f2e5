package validate

import (
	"fmt"

	"penstock/routing/resource"
)

// maxSteps bounds the steps of a rollout.
const maxSteps = 100

// validateRouteRollout reports the faults of a route's rollout.
func validateRouteRollout(r *resource.MeshTCPRoute, fault Report) {
	if r.Rollout == nil {
		return
	}
	if len(r.To) > 1 {
		fault("rollout", "requires a route with one destination: write one route per destination", len(r.To))
	}
	checkServiceRef("rollout.backend.name", r.Rollout.Backend.Name, fault)
	checkTags("rollout.backend.tags", r.Rollout.Backend.Tags, fault)
	checkRolloutRefs(r, fault)
	checkSteps(r.Rollout.Steps, fault)
}

// checkRolloutRefs checks that the backendRefs hold the new backend once, and
// another one with a weight above 0.
func checkRolloutRefs(r *resource.MeshTCPRoute, fault Report) {
	b := &r.Rollout.Backend
	if len(r.To) != 1 || len(r.To[0].Rules) != 1 || b.Name == "" {
		return // reported elsewhere
	}
	refs := r.To[0].Rules[0].Default.BackendRefs
	const path = "to[0].rules[0].default.backendRefs"
	first, rest := -1, 0
	for i := range refs {
		switch {
		case !b.Matches(&refs[i]):
			rest += refs[i].EffectiveWeight()
		case first >= 0:
			fault(resource.Item(path, i), "duplicates the rollout's backend, first at spec."+resource.Item(path, first), b.String())
		default:
			first = i
		}
	}
	switch {
	case first < 0:
		fault("rollout.backend", "is not in backendRefs: add it there with the same name and tags", b.String())
	case rest == 0:
		fault("rollout.backend", "needs another backend with a weight above 0, which gets the rest", b.String())
	}
}

func checkSteps(steps []resource.RolloutStep, fault Report) {
	switch {
	case len(steps) == 0:
		fault("rollout.steps", "is required: the new backend's weights, in order", nil)
	case len(steps) > maxSteps:
		fault("rollout.steps", fmt.Sprintf("must hold at most %d steps", maxSteps), len(steps))
		return
	}
	for i := range steps {
		path := resource.Item("rollout.steps", i)
		switch {
		case steps[i].Weight == 0:
			fault(path+".weight", "is required, from 1 to 100", nil)
		case i > 0 && steps[i].Weight <= steps[i-1].Weight:
			fault(path+".weight", fmt.Sprintf("must be above the previous step's, %d", steps[i-1].Weight), steps[i].Weight)
		}
		if steps[i].For == nil && i < len(steps)-1 {
			fault(path+".for", "is required: how long the step lasts; only the last step may leave it out", nil)
		}
	}
}

// RolloutsEnded lists the Rollouts of the set that the changes end: those of
// routes that are deleted, created, or get another rollout. The caller must
// delete them in the same change: if one were kept, it would apply to a route
// that comes back with the same rollout.
func (s *Set) RolloutsEnded(changes []resource.Change) (ended []resource.Key) {
	seen := map[resource.Key]bool{} // a route that is changed twice is reported elsewhere
	for i := range changes {
		ch := &changes[i]
		if ch.Kind != "MeshTCPRoute" {
			continue
		}
		key := resource.Key{Kind: resource.KindRollout, Name: ch.Name}
		noted, _ := s.Get(key)
		state, ok := noted.Spec.(*resource.Rollout)
		if !ok || seen[key] {
			continue
		}
		before, _ := s.Get(ch.Key)
		was, is := rolloutOf(before.Spec), ""
		if !ch.Delete {
			is = rolloutOf(ch.Spec)
		}
		if was != is || state.Of != is {
			seen[key] = true
			ended = append(ended, key)
		}
	}
	return ended
}

// rolloutOf returns the RolloutID of a spec; "" if it is not a route.
func rolloutOf(s resource.Spec) string {
	if r, ok := s.(*resource.MeshTCPRoute); ok && r != nil {
		return r.RolloutID()
	}
	return ""
}
