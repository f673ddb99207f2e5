// Package crd has Penstock's own kinds as custom resources of Kubernetes:
//
//	apiVersion: penstock.io/v1alpha1
//	kind: Service
//	metadata: {name: web, namespace: shop}
//	spec: {endpoints: [{address: "10.0.0.7:8080"}]}
//
// becomes the resource shop.web of that kind, with the same spec and labels: an
// object of the namespace "default" has its plain name, and one of another
// namespace is called NAMESPACE.NAME, as objects of the Gateway API are. References
// inside a spec are names of resources, so they have the namespace in them.
//
// Definitions returns the CustomResourceDefinitions of the kinds.
package crd

import (
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Group and version of the kinds in Kubernetes.
const (
	Group      = "penstock.io"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version
)

// FieldSecretRef is a field of the spec of a Certificate: the Secret that it takes its
// content from. Only nodes that read their resources from Kubernetes know it.
const FieldSecretRef = "secretRef"

// Foreign returns the format.
func Foreign() []codec.Foreign {
	return []codec.Foreign{{Name: "Kubernetes", Is: is, Convert: convert, Path: path}}
}

func is(root *yaml.Node) bool {
	group, _, _ := strings.Cut(document.TextOf(root, "apiVersion"), "/")
	return group == Group
}

func convert(root *yaml.Node, fault codec.ForeignFault) []*yaml.Node {
	kind, name := document.TextOf(root, "kind"), document.Child(document.Child(root, "metadata"), "name")
	f := document.Open(root, kind, name, fault)
	if version := document.TextOf(root, "apiVersion"); version != APIVersion {
		f.Fault(document.Child(root, "apiVersion"), "apiVersion", "this version is not supported; use "+APIVersion, version)
		return nil
	}
	if gateway.IsKind(kind) {
		f.Fault(document.Child(root, "kind"), "kind", "is a kind of the Gateway API: use apiVersion "+gateway.Group+"/v1", kind)
		return nil
	}
	v := f.Fields(root, "", map[string]bool{"status": true}, "apiVersion", "kind", "metadata", "spec")
	meta := f.Metadata(v["metadata"])
	var namespace *yaml.Node
	if in := document.TextOf(v["metadata"], "namespace"); in != "" && in != "default" && name != nil && name.Kind == yaml.ScalarNode {
		namespace = meta.Namespace
		name = &yaml.Node{Kind: yaml.ScalarNode, Tag: name.Tag, Value: gateway.NameOf(in, name.Value), Line: name.Line}
		f.Subject = document.Open(root, kind, name, fault).Subject
	}
	if ref := document.Child(v["spec"], FieldSecretRef); ref != nil && kind == "Certificate" {
		f.Fault(ref, "spec."+FieldSecretRef, "names a Secret, which nodes with --kubernetes-resources read: apply the object there", nil)
		return nil
	}
	labels := f.Labels(meta.Labels, "metadata.labels", document.Label{Key: document.LabelNamespace, Value: namespace, Path: "metadata.namespace"})
	return []*yaml.Node{f.Resource(kind, name, labels, v["spec"])}
}

// path converts a path of the resource to the document's.
func path(of string) string {
	if of == `labels["`+document.LabelNamespace+`"]` {
		return "metadata.namespace"
	}
	return document.MetadataPath(of)
}

// Kinds returns those of kinds that are custom resources: the ones that users
// write, without those that the Gateway API has.
func Kinds(kinds []resource.Kind) []resource.Kind {
	var out []resource.Kind
	for _, k := range kinds {
		if k.ReadOnly == "" && !gateway.IsKind(k.Name) {
			out = append(out, k)
		}
	}
	return out
}
