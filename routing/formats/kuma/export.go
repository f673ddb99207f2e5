package kuma

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// ErrKind means that Kuma has no equivalent for a kind of resource.
var ErrKind = errors.New("cannot be exported to Kuma")

// Export returns a resource as Kuma's document: in the Kubernetes form if it was
// applied in that, otherwise in the universal form. Decoding it yields the same
// resource; one that did not come from Kuma is then in the mesh "default".
func Export(o resource.Object) (*yaml.Node, error) {
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	kind, name, spec, why := exportSpec(root, &o)
	if why != "" {
		return nil, fmt.Errorf("%s %w: %s", o.Key, ErrKind, why)
	}
	labels := maps.Clone(o.Labels)
	form := labels[resource.LabelFormat]
	delete(labels, resource.LabelFormat)
	delete(labels, document.LabelNamespace)
	out := document.Mapping{Node: root}
	text := func(s string) *yaml.Node { return document.Text(root, s) }
	if form == resource.FormatKumaKubernetes {
		out.Put(root, "apiVersion", text(APIVersion))
		out.Put(root, "kind", text(kind))
		meta := document.NewMapping(root)
		meta.Put(root, "name", text(name))
		if namespace, ok := labels[labelNamespace]; ok {
			meta.Put(root, "namespace", text(namespace))
			delete(labels, labelNamespace)
		}
		putLabels(meta, root, labels)
		out.Put(root, "metadata", meta.Node)
	} else {
		mesh, ok := labels[resource.LabelMesh]
		if !ok {
			mesh = defaultMesh
		}
		delete(labels, resource.LabelMesh)
		out.Put(root, "type", text(kind))
		out.Put(root, "mesh", text(mesh))
		out.Put(root, "name", text(name))
		putLabels(out, root, labels)
	}
	out.Put(root, "spec", spec)
	return root, nil
}

// exportSpec returns the kind, the name and the spec of Kuma's document; why says what
// Kuma cannot express.
func exportSpec(root *yaml.Node, o *resource.Object) (kind, name string, spec *yaml.Node, why string) {
	e := exporter{root}
	switch s := o.Spec.(type) {
	case *resource.Telemetry:
		return e.telemetry(o.Name, s)
	case *resource.TrafficPermission:
		spec, why = e.permission(s)
		return kindPermission, o.Name, spec, why
	case *resource.RateLimit:
		spec, why = e.rateLimit(s)
		return kindRateLimit, o.Name, spec, why
	case *resource.MeshTCPRoute:
		if s.Rollout != nil {
			return "", "", nil, "it has a rollout, which Kuma does not support"
		}
	}
	if !slices.Contains(supportedKinds, o.Kind) {
		return "", "", nil, "only MeshTCPRoute, MeshHTTPRoute, TrafficPermission, RateLimit and Telemetry can"
	}
	return o.Kind, o.Name, codec.SpecNode(o.Spec), ""
}

func putLabels(into document.Mapping, root *yaml.Node, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	m := document.NewMapping(root)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		m.Put(root, key, document.Text(root, labels[key]))
	}
	into.Put(root, "labels", m.Node)
}
