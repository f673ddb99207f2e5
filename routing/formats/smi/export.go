package smi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
)

// ErrNotSplit means that a resource says what a TrafficSplit cannot.
var ErrNotSplit = errors.New("cannot be exported to SMI")

// Export returns a MeshTCPRoute as a TrafficSplit, v1alpha2: one destination, all
// sources, whole services as backends. Decoding it yields the same route.
func Export(o resource.Object) (*yaml.Node, error) {
	r, ok := o.Spec.(*resource.MeshTCPRoute)
	if !ok {
		return nil, fmt.Errorf("%s %w: only MeshTCPRoute can", o.Key, ErrNotSplit)
	}
	if why := notSplit(r); why != "" {
		return nil, fmt.Errorf("%s %w: %s", o.Key, ErrNotSplit, why)
	}
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	text := func(s string) *yaml.Node { return document.Text(root, s) }
	meta := document.NewMapping(root)
	meta.Put(root, "name", text(o.Name))
	labels := maps.Clone(o.Labels)
	if namespace := labels[document.LabelNamespace]; namespace != "" {
		meta.Put(root, "namespace", text(namespace))
	}
	delete(labels, document.LabelNamespace)
	delete(labels, resource.LabelFormat)
	if len(labels) > 0 {
		all := document.NewMapping(root)
		for _, k := range slices.Sorted(maps.Keys(labels)) {
			all.Put(root, k, text(labels[k]))
		}
		meta.Put(root, "labels", all.Node)
	}
	backends := document.List(root)
	for i := range r.To[0].Rules[0].Default.BackendRefs {
		ref, weight := &r.To[0].Rules[0].Default.BackendRefs[i], 1
		if ref.Weight != nil {
			weight = *ref.Weight
		}
		b := document.NewMapping(root)
		b.Put(root, "service", text(ref.Name))
		b.Put(root, "weight", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(weight)})
		backends.Content = append(backends.Content, b.Node)
	}
	spec := document.NewMapping(root)
	spec.Put(root, "service", text(r.To[0].TargetRef.Name))
	spec.Put(root, "backends", backends)
	out := document.Mapping{Node: root}
	out.Put(root, "apiVersion", text(APIVersions()[0]))
	out.Put(root, "kind", text(kind))
	out.Put(root, "metadata", meta.Node)
	out.Put(root, "spec", spec.Node)
	return root, nil
}

// notSplit says what a route has that a TrafficSplit cannot express; "": nothing.
func notSplit(r *resource.MeshTCPRoute) string {
	switch {
	case r.Rollout != nil:
		return "it has a rollout"
	case r.TargetRef != nil && (r.TargetRef.Kind != "Mesh" || len(r.TargetRef.Tags) > 0):
		return "it is for some sources only"
	case len(r.To) != 1:
		return "it has several destinations"
	case len(r.To[0].TargetRef.Tags) > 0:
		return "its destination is a subset"
	case len(r.To[0].Rules) == 0 || len(r.To[0].Rules[0].Default.BackendRefs) == 0:
		return "it has no backends"
	}
	for i := range r.To[0].Rules[0].Default.BackendRefs {
		ref := &r.To[0].Rules[0].Default.BackendRefs[i]
		switch {
		case ref.Kind != "MeshService" || len(ref.Tags) > 0:
			return "a backend is a subset"
		case ref.Name == r.To[0].TargetRef.Name:
			return "the destination is one of its backends"
		}
	}
	return ""
}
