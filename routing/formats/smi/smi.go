// Package smi converts the TrafficSplit of the Service Mesh Interface:
//
//	apiVersion: split.smi-spec.io/v1alpha2
//	kind: TrafficSplit
//	metadata: {name: canary}
//	spec:
//	  service: website
//	  backends:
//	  - {service: website-v1, weight: 90}
//	  - {service: website-v2, weight: 10}
//
// It becomes a MeshTCPRoute of the same name, for all sources, from the root
// service to the backends. Weights are relative whole numbers. v1alpha3 and
// v1alpha4 mean the same and are supported except for matches, which select HTTP
// requests: to ignore them would split all connections. v1alpha1 is refused,
// because its weights were quantities ("500m").
//
// SMI's splits are neither hierarchical nor self-referential in any version. A
// root among its own backends is refused, because the root is the superset that
// the split selects from; a MeshTCPRoute may name the root's own endpoints.
// Splits that lead to one another are checked with all resources (validate.Set).
package smi

import (
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Group is the API group of TrafficSplit.
const Group = "split.smi-spec.io"

// APIVersions returns the supported versions.
func APIVersions() []string {
	return []string{Group + "/v1alpha2", Group + "/v1alpha3", Group + "/v1alpha4"}
}

const kind = "TrafficSplit"

// Foreign returns SMI's format.
func Foreign() []codec.Foreign {
	return []codec.Foreign{{Name: "SMI", Is: isSMI, Convert: convert, Path: path, Kinds: map[string]string{"MeshTCPRoute": kind}}}
}

// isSMI reports whether a document belongs to any of SMI's groups.
func isSMI(root *yaml.Node) bool {
	group, _, _ := strings.Cut(document.TextOf(root, "apiVersion"), "/")
	return strings.HasSuffix(group, ".smi-spec.io")
}

func convert(root *yaml.Node, fault codec.ForeignFault) []*yaml.Node {
	version, word := document.TextOf(root, "apiVersion"), document.TextOf(root, "kind")
	f := document.Open(root, word, document.Child(document.Child(root, "metadata"), "name"), fault)
	group, _, _ := strings.Cut(version, "/")
	at := document.Child(root, "kind")
	if at == nil {
		at = root
	}
	switch {
	case group != Group || word != kind:
		f.Fault(at, "kind", "is not supported; the supported kind of SMI is "+kind+" of "+Group+resource.DidYouMean(word, []string{kind}), word)
		return nil
	case !isSupported(version):
		f.Fault(
			document.Child(root, "apiVersion"), "apiVersion",
			"this version of "+kind+" is not supported; use one of "+strings.Join(APIVersions(), ", "),
			version,
		)
		return nil
	}
	// Faults name the route, which Kinds converts back to the split.
	f.Subject = strings.Replace(f.Subject, kind, "MeshTCPRoute", 1)
	v := f.Fields(root, "", map[string]bool{"status": true}, "apiVersion", "kind", "metadata", "spec")
	meta := f.Metadata(v["metadata"])
	labels := f.Labels(meta.Labels, "metadata.labels",
		document.Label{Key: document.LabelNamespace, Value: meta.Namespace, Path: "metadata.namespace"},
		document.Label{Key: resource.LabelFormat, Value: document.Text(root, resource.FormatSMI)})
	return []*yaml.Node{f.Resource("MeshTCPRoute", meta.Name, labels, spec(f, v["spec"]))}
}

func isSupported(version string) bool {
	for _, v := range APIVersions() {
		if v == version {
			return true
		}
	}
	return false
}

// spec returns the spec of the route.
func spec(f *document.Frame, n *yaml.Node) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return n // decoding reports it
	}
	v := f.Fields(n, "spec", nil, "service", "backends", "matches")
	if at := v["matches"]; at != nil {
		f.Fault(
			at, "spec.matches",
			"is not supported: it selects HTTP requests, but a split applies to connections; leave it out to split all of them",
			nil,
		)
	}
	target := document.NewMapping(n)
	target.Put(n, "kind", document.Text(n, "MeshService"))
	if root := v["service"]; root != nil {
		target.Put(root, "name", root)
	}
	content := document.NewMapping(n)
	switch backends := v["backends"]; {
	case backends == nil:
		f.Fault(n, "spec.backends", "is required", nil)
	case backends.Kind != yaml.SequenceNode:
		f.Fault(backends, "spec.backends", "must be a list", nil)
	case len(backends.Content) == 0:
		f.Fault(backends, "spec.backends", "must not be empty", nil)
	default:
		refs := document.List(backends)
		for i, b := range backends.Content {
			refs.Content = append(refs.Content, backend(f, b, resource.Item("spec.backends", i), document.TextOf(n, "service")))
		}
		content.Put(backends, "backendRefs", refs)
	}
	rule := document.NewMapping(n)
	rule.Put(n, "default", content.Node)
	to := document.NewMapping(n)
	to.Put(n, "targetRef", target.Node)
	to.Put(n, "rules", document.List(n, rule.Node))
	out := document.NewMapping(n)
	out.Put(n, "to", document.List(n, to.Node))
	return out.Node
}

func backend(f *document.Frame, n *yaml.Node, path, root string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n // decoding reports it
	}
	v := f.Fields(n, path, nil, "service", "weight")
	out := document.NewMapping(n)
	out.Put(n, "kind", document.Text(n, "MeshService"))
	if service := v["service"]; service != nil {
		out.Put(service, "name", service)
		if service.Value == root && root != "" {
			f.Fault(
				service, path+".service",
				"is the root of the split itself, which SMI does not allow: "+
					"name a Service with the remaining endpoints, or write a MeshTCPRoute",
				root,
			)
		}
	}
	if weight := v["weight"]; weight != nil {
		out.Put(weight, "weight", weight)
	} else {
		f.Fault(n, path+".weight", "is required", nil)
	}
	return out.Node
}

// path converts a path of the route to the split's path.
func path(path string) string {
	const to, refs = "spec.to[0].targetRef.name", "spec.to[0].rules[0].default.backendRefs"
	if path == to {
		return "spec.service"
	}
	if path == "labels."+document.LabelNamespace {
		return "metadata.namespace"
	}
	rest, ok := strings.CutPrefix(path, refs)
	if !ok {
		return document.MetadataPath(path)
	}
	if item, ok := strings.CutSuffix(rest, ".name"); ok {
		rest = item + ".service"
	}
	return "spec.backends" + rest
}
