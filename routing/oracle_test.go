package routing

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

// oracle applies the documented rules of MeshTCPRoute literally, one after the
// other, with loops over everything. It shares no code with the table and reads
// the resources as users write them.
type oracle struct {
	node     map[string]string
	listener *resource.Listener
	services map[string]*resource.Service
	routes   map[string]*resource.MeshTCPRoute
	http     map[string]*resource.MeshHTTPRoute
}

// verdict is the expected routing of one kind of connections.
type verdict struct {
	policy string         // the deciding policy, or ""
	shares map[string]int // turns per period, by "service {k=v,...}"
	closed bool           // no backend is usable
	why    []string       // per backend: why it gets no share, or ""
}

// tags returns the tags of a source and its service. Tags of the client
// override those of its network, then the listener, then the node.
func (o *oracle) tags(in *Input) (tags map[string]string, service string) {
	var network map[string]string
	longest := -1
	for _, rule := range o.listener.Sources {
		for _, p := range rule.From {
			if p.Contains(in.Client) && p.Bits() > longest {
				network, longest = rule.Tags, p.Bits()
			}
		}
	}
	tags = map[string]string{}
	for _, layer := range []map[string]string{o.node, o.listener.Tags, network, in.Tags} { // later layers override earlier ones
		for k, v := range layer {
			tags[k] = v
		}
		if v, ok := layer["kuma.io/service"]; ok {
			service = v
		}
		if v, ok := layer["service"]; ok {
			service = v
		}
	}
	return tags, service
}

func (o *oracle) picks(ref *resource.TargetRef, tags map[string]string, service string) bool {
	if ref == nil || ref.Kind == "Mesh" {
		return true
	}
	if (ref.Kind == "MeshService" || ref.Kind == "MeshServiceSubset") && ref.Name != service {
		return false
	}
	if ref.Kind == "MeshSubset" || ref.Kind == "MeshServiceSubset" {
		for k, v := range ref.Tags {
			if got, ok := tags[k]; !ok || got != v {
				return false
			}
		}
	}
	return true
}

// beats reports whether the first of two routes precedes the second.
func (o *oracle) beats(a, b string) bool {
	rank := func(name string) (kind, tags int) {
		ref := o.routes[name].TargetRef
		if ref == nil {
			return 0, 0
		}
		return map[string]int{"Mesh": 0, "MeshSubset": 1, "MeshService": 2, "MeshServiceSubset": 3}[ref.Kind], len(ref.Tags)
	}
	kindA, tagsA := rank(a)
	kindB, tagsB := rank(b)
	if kindA != kindB {
		return kindA > kindB
	}
	if tagsA != tagsB {
		return tagsA > tagsB
	}
	return a < b
}

// alive reports whether a service has an endpoint with the tags and a weight,
// and whether it exists.
func (o *oracle) alive(service string, tags map[string]string) (is, there bool) {
	s, there := o.services[service]
	if !there {
		return false, false
	}
	for _, e := range s.Endpoints {
		has := o.takes(s, e.Tags)
		for k, v := range tags {
			has = has && e.Tags[k] == v
		}
		is = is || has && *e.Weight > 0
	}
	return is, true
}

// takes reports whether this node may use an endpoint with these tags: by matchTag, if it
// has that tag itself.
func (o *oracle) takes(s *resource.Service, tags map[string]string) bool {
	own, has := o.node[s.Balancing.MatchTag]
	return !has || tags[s.Balancing.MatchTag] == own
}

func (o *oracle) decide(in *Input) verdict {
	tags, service := o.tags(in)
	destination := o.listener.Service
	v := verdict{shares: map[string]int{}}
	if _, there := o.services[destination]; !there {
		v.closed = true // whatever its policies
		return v
	}
	var refs []resource.BackendRef
	for name, r := range o.routes {
		if !o.picks(r.TargetRef, tags, service) {
			continue
		}
		for _, to := range r.To {
			if to.TargetRef.Name == destination && (v.policy == "" || o.beats(name, v.policy)) {
				v.policy, refs = name, to.Rules[0].Default.BackendRefs
			}
		}
	}
	if v.policy == "" || len(refs) == 0 {
		refs = []resource.BackendRef{{Kind: "MeshService", Name: destination}}
	}
	o.divide(&v, refs)
	return v
}

// divide sets the share of each backend of a policy or rule.
func (o *oracle) divide(v *verdict, refs []resource.BackendRef) {
	weights := map[string]int{}
	for _, ref := range refs {
		weight := 1
		if ref.Weight != nil {
			weight = *ref.Weight
		}
		alive, there := o.alive(ref.Name, ref.Tags)
		switch {
		case !there:
			v.why = append(v.why, "there is no service \""+ref.Name+"\"")
		case weight == 0:
			v.why = append(v.why, "its weight is 0")
		case !alive && v.policy != "":
			v.why = append(v.why, "it has no endpoint")
		default:
			v.why = append(v.why, "")
			weights[backendText(ref.Name, ref.Tags)] += weight
		}
	}
	// Reduce before equal refs are merged: the split counts them separately.
	divisor := 0
	for i, ref := range refs {
		if v.why[i] == "" {
			w := 1
			if ref.Weight != nil {
				w = *ref.Weight
			}
			for b := w; b != 0; {
				divisor, b = b, divisor%b
			}
		}
	}
	for name, w := range weights {
		v.shares[name] = w / divisor
	}
	v.closed = len(v.shares) == 0
}

func backendText(service string, tags map[string]string) string {
	if len(tags) == 0 {
		return service
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, k+"="+tags[k])
	}
	return service + " {" + strings.Join(parts, ",") + "}"
}

// mesh draws tables with few names and tags, so that policies interact.
type mesh struct{ t *rapid.T }

func (m mesh) tags(least, most int, keys ...string) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"1", "2", "s-1"}), least, most).Draw(m.t, "tags")
}

// subset draws tags of endpoints.
func (m mesh) subset(least int) map[string]string {
	return rapid.MapOfN(
		rapid.SampledFrom([]string{"version", "region"}), rapid.SampledFrom([]string{"1", "2"}), least, 2,
	).Draw(m.t, "tags of endpoints")
}

var sourceTags = []string{"zone", "team", "track", "service", "kuma.io/service"}

func (m mesh) name(kind string) string {
	return fmt.Sprintf("%s-%d", kind, rapid.IntRange(0, 4).Draw(m.t, kind))
}

func (m mesh) service() *resource.Service {
	s := &resource.Service{}
	s.Balancing.MatchTag = rapid.SampledFrom([]string{"", "", "version"}).Draw(m.t, "match")
	for i := range rapid.IntRange(0, 6).Draw(m.t, "endpoints") {
		s.Endpoints = append(s.Endpoints, resource.Endpoint{
			Address: fmt.Sprintf("10.0.0.%d:1", i), Weight: new(rapid.IntRange(0, 2).Draw(m.t, "weight")), Tags: m.subset(0),
		})
	}
	return s
}

func (m mesh) targetRef() *resource.TargetRef {
	switch kind := rapid.SampledFrom([]string{
		"", "Mesh", "MeshSubset", "MeshSubset", "MeshService", "MeshServiceSubset",
	}).Draw(m.t, "kind"); kind {
	case "":
		return nil
	case "MeshSubset":
		return &resource.TargetRef{Kind: kind, Tags: m.tags(1, 4, sourceTags...)}
	case "MeshService":
		return &resource.TargetRef{Kind: kind, Name: m.name("s")}
	case "MeshServiceSubset":
		return &resource.TargetRef{Kind: kind, Name: m.name("s"), Tags: m.tags(1, 4, sourceTags...)}
	default:
		return &resource.TargetRef{Kind: kind}
	}
}

func (m mesh) route() *resource.MeshTCPRoute {
	r := &resource.MeshTCPRoute{TargetRef: m.targetRef()}
	// Most routes are for the tested service, which then has many.
	for _, to := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"s-0", "s-0", "s-0", "s-1", "s-2"}), 1, 2, rapid.ID).Draw(m.t, "to") {
		var refs []resource.BackendRef
		for range rapid.IntRange(0, 4).Draw(m.t, "refs") {
			ref := resource.BackendRef{Kind: "MeshService", Name: m.name("s")}
			if rapid.Bool().Draw(m.t, "subset") {
				ref.Kind, ref.Tags = "MeshServiceSubset", m.subset(1)
			}
			if rapid.Bool().Draw(m.t, "weighted") {
				ref.Weight = new(rapid.SampledFrom([]int{0, 1, 2, 3, 5, 10, 1_000_000}).Draw(m.t, "weight"))
			}
			refs = append(refs, ref)
		}
		r.To = append(r.To, resource.RouteTo{
			TargetRef: resource.TargetRef{Kind: "MeshService", Name: to},
			Rules:     []resource.RouteRule{{Default: resource.RouteDefault{BackendRefs: refs}}},
		})
	}
	return r
}

// otherWeights returns a route with the same backends and other weights.
func (m mesh) otherWeights(r *resource.MeshTCPRoute) *resource.MeshTCPRoute {
	next := &resource.MeshTCPRoute{TargetRef: r.TargetRef}
	for _, to := range r.To {
		refs := slices.Clone(to.Rules[0].Default.BackendRefs)
		for i := range refs {
			refs[i].Weight = new(rapid.IntRange(1, 6).Draw(m.t, "weight"))
		}
		to.Rules = []resource.RouteRule{{Default: resource.RouteDefault{BackendRefs: refs}}}
		next.To = append(next.To, to)
	}
	return next
}

// change draws one change and updates the oracle.
func (m mesh) change(o *oracle) resource.Change {
	if rapid.IntRange(0, 3).Draw(m.t, "kind of change") == 0 {
		name := m.name("s")
		if rapid.IntRange(0, 3).Draw(m.t, "gone") == 0 {
			delete(o.services, name)
			return resource.Delete(key("Service", name))
		}
		o.services[name] = m.service()
		return put("Service", name, o.services[name])
	}
	most := rapid.SampledFrom([]int{0, 1, 2, 29}).Draw(m.t, "most")
	name := fmt.Sprintf("r-%d", rapid.IntRange(0, most).Draw(m.t, "route"))
	if rapid.IntRange(0, 5).Draw(m.t, "gone") == 0 {
		delete(o.routes, name)
		return resource.Delete(key("MeshTCPRoute", name))
	}
	if r := o.routes[name]; r != nil && rapid.Bool().Draw(m.t, "weights alone") {
		o.routes[name] = m.otherWeights(r)
	} else {
		o.routes[name] = m.route()
	}
	return put("MeshTCPRoute", name, o.routes[name])
}

// After any sequence of changes the table decides as the documented rules say:
// the policy, why each skipped backend gets no share, and the exact share of
// each backend per period.
func TestPoliciesAgreeWithOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := mesh{t}
		o := &oracle{node: m.tags(0, 2, append(slices.Clone(sourceTags), "version")...), services: map[string]*resource.Service{}, routes: map[string]*resource.MeshTCPRoute{}}
		o.listener = &resource.Listener{Service: "s-0", Tags: m.tags(0, 2, sourceTags...)}
		for _, bits := range []int{8, 16, 24} {
			o.listener.Sources = append(o.listener.Sources, resource.SourceRule{
				From: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), bits)}, Tags: m.tags(0, 3, sourceTags...)})
		}
		r := NewRouter(Config{NodeTags: o.node})
		batch := []resource.Change{put("Listener", "front", o.listener)}
		for i := range 4 {
			name := fmt.Sprintf("s-%d", i)
			o.services[name] = m.service()
			batch = append(batch, put("Service", name, o.services[name]))
		}
		for range rapid.IntRange(1, 10).Draw(t, "batches") {
			// A single change shows whether everything that depends on it is rebuilt.
			for range rapid.SampledFrom([]int{1, 1, 1, 2, 5, 25}).Draw(t, "changes") {
				batch = append(batch, m.change(o))
			}
			if _, err := r.Apply(batch, t0); err != nil {
				t.Fatal(err)
			}
			batch = nil
			for range 4 {
				in := &Input{Listener: "front", Tags: m.tags(0, 3, sourceTags...)}
				in.Client = netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 1).Draw(t, "b")), byte(rapid.IntRange(0, 1).Draw(t, "c")), 1})
				compareWith(t, o, r, in)
			}
		}
	})
}

// longestPeriod bounds the turns per comparison.
const longestPeriod = 500

func compareWith(t *rapid.T, o *oracle, r *Router, in *Input) {
	want := o.decide(in)
	steps := r.Explain(in, t0).Steps
	policy, states := "", []BackendState(nil)
	for _, s := range steps {
		for _, p := range s.Policies {
			if p.Wins {
				policy = p.Name
			}
		}
		if s.Name == "backend" {
			states = s.Backends
		}
	}
	if policy != want.policy {
		t.Fatalf("%v: %q decides, want %q", in, policy, want.policy)
	}
	for i, x := range states {
		if x.Skipped != want.why[i] {
			t.Fatalf("%v: backend %d of %s is skipped by %q, want %q", in, i, policy, x.Skipped, want.why[i])
		}
	}
	if want.policy != "" && len(states) != len(want.why) {
		t.Fatalf("%v: %d backends of %s, want %d", in, len(states), policy, len(want.why))
	}
	period := 0
	for _, n := range want.shares {
		period += n
	}
	if want.closed {
		if _, reason := r.Decide(in); reason != NoBackend {
			t.Fatalf("%v: %q, want %s", in, reason, NoBackend)
		}
		return
	}
	if period > longestPeriod {
		return
	}
	got := map[string]int{}
	for n := range 2 * period { // a split that starts within a period is exact after it
		d, reason := r.Decide(in)
		if reason != OK {
			t.Fatalf("%v: %s, want %v", in, reason, want.shares)
		}
		if n >= period {
			got[backendText(d.backend.name, d.backend.tags)]++
		}
		name, subset := d.backend.name, d.backend.tags
		if e, reason := d.Next(t0); reason == OK && (!o.takes(o.services[name], e.Tags) || !hasTags(e.Tags, subset)) {
			t.Fatalf("%v: %s goes to an endpoint with %v on a node with %v", in, name, e.Tags, o.node)
		}
		d.Closed()
	}
	if !maps.Equal(got, want.shares) {
		t.Fatalf("%v by %s: %v, want %v", in, want.policy, got, want.shares)
	}
}
