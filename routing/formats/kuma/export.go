package kuma

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	if !slices.Contains(supportedKinds, o.Kind) {
		return nil, fmt.Errorf("%s %w: only %s can", o.Key, ErrKind, strings.Join(supportedKinds, " and "))
	}
	if r, ok := o.Spec.(*resource.MeshTCPRoute); ok && r.Rollout != nil {
		return nil, fmt.Errorf("%s %w: it has a rollout, which Kuma does not support", o.Key, ErrKind)
	}
	labels := maps.Clone(o.Labels)
	form := labels[resource.LabelFormat]
	delete(labels, resource.LabelFormat)
	delete(labels, document.LabelNamespace)
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	out := document.Mapping{Node: root}
	text := func(s string) *yaml.Node { return document.Text(root, s) }
	if form == resource.FormatKumaKubernetes {
		out.Put(root, "apiVersion", text(APIVersion))
		out.Put(root, "kind", text(o.Kind))
		meta := document.NewMapping(root)
		meta.Put(root, "name", text(o.Name))
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
		out.Put(root, "type", text(o.Kind))
		out.Put(root, "mesh", text(mesh))
		out.Put(root, "name", text(o.Name))
		putLabels(out, root, labels)
	}
	out.Put(root, "spec", codec.SpecNode(o.Spec))
	return root, nil
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
