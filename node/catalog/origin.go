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

// setTimestamp sets the creation timestamp of a route that has none: that of
// the stored route, or a new one. A dry run sets none; the route counts as the
// youngest anyway.
func (a *applyCheck) setTimestamp(o, stored *resource.Object) {
	switch s := o.Spec.(type) { // copied before a change, since the caller has it
	case *gateway.TCPRoute:
		if s.Origin.CreationTimestamp == "" {
			dated := *s
			dated.Origin.CreationTimestamp, o.Spec = a.timestampOf(stored), &dated
		}
	case *gateway.TLSRoute:
		if s.Origin.CreationTimestamp == "" {
			dated := *s
			dated.Origin.CreationTimestamp, o.Spec = a.timestampOf(stored), &dated
		}
	}
}

// timestampOf returns the creation timestamp of the stored object, or one for a
// new object.
func (a *applyCheck) timestampOf(stored *resource.Object) string {
	switch former := gateway.OriginOf(stored.Spec); {
	case former != nil:
		return former.CreationTimestamp
	case a.change.DryRun:
		return ""
	}
	return a.newTimestamp()
}

// newTimestamp returns the creation timestamp of all objects that a change
// creates. It is later than that of every existing route, even if another
// leader, whose clock was ahead, set those. Timestamps ahead by maxClockAhead
// or more were set by a user, and are ignored.
func (a *applyCheck) newTimestamp() string {
	if a.created != "" {
		return a.created
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	after := now
	for _, kind := range []string{gateway.KindTCPRoute, gateway.KindTLSRoute} {
		for o := range a.base.set.All(kind) {
			at, err := time.Parse(time.RFC3339, gateway.OriginOf(o.Spec).CreationTimestamp)
			if err == nil && !at.Before(after) && at.Before(now.Add(maxClockAhead)) {
				after = at.UTC().Add(time.Microsecond)
			}
		}
	}
	a.created = after.Format(timestampFormat)
	return a.created
}

// maxClockAhead bounds how far one leader's clock may be ahead of the next
// one's.
const maxClockAhead = 24 * time.Hour

// timestampFormat is RFC 3339 with microseconds, since routes are applied
// faster than one a second.
const timestampFormat = "2006-01-02T15:04:05.000000Z07:00"

// checkOrigin reports an object that would replace a stored one although it is
// a different object, and not a later version of it.
func (a *applyCheck) checkOrigin(o, stored *resource.Object) {
	form, former := o.Labels[resource.LabelFormat], stored.Labels[resource.LabelFormat]
	path, namespace := namespaceOf(o)
	_, is := namespaceOf(stored)
	switch alike := form == former || hasNamespaces(form) && hasNamespaces(former); {
	case alike && namespace != is:
		a.faults = append(a.faults, o.Fault(path, fmt.Sprintf("%s %s of namespace %s already exists, "+
			"and a name cannot be used in two namespaces here; %s",
			o.Kind, nameInNamespace(stored), is, conflictAdvice), namespace))
	case form == former:
	case !alike: // the user migrates to another format, or back; get returns all formats
		a.result.Warnings = append(a.result.Warnings, faultsOf([]resource.Fault{
			o.Fault("", fmt.Sprintf("is in %s and replaces a resource in %s", formatText(form), formatText(former)), nil),
		})...)
	default:
		a.faults = append(a.faults, o.Fault("", fmt.Sprintf("is in %s, the existing resource in %s: two formats cannot define one resource; %s",
			formatText(form), formatText(former), conflictAdvice), nil))
	}
}

// hasNamespaces reports whether a format has namespaced policies.
func hasNamespaces(form string) bool {
	return form == resource.FormatKumaKubernetes || form == resource.FormatSMI
}

// conflictAdvice is the advice for two objects with the same name.
const conflictAdvice = "delete the existing one first, or rename this one"

// nameInNamespace returns the name of an object in its namespace.
func nameInNamespace(o *resource.Object) string {
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

// formatText describes a format for people.
func formatText(form string) string {
	switch form {
	case "":
		return "Penstock's own format"
	case resource.FormatKuma:
		return "Kuma's universal format"
	case resource.FormatKumaKubernetes:
		return "Kuma's Kubernetes format"
	case resource.FormatSMI:
		return "SMI's format"
	}
	return fmt.Sprintf("the format %q", form)
}
