package authorize

import (
	"net/netip"
	"slices"
	"strings"

	"penstock/kafka/filter"
	"penstock/routing/permit"
	"penstock/routing/resource"
)

// Rules are the permissions for the requests of one virtual cluster. They are
// immutable.
type Rules struct {
	// Closed: a permission with allow names the cluster, so that what none
	// allows is denied.
	Closed bool

	rules []rule
}

type action uint8

const (
	deny action = iota
	shadowDeny
	allow
)

// rule is one entry of "to" of a permission, for the clients of its "from".
type rule struct {
	name      string // of the permission and its entry
	action    action
	from      []resource.TrafficSource
	listeners []string
	grants    []grant
}

// grant is one entry of "kafka".
type grant struct {
	operations Operation
	any        bool // every resource
	names      [resourceTypes][]string
}

// Permission is a permission with its name.
type Permission struct {
	Name string
	Spec *resource.TrafficPermission
}

// Compile returns the rules of a virtual cluster, or nil if no permission has any.
// Permissions must be valid; they are kept.
func Compile(cluster string, permissions []Permission) *Rules {
	r := &Rules{}
	for _, p := range permissions {
		for _, spec := range p.Spec.Split() {
			r.add(cluster, p.Name, spec)
		}
	}
	if len(r.rules) == 0 {
		return nil
	}
	return r
}

// add adds the entries of a permission with one action that are for the cluster.
func (r *Rules) add(cluster, name string, spec *resource.TrafficPermission) {
	for i := range spec.To {
		to := &spec.To[i]
		if len(to.Kafka) == 0 || len(to.VirtualClusters) > 0 && !slices.Contains(to.VirtualClusters, cluster) {
			continue
		}
		one := rule{name: resource.Item(name+" to", i), from: spec.From, listeners: to.Listeners}
		switch spec.Action {
		case resource.ActionAllow:
			one.action, r.Closed = allow, true
		case resource.ActionShadowDeny:
			one.action = shadowDeny
		}
		for j := range to.Kafka {
			one.grants = append(one.grants, compileGrant(&to.Kafka[j]))
		}
		r.rules = append(r.rules, one)
	}
}

func compileGrant(k *resource.KafkaRequests) grant {
	g := grant{names: [resourceTypes][]string{Topic: k.Topics, Group: k.Groups, TransactionalID: k.TransactionalIDs}}
	for _, word := range k.Operations {
		o, _ := ParseOperation(word) // validated
		g.operations |= o
	}
	if len(k.Operations) == 0 {
		g.operations = allOperations
	}
	g.any = len(k.Topics)+len(k.Groups)+len(k.TransactionalIDs) == 0 && !k.Cluster
	if k.Cluster {
		g.names[Cluster] = []string{ClusterName}
	}
	return g
}

// matchesName reports whether a name is what a permission says: a name, or a prefix
// before "*".
func matchesName(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

func (g *grant) matches(operations Operation, t ResourceType, name string) bool {
	return g.operations&operations != 0 &&
		(g.any || slices.ContainsFunc(g.names[t], func(pattern string) bool { return matchesName(pattern, name) }))
}

// match is whether a rule is for a client.
type match uint8

const (
	no    match = iota
	maybe       // it cannot be known
	yes
)

// matches reports whether a rule is for a client.
func (r *rule) matches(c *filter.Client, clientID string) match {
	if len(r.listeners) > 0 && !slices.Contains(r.listeners, c.Listener) {
		return no
	}
	if len(r.from) == 0 {
		return yes
	}
	best := no
	for i := range r.from {
		best = max(best, matchSource(&r.from[i], c, clientID))
	}
	return best
}

func matchSource(s *resource.TrafficSource, c *filter.Client, clientID string) match {
	undecided := c.IdentityUndecided && len(s.Identities)+len(s.Services)+len(s.Tags) > 0
	switch {
	case len(s.Networks) > 0 && !containsAddress(s.Networks, c.Address),
		!undecided && !matchesClaims(s, c),
		len(s.ClientIDs) > 0 && !slices.ContainsFunc(s.ClientIDs, func(p string) bool { return matchesName(p, clientID) }):
		return no
	}
	known := yes
	if undecided {
		known = maybe
	}
	switch {
	case len(s.Principals) == 0:
		return known
	case c.Principal == "":
		return maybe
	case slices.ContainsFunc(s.Principals, func(p string) bool { return matchesName(p, c.Principal) }):
		return known
	}
	return no
}

// matchesClaims reports whether a client is what a source says by what certificates
// prove, and by other tags.
func matchesClaims(s *resource.TrafficSource, c *filter.Client) bool {
	if len(s.Identities) > 0 &&
		!slices.ContainsFunc(s.Identities, func(p string) bool { return resource.MatchSPIFFE(p, c.Identity) }) ||
		len(s.Services) > 0 && !slices.Contains(s.Services, c.Service) {
		return false
	}
	for key, value := range s.Tags {
		if have, ok := c.Tags[key]; !ok || have != value {
			return false
		}
	}
	return true
}

func containsAddress(networks []netip.Prefix, a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return permit.Network(n).Contains(a) })
}

// A Decision is about one operation on one resource.
type Decision struct {
	Allowed bool
	// Rule is the permission that decided, or "" if none did. Shadow is the one that
	// would deny if it were in force.
	Rule, Shadow string
}

// Applicable are the rules for one client. A deny whose client is not known for
// certain is among them, an allow is not: undecidable is denied.
type Applicable struct {
	closed bool
	rules  []*rule // deny, then shadowDeny, then allow
}

// For returns the rules for a client.
func (r *Rules) For(c *filter.Client, clientID string) Applicable {
	a := Applicable{closed: r.Closed}
	for want := deny; want <= allow; want++ {
		for i := range r.rules {
			one := &r.rules[i]
			if one.action != want {
				continue
			}
			if m := one.matches(c, clientID); m == yes || m == maybe && want != allow {
				a.rules = append(a.rules, one)
			}
		}
	}
	return a
}

// Decide decides on one operation on a resource.
func (a *Applicable) Decide(o Operation, t ResourceType, name string) (d Decision) {
	for _, r := range a.rules {
		operations := o
		if r.action == allow {
			operations = o.grantedBy()
		}
		if !slices.ContainsFunc(r.grants, func(g grant) bool { return g.matches(operations, t, name) }) {
			continue
		}
		switch r.action {
		case deny:
			return Decision{Rule: r.name, Shadow: d.Shadow}
		case shadowDeny:
			if d.Shadow == "" {
				d.Shadow = r.name
			}
		case allow:
			return Decision{Allowed: true, Rule: r.name, Shadow: d.Shadow}
		}
	}
	d.Allowed = !a.closed
	return d
}

// All reports whether an operation is allowed on every resource of a type, without
// any exception and without a rule that only counts.
func (a *Applicable) All(o Operation, t ResourceType) bool {
	for _, r := range a.rules {
		for i := range r.grants {
			g := &r.grants[i]
			if r.action == allow {
				if g.operations&o.grantedBy() != 0 && (g.any || slices.Contains(g.names[t], "*")) {
					return true
				}
			} else if g.operations&o != 0 && (g.any || len(g.names[t]) > 0) {
				return false
			}
		}
	}
	return !a.closed
}

// Some decides whether an operation is allowed on at least one resource of a type that
// may exist, as Kafka's authorizeByResourceType does: an allow counts if no
// deny covers all of it.
func (a *Applicable) Some(o Operation, t ResourceType) (d Decision) {
	var denied []string
	for _, r := range a.rules {
		for i := range r.grants {
			g := &r.grants[i]
			patterns := g.names[t]
			if g.any {
				patterns = []string{"*"}
			}
			switch {
			case r.action == deny && g.operations&o != 0:
				if denied = append(denied, patterns...); slices.Contains(patterns, "*") {
					return Decision{Rule: r.name}
				}
			case r.action == allow && g.operations&o.grantedBy() != 0:
				for _, p := range patterns {
					if !slices.ContainsFunc(denied, func(by string) bool { return covers(by, p) }) {
						return Decision{Allowed: true, Rule: r.name}
					}
				}
			}
		}
	}
	return Decision{Allowed: !a.closed}
}

// covers reports whether all names of a pattern are names of another one.
func covers(by, pattern string) bool {
	if prefix, ok := strings.CutSuffix(by, "*"); ok {
		return strings.HasPrefix(strings.TrimSuffix(pattern, "*"), prefix)
	}
	return by == pattern
}
