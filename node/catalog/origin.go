package catalog

import (
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
	if gateway.OriginOf(o.Spec) == nil {
		form, former := o.Labels[resource.LabelFormat], stored.Labels[resource.LabelFormat]
		switch {
		case form == former:
		case form == "" || former == "": // somebody goes over from one to the other, or back
			a.result.Warnings = append(a.result.Warnings, faultsOf([]resource.Fault{
				o.Fault("", fmt.Sprintf("takes the place of what %s said, in %s until now", place(stored), formText(former)), nil),
			})...)
			return
		default:
			a.faults = append(a.faults, o.Fault("", fmt.Sprintf("is in %s, and %s is there in %s: two formats cannot define it; %s",
				formText(form), place(stored), formText(former), wayOn), nil))
			return
		}
	}
	path, namespace := namespaceOf(o)
	if _, former := namespaceOf(stored); namespace != former {
		a.faults = append(a.faults, o.Fault(path, fmt.Sprintf("%s is there, which is another: objects of two namespaces cannot have one name here; %s",
			place(stored), wayOn), namespace))
	}
}

// wayOn is what can be done where two objects are called alike.
const wayOn = "delete that first, or give this one another name"

// place says which object a stored one is, by its format's own name.
func place(o *resource.Object) string {
	name := o.Name
	if origin := gateway.OriginOf(o.Spec); origin != nil {
		name = origin.OwnName(name)
	}
	_, namespace := namespaceOf(o)
	return fmt.Sprintf("%s %s of the namespace %s", o.Kind, name, namespace)
}

// namespaceOf finds the namespace of an object and where it says it; what says
// none is of the default one.
func namespaceOf(o *resource.Object) (path, namespace string) {
	if origin := gateway.OriginOf(o.Spec); origin != nil {
		path, namespace = "spec.origin.namespace", origin.Namespace
	}
	for key, at := range map[string]string{
		document.LabelNamespace: "labels." + document.LabelNamespace,
		labelKumaNamespace:      `labels["` + labelKumaNamespace + `"]`,
	} {
		if given, ok := o.Labels[key]; ok && path == "" {
			path, namespace = at, given
		}
	}
	if namespace == "" {
		namespace = "default"
	}
	return path, namespace
}

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
