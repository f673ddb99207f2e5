package validate

import (
	"fmt"
	"strings"

	"penstock/routing/resource"
)

// maxBackends bounds the backends of one destination: each choice is made among
// all of them, and the turn of each is kept.
const maxBackends = 1000

// validateTCPRoute reports the faults of a route alone.
func validateTCPRoute(r *resource.MeshTCPRoute, fault Report) {
	Fields(r, fault)
	if r.TargetRef != nil {
		validateTarget(r.TargetRef, "targetRef", fault)
	}
	if len(r.To) == 0 {
		fault("to", "is required: the destinations to route", nil)
	}
	seen := make(map[string]int, len(r.To))
	for i := range r.To {
		to, path := &r.To[i], resource.Item("to", i)
		validateRouteTo(to, path, fault)
		if name := to.TargetRef.Name; name != "" {
			if before, ok := seen[name]; ok {
				fault(path+".targetRef.name", "duplicate, first at spec."+resource.Item("to", before), name)
			}
			seen[name] = i
		}
	}
	validateRouteRollout(r, fault)
}

func validateRouteTo(to *resource.RouteTo, path string, fault Report) {
	checkDestination(&to.TargetRef, path+".targetRef", fault)
	if len(to.Rules) != 1 {
		fault(path+".rules", "must hold exactly one rule", len(to.Rules))
	}
	for i := range to.Rules {
		checkBackends(resource.Item(path+".rules", i)+".default.backendRefs", to.Rules[i].Default.BackendRefs, fault)
	}
}

func checkBackends(path string, refs []resource.BackendRef, fault Report) {
	if refs != nil && len(refs) == 0 {
		fault(path, "must not be empty: leave it out for the destination itself", nil)
	}
	if len(refs) > maxBackends {
		fault(path, fmt.Sprintf("must hold at most %d backends", maxBackends), len(refs))
		return
	}
	for i := range refs {
		b := &refs[i]
		t := resource.TargetRef{Kind: b.Kind, Name: b.Name, Tags: b.Tags}
		validateTarget(&t, resource.Item(path, i), fault)
	}
}

// checkDestination checks a target as the destination of connections or requests.
func checkDestination(t *resource.TargetRef, path string, fault Report) {
	switch t.Kind {
	case "MeshService", "":
		validateTarget(t, path, fault)
	case "Mesh", "MeshSubset", "MeshServiceSubset":
		fault(path+".kind", "must be MeshService here: a destination is one service", t.Kind)
	}
}

// validateTarget checks that name and tags fit the kind. CheckFields reports unknown kinds.
func validateTarget(t *resource.TargetRef, path string, fault Report) {
	named, tagged := false, false
	switch t.Kind {
	case "":
		fault(path+".kind", "is required", nil)
		return
	case "Mesh":
	case "MeshSubset":
		tagged = true
	case "MeshService":
		named = true
	case "MeshServiceSubset":
		named, tagged = true, true
	default:
		return
	}
	switch {
	case named:
		checkServiceRef(path+".name", t.Name, fault)
	case t.Name != "":
		fault(path+".name", "is not allowed for kind "+t.Kind, t.Name)
	}
	switch {
	case tagged && len(t.Tags) == 0:
		fault(path+".tags", "is required for kind "+t.Kind, nil)
	case !tagged && len(t.Tags) > 0:
		fault(path+".tags", "is not allowed for kind "+t.Kind+": use "+strings.TrimSuffix(t.Kind, "Subset")+"Subset", nil)
	}
	checkTags(path+".tags", t.Tags, fault)
}
