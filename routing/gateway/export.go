package gateway

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// ErrKind means that the Gateway API has no equivalent for a kind of resource.
var ErrKind = errors.New("cannot be exported to the Gateway API")

// Export returns a resource as an object of the Gateway API, in the version that
// it was applied in. Decoding it yields the same resource.
func Export(o resource.Object) (*yaml.Node, error) {
	origin := OriginOf(o.Spec)
	if origin == nil {
		return nil, fmt.Errorf("%s %w: only Gateway, TLSRoute, TCPRoute and ReferenceGrant can", o.Key, ErrKind)
	}
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	text := func(s string) *yaml.Node { return document.Text(root, s) }
	out := document.Mapping{Node: root}
	out.Put(root, "apiVersion", text(Group+"/"+origin.Version()))
	out.Put(root, "kind", text(o.Kind))
	meta := document.NewMapping(root)
	meta.Put(root, "name", text(origin.OwnName(o.Name)))
	if origin.Namespace != "" {
		meta.Put(root, "namespace", text(origin.Namespace))
	}
	if len(o.Labels) > 0 {
		labels := document.NewMapping(root)
		for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
			labels.Put(root, key, text(o.Labels[key]))
		}
		meta.Put(root, "labels", labels.Node)
	}
	if origin.CreationTimestamp != "" {
		meta.Put(root, "creationTimestamp", text(origin.CreationTimestamp))
	}
	if o.Version != 0 { // the observedGeneration of its status
		meta.Put(root, "generation", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatUint(o.Version, 10)})
	}
	out.Put(root, "metadata", meta.Node)
	spec := codec.SpecNode(o.Spec)
	for i := 0; i+1 < len(spec.Content); i += 2 {
		if spec.Content[i].Value == "origin" {
			spec.Content = slices.Delete(spec.Content, i, i+2)
			break
		}
	}
	if o.Kind == KindGrant {
		addGroups(spec)
	}
	out.Put(root, "spec", spec)
	return root, nil
}

// addGroups adds the group to each entry of a ReferenceGrant's to, even where
// it is empty, as for a Service: the API requires it.
func addGroups(spec *yaml.Node) {
	to := document.Child(spec, "to")
	if to == nil {
		return
	}
	for _, n := range to.Content {
		if document.Child(n, "group") == nil {
			n.Content = append([]*yaml.Node{document.Text(n, "group"), document.Text(n, "")}, n.Content...)
		}
	}
}
