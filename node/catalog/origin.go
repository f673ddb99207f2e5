package catalog

import (
	"cmp"
	"fmt"
	"time"

	"penstock/routing/formats/document"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// What comes in the formats of others has a namespace, or another format, beside
// its name. Names here have none: two objects that those formats tell apart may
// be called alike, and the later must not take the place of the other.

// labelKumaNamespace is where Kuma itself keeps the namespace of a policy.
const labelKumaNamespace = "k8s.kuma.io/namespace"

// A route of the Gateway API that says no age gets one when it is created: the
// older of two for one name has it, and it must not be the one whose name comes
// first that takes the connections of one that is there.

// keepAge gives a route that says no age the one that it has, or has from now
// on. A dry run gives none: without one it is the youngest as well.
func (a *applying) keepAge(o, stored *resource.Object) {
	switch s := o.Spec.(type) { // copied where it changes: the caller has it
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

// ageOf is the age of what is stored, or of what is new.
func (a *applying) ageOf(stored *resource.Object) string {
	switch former := gateway.OriginOf(stored.Spec); {
	case former != nil:
		return former.CreationTimestamp
	case a.change.DryRun:
		return ""
	}
	return a.stamp()
}

// stamp is the age of all that a change creates. It is after that of all routes
// that are there, though another leader, whose clock was ahead, dated them. What
// is further ahead than clocks are was written by somebody.
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

// maxAhead is how far a leader's clock may be ahead of the next one's.
const maxAhead = 24 * time.Hour

// stampFormat is RFC 3339 with microseconds: routes are applied faster than one
// a second.
const stampFormat = "2006-01-02T15:04:05.000000Z07:00"

// checkOrigin says that an object which is to take the place of a stored one is
// not a later state of it, but another object.
func (a *applying) checkOrigin(o, stored *resource.Object) {
	form, former := o.Labels[resource.LabelFormat], stored.Labels[resource.LabelFormat]
	path, namespace := namespaceOf(o)
	_, is := namespaceOf(stored)
	switch alike := form == former || hasNamespaces(form) && hasNamespaces(former); {
	case alike && namespace != is:
		a.faults = append(a.faults, o.Fault(path, fmt.Sprintf("the %s %s of the namespace %s is there, and one name cannot be of two namespaces' objects here; %s",
			o.Kind, ownName(stored), is, wayOn), namespace))
	case form == former:
	case !alike: // somebody goes over to another form, or back: get gives all forms
		a.result.Warnings = append(a.result.Warnings, faultsOf([]resource.Fault{
			o.Fault("", fmt.Sprintf("is in %s, and takes the place of what was there in %s", formText(form), formText(former)), nil),
		})...)
	default:
		a.faults = append(a.faults, o.Fault("", fmt.Sprintf("is in %s, and what is there in %s: two formats cannot define one resource; %s",
			formText(form), formText(former), wayOn), nil))
	}
}

// hasNamespaces tells whether a format tells policies apart by namespace.
func hasNamespaces(form string) bool {
	return form == resource.FormatKumaKubernetes || form == resource.FormatSMI
}

// wayOn is what can be done where two objects are called alike.
const wayOn = "delete that first, or give this one another name"

// ownName is what an object is called in its namespace.
func ownName(o *resource.Object) string {
	if origin := gateway.OriginOf(o.Spec); origin != nil {
		return origin.OwnName(o.Name)
	}
	return o.Name
}

// namespaceOf finds the namespace of an object and where it says it; what says
// none is of the default one.
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

// defaultNamespace is where objects live that do not say it.
const defaultNamespace = "default"

// formText calls a format by what people know it as.
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
