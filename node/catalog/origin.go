package catalog

import (
	"cmp"
	"fmt"
	"time"

	"penstock/routing/formats/document"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// Objects in foreign formats have a namespace, or differ by format, beside
// their name. Names in Penstock have neither: two different objects may have
// the same name here, and the later one must not replace the other.

// labelKumaNamespace is the label in which Kuma keeps a policy's namespace.
const labelKumaNamespace = "k8s.kuma.io/namespace"

// A Gateway API route without a creation timestamp gets one when it is created.
// Of two conflicting routes the older one wins; without timestamps the first by
// name would win, and a new route could take the connections of an existing
// one.

// keepAge sets the creation timestamp of a route that has none: that of the
// stored route, or a new one. A dry run sets none; the route counts as the
// youngest anyway.
func (a *applying) keepAge(o, stored *resource.Object) {
	switch s := o.Spec.(type) { // copied before a change, since the caller has it
	case *gateway.TCPRoute:
		if s.Origin.CreationTimestamp == "" {
			dated := *s
			dated.Origin.CreationTimestamp, o.Spec = a.ageOf(stored), &dated
		}
	case *gateway.TLSRoute:
		if s.Origin.CreationTimestamp == "" {
			dated := *s
			dated.Origin.CreationTimestamp, o.Spec = a.ageOf(stored), &dated
		}
	}
}

// ageOf returns the creation timestamp of the stored object, or one for a new
// object.
func (a *applying) ageOf(stored *resource.Object) string {
	switch former := gateway.OriginOf(stored.Spec); {
	case former != nil:
		return former.CreationTimestamp
	case a.change.DryRun:
		return ""
	}
	return a.stamp()
}

// stamp returns the creation timestamp of all objects that a change creates. It
// is later than that of every existing route, even if another leader, whose
// clock was ahead, set those. Timestamps ahead by maxAhead or more were set by
// a user, and are ignored.
func (a *applying) stamp() string {
	if a.created != "" {
		return a.created
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	after := now
	for _, kind := range []string{gateway.KindTCPRoute, gateway.KindTLSRoute} {
		for o := range a.now.set.All(kind) {
			at, err := time.Parse(time.RFC3339, gateway.OriginOf(o.Spec).CreationTimestamp)
			if err == nil && !at.Before(after) && at.Before(now.Add(maxAhead)) {
				after = at.UTC().Add(time.Microsecond)
			}
		}
	}
	a.created = after.Format(stampFormat)
	return a.created
}

// maxAhead bounds how far one leader's clock may be ahead of the next one's.
const maxAhead = 24 * time.Hour

// stampFormat is RFC 3339 with microseconds, since routes are applied faster
// than one a second.
const stampFormat = "2006-01-02T15:04:05.000000Z07:00"

// checkOrigin reports an object that would replace a stored one although it is
// a different object, and not a later version of it.
func (a *applying) checkOrigin(o, stored *resource.Object) {
	form, former := o.Labels[resource.LabelFormat], stored.Labels[resource.LabelFormat]
	path, namespace := namespaceOf(o)
	_, is := namespaceOf(stored)
	switch alike := form == former || hasNamespaces(form) && hasNamespaces(former); {
	case alike && namespace != is:
		a.faults = append(a.faults, o.Fault(path, fmt.Sprintf("the %s %s of the namespace %s is there, "+
			"and one name cannot be of two namespaces' objects here; %s",
			o.Kind, ownName(stored), is, wayOn), namespace))
	case form == former:
	case !alike: // the user migrates to another format, or back; get returns all formats
		a.result.Warnings = append(a.result.Warnings, faultsOf([]resource.Fault{
			o.Fault("", fmt.Sprintf("is in %s, and takes the place of what was there in %s", formText(form), formText(former)), nil),
		})...)
	default:
		a.faults = append(a.faults, o.Fault("", fmt.Sprintf("is in %s, and what is there in %s: two formats cannot define one resource; %s",
			formText(form), formText(former), wayOn), nil))
	}
}

// hasNamespaces reports whether a format has namespaced policies.
func hasNamespaces(form string) bool {
	return form == resource.FormatKumaKubernetes || form == resource.FormatSMI
}

// wayOn is the advice for two objects with the same name.
const wayOn = "delete that first, or give this one another name"

// ownName returns the name of an object in its namespace.
func ownName(o *resource.Object) string {
	if origin := gateway.OriginOf(o.Spec); origin != nil {
		return origin.OwnName(o.Name)
	}
	return o.Name
}

// namespaceOf returns the namespace of an object and the path of the field that
// sets it. An object without one is in the default namespace.
func namespaceOf(o *resource.Object) (path, namespace string) {
	if origin := gateway.OriginOf(o.Spec); origin != nil {
		return "spec.origin.namespace", cmp.Or(origin.Namespace, defaultNamespace)
	}
	for _, at := range []struct{ label, path string }{
		{document.LabelNamespace, "labels." + document.LabelNamespace},
		{labelKumaNamespace, `labels["` + labelKumaNamespace + `"]`},
	} {
		if namespace, ok := o.Labels[at.label]; ok {
			return at.path, cmp.Or(namespace, defaultNamespace)
		}
	}
	return "", defaultNamespace
}

// defaultNamespace is the namespace of objects that set none.
const defaultNamespace = "default"

// formText describes a format for people.
func formText(form string) string {
	switch form {
	case "":
		return "Penstock's own form"
	case resource.FormatKuma:
		return "Kuma's universal form"
	case resource.FormatKumaKubernetes:
		return "Kuma's form in Kubernetes"
	case resource.FormatSMI:
		return "SMI's form"
	}
	return fmt.Sprintf("the form %q", form)
}
