// Package formats converts documents of Kuma, SMI, the Gateway API and TiProxy to
// Penstock's resources, keeping their lines, and writes resources in these
// formats.
//
//	objects, faults := codec.DecodeForeign(file, data, kinds, formats.All())
//	text, err := formats.Encode("kuma", objects[0])
//
// Kuma and SMI are packages below; package routing/gateway has its own documents.
// This package lists the formats, unpacks lists of Kubernetes (kind: List) and of
// Kuma's API (items), and refuses documents with an unknown apiVersion by listing
// the known ones.
package formats

import (
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/crd"
	"penstock/routing/formats/document"
	"penstock/routing/formats/kuma"
	"penstock/routing/formats/smi"
	"penstock/routing/formats/tiproxy"
	"penstock/routing/gateway"
	"penstock/routing/resource/codec"
)

// All returns the supported formats. They must precede formats that recognise
// their documents by anything else than apiVersion.
func All() []codec.Foreign {
	all := []codec.Foreign{{Name: "a list", Is: isList, Items: items}}
	all = append(all, tiproxy.Foreign()...)
	all = append(all, kuma.Foreign()...)
	all = append(all, smi.Foreign()...)
	all = append(all, gateway.Foreign()...)
	all = append(all, crd.Foreign()...)
	return append(all, codec.Foreign{Name: "another system", Is: isVersioned, Convert: unknown})
}

// listVersion is the apiVersion of a Kubernetes List.
const listVersion = "v1"

// isList reports whether a document is a Kubernetes List, whose items give their
// kinds, or a list of Kuma's API, whose items are of one kind.
func isList(root *yaml.Node) bool {
	kind := document.Child(root, "kind")
	if kind == nil {
		return document.Child(root, "items") != nil && document.Child(root, "apiVersion") == nil
	}
	return kind.Value == "List" && (document.TextOf(root, "apiVersion") == listVersion || document.Child(root, "apiVersion") == nil)
}

// items returns the documents of a list. Their number is bounded by codec.MaxNodes.
func items(root *yaml.Node, fault codec.ForeignFault) []*yaml.Node {
	f := document.Open(root, "List", nil, fault)
	noise := map[string]bool{"metadata": true} // resourceVersion and the like
	known := []string{"apiVersion", "kind", "items"}
	if document.Child(root, "kind") == nil {
		noise, known = map[string]bool{"total": true, "next": true}, []string{"items"}
	}
	list := f.Fields(root, "", noise, known...)["items"]
	switch {
	case list == nil:
		f.Fault(root, "items", "is required", nil)
		return nil
	case list.Kind != yaml.SequenceNode:
		f.Fault(list, "items", "must be a list", nil)
		return nil
	}
	return list.Content
}

func isVersioned(root *yaml.Node) bool { return document.Child(root, "apiVersion") != nil }

// Versions returns the known values of apiVersion.
func Versions() []string {
	return slices.Concat([]string{kuma.APIVersion, crd.APIVersion}, smi.APIVersions(), gateway.APIVersions())
}

// unknown refuses a document with an apiVersion that no format has.
func unknown(root *yaml.Node, fault codec.ForeignFault) []*yaml.Node {
	n, version := document.Child(root, "apiVersion"), document.TextOf(root, "apiVersion")
	name := document.Child(document.Child(root, "metadata"), "name")
	if name == nil {
		name = document.Child(root, "name")
	}
	f := document.Open(root, document.TextOf(root, "kind"), name, fault)
	known := "; known versions are " + strings.Join(Versions(), ", ") + ", and " + listVersion + " for kind: List"
	switch {
	case version == "":
		f.Fault(n, "apiVersion", "must be a string"+known, nil)
	case document.Child(root, "spec") != nil && document.Child(root, "name") != nil:
		f.Fault(n, "apiVersion", "is not known, and Penstock's own resources have none"+known, version)
	default:
		f.Fault(n, "apiVersion", "is not known"+known, version)
	}
	return nil
}
