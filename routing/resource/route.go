package resource

// MeshTCPRoute distributes connections from some sources to a destination over
// weighted backends (Kuma's policy of the same name).
type MeshTCPRoute struct {
	// TargetRef selects the sources. Default {kind: Mesh}.
	TargetRef *TargetRef `yaml:"targetRef"`
	// To has one entry for each destination, at least one.
	To []RouteTo `yaml:"to"`
	// Rollout moves weight to one of the backends over time; it requires a route
	// with one destination. Left out: the weights apply as written.
	Rollout *RouteRollout `yaml:"rollout"`
}

// RouteTo routes the connections to one destination.
type RouteTo struct {
	// TargetRef is the destination, a MeshService.
	TargetRef TargetRef `yaml:"targetRef"`
	// Rules holds exactly one rule.
	Rules []RouteRule `yaml:"rules"`
}

// RouteRule holds what the rule does under default, as Kuma's policy does.
type RouteRule struct {
	// Default is what the rule does.
	Default RouteDefault `yaml:"default"`
}

// RouteDefault lists the backends; left out: the destination itself.
type RouteDefault struct {
	// BackendRefs share the connections by weight. Not empty when given, at
	// most 1,000.
	BackendRefs []BackendRef `yaml:"backendRefs"`
}

// TargetRef selects a set of sources or a destination.
type TargetRef struct {
	// Kind is Mesh, MeshSubset, MeshService or MeshServiceSubset. Required.
	Kind string `yaml:"kind" oneof:"Mesh MeshSubset MeshService MeshServiceSubset"`
	// Name is the service of MeshService and MeshServiceSubset.
	Name string `yaml:"name"`
	// Tags select the subset of MeshSubset and MeshServiceSubset.
	Tags map[string]string `yaml:"tags"`
}

// BackendRef is one backend: a MeshService, or a MeshServiceSubset by tags.
type BackendRef struct {
	// Kind is MeshService or MeshServiceSubset. Required.
	Kind string `yaml:"kind" oneof:"MeshService MeshServiceSubset"`
	// Name is the service. Required.
	Name string `yaml:"name"`
	// Weight is the share among the backends. Default 1, 0..1,000,000; with 0 the
	// backend gets nothing.
	Weight *int `yaml:"weight" default:"1" range:"0..1000000"`
	// Tags select the subset; required for MeshServiceSubset.
	Tags map[string]string `yaml:"tags"`
}

// Refs lists the services that the route names. All may be missing: a missing
// backend is skipped, and its share goes to the others.
func (r *MeshTCPRoute) Refs() []Ref {
	refs := targetRefs(nil, r.TargetRef, "targetRef")
	for i := range r.To {
		to, path := &r.To[i], Item("to", i)
		refs = targetRefs(refs, &to.TargetRef, path+".targetRef")
		for j := range to.Rules {
			refs = backendRefs(refs, to.Rules[j].Default.BackendRefs, Item(path+".rules", j))
		}
	}
	return refs
}

// targetRefs appends the service that a target names, if any.
func targetRefs(refs []Ref, t *TargetRef, path string) []Ref {
	if t == nil || t.Name == "" {
		return refs
	}
	return append(refs, Ref{Key: Key{"Service", t.Name}, Path: "spec." + path + ".name", Optional: true})
}

// backendRefs appends the services of a rule's backends.
func backendRefs(refs []Ref, backends []BackendRef, rule string) []Ref {
	for i, b := range backends {
		if b.Name != "" {
			refs = append(refs, Ref{Key: Key{"Service", b.Name}, Path: "spec." + Item(rule+".default.backendRefs", i) + ".name", Optional: true})
		}
	}
	return refs
}
