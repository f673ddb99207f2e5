package gateway

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"penstock/routing/resource"
)

// grants are all ReferenceGrants.
type grants []*ReferenceGrant

// PermitsSecret reports whether one of some ReferenceGrants lets objects of a kind in the
// namespace from refer to a Secret. In its own namespace, each object may.
func PermitsSecret(list []*ReferenceGrant, group, kind, from, namespace, name string) bool {
	return grants(list).permitsIn(group, kind, from, kindSecret, namespace, name)
}

// permits reports whether an object of the Gateway API may refer to another.
func (list grants) permits(kind, from string, to, namespace, name string) bool {
	return list.permitsIn(Group, kind, from, to, namespace, name)
}

func (list grants) permitsIn(group, kind, from string, to, namespace, name string) bool {
	if from == namespace {
		return true
	}
	for _, g := range list {
		if g.Origin.namespace() != namespace {
			continue
		}
		trusts := slices.ContainsFunc(g.From, func(f GrantFrom) bool { return f.Group == group && f.Kind == kind && f.Namespace == from })
		gives := slices.ContainsFunc(g.To, func(t GrantTo) bool { return t.Group == "" && t.Kind == to && (t.Name == "" || t.Name == name) })
		if trusts && gives {
			return true
		}
	}
	return false
}

// references decides which references between namespaces are allowed.
type references struct {
	grants       grants
	hasNamespace func(namespace string) bool // whether it has objects of the Gateway API
}

// resolveNamespace returns the namespace and name of the object that a
// reference means. A name in the default namespace that begins with another
// namespace and a dot means an object of that one: both have the same name
// here, and a dot must not bypass ReferenceGrants.
func (t references) resolveNamespace(namespace, name string) (string, string) {
	if first, rest, ok := strings.Cut(name, "."); ok && namespace == defaultNamespace && t.hasNamespace(first) {
		return first, rest
	}
	return namespace, name
}

// notPermitted reports whether a reference leads into another namespace without
// a grant, and returns the namespace and name that it means. of is called only
// if it may.
func notPermitted(kind, from string, to, namespace, name string, of func() references) (in, called string, is bool) {
	if from == namespace && (namespace != defaultNamespace || !strings.Contains(name, ".")) {
		return namespace, name, false
	}
	t := of()
	in, called = t.resolveNamespace(namespace, name)
	return in, called, !t.grants.permits(kind, from, to, in, called)
}

// referencesIn returns the references of a set. Namespaces are collected only
// when a name has a dot.
func referencesIn(in objects) references {
	t := references{grants: grants{}}
	for o := range in.All(KindGrant) {
		if g, ok := o.Spec.(*ReferenceGrant); ok {
			t.grants = append(t.grants, g)
		}
	}
	namespaces := sync.OnceValue(func() map[string]bool {
		found := map[string]bool{}
		for _, kind := range Kinds() {
			for o := range in.All(kind.Name) {
				if origin := OriginOf(o.Spec); origin != nil && origin.namespace() != defaultNamespace {
					found[origin.namespace()] = true
				}
			}
		}
		return found
	})
	t.hasNamespace = func(namespace string) bool { return namespaces()[namespace] }
	return t
}

// objects is the part of a set that these functions need.
type objects interface {
	Get(k resource.Key) (resource.Object, bool)
	All(kind string) iter.Seq[resource.Object]
	Users(k resource.Key) iter.Seq[resource.Object]
}

// references returns the references that the model allows.
func (m *Model) references() references {
	var list grants
	for _, g := range m.grants.All() {
		list = append(list, g)
	}
	return references{list, func(namespace string) bool {
		_, ok := m.namespaces.Get(namespace)
		return ok
	}}
}

// originOf returns the origin of an object before the change; nil if it did not exist.
func (e *edit) originOf(k resource.Key) *Origin {
	switch k.Kind {
	case KindGateway:
		if old, ok := e.gateways.Get(k.Name); ok && old.spec != nil {
			return &old.spec.Origin
		}
	case KindGrant:
		if old, ok := e.grants.Get(k.Name); ok {
			return &old.Origin
		}
	case KindTCPRoute, KindTLSRoute:
		if old, ok := e.routes.Get(k.Kind + "/" + k.Name); ok {
			return old.origin
		}
	}
	return nil
}

// countNamespaces counts the namespaces of an object before and after a change;
// nil: none.
func (e *edit) countNamespaces(was, is *Origin) {
	count := func(o *Origin, by int) {
		if o == nil || o.namespace() == defaultNamespace {
			return
		}
		name := o.namespace()
		n, _ := e.namespaces.Get(name)
		if n+by == 0 {
			e.namespaces.Delete(name)
		} else {
			e.namespaces.Set(name, n+by)
		}
		if n == 0 || n+by == 0 {
			e.changedNamespaces[name] = true
		}
	}
	count(was, -1)
	count(is, 1)
}

// touchNamespaceReferrers marks what refers, by a name with a dot, to a
// namespace that appeared or vanished.
func (e *edit) touchNamespaceReferrers() {
	if len(e.changedNamespaces) == 0 {
		return
	}
	moved := func(namespace, name string) bool {
		first, _, ok := strings.Cut(name, ".")
		return ok && namespace == defaultNamespace && e.changedNamespaces[first]
	}
	routes, gateways := e.routes.Map(), e.gateways.Map()
	for name, r := range routes.All() {
		if slices.ContainsFunc(r.backends, func(b BackendRef) bool { return moved(refNamespace(b.Namespace, r.origin), b.Name) }) {
			e.rerouted[name] = true
		}
	}
	for name, g := range gateways.All() {
		for i := 0; g.spec != nil && i < len(g.spec.Listeners); i++ {
			if t := g.spec.Listeners[i].Security; t != nil && slices.ContainsFunc(
				t.CertificateRefs,
				func(r CertificateRef) bool { return moved(refNamespace(r.Namespace, &g.spec.Origin), r.Name) },
			) {
				e.touched[name] = true
			}
		}
	}
	e.routes, e.gateways = routes.Edit(), gateways.Edit()
}

// ObjectName is the name of an object in its namespace.
type ObjectName struct{ Namespace, Name string }

// SecretRefs lists the Secrets that the Gateway's listeners refer to, each once, whether
// they may or not.
func (g *Gateway) SecretRefs() (list []ObjectName) {
	for i := range g.Listeners {
		t := g.Listeners[i].Security
		if t == nil || !t.terminates() {
			continue
		}
		for j := range t.CertificateRefs {
			r := &t.CertificateRefs[j]
			if name := (ObjectName{refNamespace(r.Namespace, &g.Origin), r.Name}); r.isSecret() && r.Kind != kindCertificate && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

// HomeNamespace returns the namespace of an object; "default" if it names none.
func (o *Origin) HomeNamespace() string { return o.namespace() }
