package routing

import (
	"fmt"
	"maps"
	"slices"

	"penstock/routing/permit"
	"penstock/routing/resource"
)

// noPermissions is the index of a table without permissions.
var noPermissions permit.Index

// permissions returns the index; it is never nil.
func (t *Table) permissions() *permit.Index {
	if t.permits == nil {
		return &noPermissions
	}
	return t.permits
}

func (c *compiler) putPermission(name string, spec resource.Spec) {
	p, _ := spec.(*resource.TrafficPermission)
	if p != nil {
		p = p.WithDefaults()
	}
	c.permits = c.permits.With(name, p)
}

func (c *compiler) putMesh(spec resource.Spec) {
	m, _ := spec.(*resource.Mesh)
	c.permits = c.permits.WithDefault(m != nil && m.Permission == "deny")
}

// denies reports whether a client may not connect to a service, or not send a
// request to it if q is not nil. tr is nil on the data path.
func (t *Table) denies(in *Input, l *Listener, s *Service, q *Request, tr *trace) bool {
	if t.permissions().Unused() {
		return false
	}
	src := t.source(in, l)
	query := permit.Query{Service: s.name}
	if q != nil {
		query.Request, query.Method, query.Path = true, q.Method, q.Path
	}
	v := t.permitted(in, &src, &query)
	tr.permission(s.name, q, &v)
	if !tr.enabled() && !t.isClone {
		v.Count()
	}
	return !v.Allowed()
}

// deniesSource is denies for simulations, which name no listener. A request whose
// path has no normal form is refused elsewhere.
func (t *Table) deniesSource(in *Input, src *source, service string, q *Request) bool {
	query := permit.Query{Service: service}
	if q != nil {
		full, _ := q.described(in, &Listener{spec: &resource.Listener{}})
		query.Request, query.Method, query.Path = true, full.Method, full.Path
	}
	v := t.permitted(in, src, &query)
	return !v.Allowed()
}

// permitted decides a query of which the destination and the request are given.
func (t *Table) permitted(in *Input, src *source, q *permit.Query) permit.Verdict {
	q.Listener, q.Client, q.Layers = in.Listener, in.Client, src.layers
	q.Identity, q.Undecided = in.Tags[identityTag], in.IdentityUndecided
	q.ClientService = src.service()
	return t.permissions().Decide(q)
}

// Permissions returns the permissions in force.
func (t *Table) Permissions() *permit.Index { return t.permissions() }

// Restricts reports whether there are permissions, or a default that denies.
func (t *Table) Restricts() bool { return !t.permissions().Unused() }

// Shadows reports whether there is a permission with shadowDeny.
func (t *Table) Shadows() bool { return t.permissions().Shadows() }

// SamePermissions reports whether both tables have the same permissions, so that
// nothing they decide can differ by these alone.
func (t *Table) SamePermissions(other *Table) bool { return t.permissions() == other.permissions() }

// Retagged returns those of the listeners that both tables have and that give some
// client other tags by the one than by the other.
func (t *Table) Retagged(other *Table, listeners []string) []string {
	return slices.DeleteFunc(slices.Clone(listeners), func(name string) bool {
		a, inOne := t.listeners.Get(name)
		b, inOther := other.listeners.Get(name)
		return !inOne || !inOther || a == b ||
			maps.Equal(a.spec.Tags, b.spec.Tags) && resource.Same(a.spec.Sources, b.spec.Sources)
	})
}

// Permission decides whether an established connection to a service may stay. A
// listener that the table does not have gives the client no tags.
func (t *Table) Permission(in *Input, service string) permit.Verdict {
	return t.established(in, &permit.Query{Service: service})
}

// RequestPermission is Permission for a request, whose path is in normal form.
func (t *Table) RequestPermission(in *Input, service, method, path string) permit.Verdict {
	return t.established(in, &permit.Query{Service: service, Request: true, Method: method, Path: path})
}

// ClusterPermission decides whether a client may connect, or stay connected, to a
// virtual cluster of Kafka.
func (t *Table) ClusterPermission(in *Input, cluster string) permit.Verdict {
	return t.established(in, &permit.Query{Cluster: cluster})
}

func (t *Table) established(in *Input, q *permit.Query) permit.Verdict {
	var src source
	if l, ok := t.listeners.Get(in.Listener); ok {
		src = t.source(in, l)
	} else {
		src = source{layers: [4]map[string]string{0: in.Tags, 3: t.node}}
	}
	return t.permitted(in, &src, q)
}

// Denial describes a verdict that denies, for logs.
func Denial(v *permit.Verdict) string {
	switch v.Why {
	case permit.ByDeny:
		return fmt.Sprintf("TrafficPermission %s denies it", v.Rule)
	case permit.NoneAllows:
		return fmt.Sprintf("no TrafficPermission allows it; %s names the destination", v.Rule)
	case permit.Closed:
		return "no TrafficPermission names the destination, and the mesh's default is deny"
	}
	return ""
}

// verdictText describes a verdict for explain.
func verdictText(v *permit.Verdict) string {
	s := Denial(v)
	switch {
	case !v.Allowed():
		s += fmt.Sprintf(": denied (%s)", PermissionDenied)
	case v.Why == permit.ByAllow:
		s = fmt.Sprintf("TrafficPermission %s allows it", v.Rule)
	default:
		s = "no TrafficPermission names the destination, and the mesh's default is allow"
	}
	if v.Shadow != "" {
		s += fmt.Sprintf("; TrafficPermission %s (shadowDeny) would deny it", v.Shadow)
	}
	return s
}
