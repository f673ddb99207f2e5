package resource

import "fmt"

// maxSteps bounds the steps of a rollout.
const maxSteps = 100

// validateRouteRollout reports the faults of a route's rollout.
func validateRouteRollout(r *MeshTCPRoute, fault Report) {
	if r.Rollout == nil {
		return
	}
	if len(r.To) > 1 {
		fault("rollout", "requires a route with one destination: write one route per destination", len(r.To))
	}
	if r.Rollout.Backend.Name == "" {
		fault("rollout.backend.name", "is required", nil)
	} else {
		checkServiceRef("rollout.backend.name", r.Rollout.Backend.Name, fault)
	}
	checkTags("rollout.backend.tags", r.Rollout.Backend.Tags, fault)
	checkRolloutRefs(r, fault)
	checkSteps(r.Rollout.Steps, fault)
}

// checkRolloutRefs checks that the backendRefs hold the new backend once, and
// another one with a weight above 0.
func checkRolloutRefs(r *MeshTCPRoute, fault Report) {
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
			fault(Item(path, i), "duplicates the rollout's backend, first at spec."+Item(path, first), b.String())
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

func checkSteps(steps []RolloutStep, fault Report) {
	switch {
	case len(steps) == 0:
		fault("rollout.steps", "is required: the new backend's weights, in order", nil)
	case len(steps) > maxSteps:
		fault("rollout.steps", fmt.Sprintf("must hold at most %d steps", maxSteps), len(steps))
		return
	}
	for i := range steps {
		path := Item("rollout.steps", i)
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
