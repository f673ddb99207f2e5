package catalog

import (
	"cmp"
	"fmt"

	"penstock/routing/formats/document"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// What comes in the formats of others has a namespace, or another format, beside
// its name. Names here have none: two objects that those formats tell apart may
// be called alike, and the later must not take the place of the other.

// labelKumaNamespace is where Kuma itself keeps the namespace of a policy.
const labelKumaNamespace = "k8s.kuma.io/namespace"

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
// hasNamespaces tells whether a format tells policies apart by namespace.
func hasNamespaces(form string) bool {
	return form == resource.FormatKumaKubernetes || form == resource.FormatSMI
}

