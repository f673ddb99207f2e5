// Package kuma converts Kuma's MeshTCPRoute, MeshHTTPRoute, MeshTrafficPermission,
// MeshRateLimit, MeshTrace, MeshMetric and MeshAccessLog, unchanged as users have them, to
// resources and back. The universal form and the Kubernetes form,
//
//	type: MeshTCPRoute            apiVersion: kuma.io/v1alpha1
//	mesh: default                 kind: MeshTCPRoute
//	name: route-1                 metadata: {name: route-1, namespace: demo}
//	spec: ...                     spec: ...
//
// become Penstock's resource of the same kind and name, with the same spec, and
// MeshTrafficPermission and MeshRateLimit a TrafficPermission and a RateLimit.
// MeshTrace, MeshMetric and MeshAccessLog become a Telemetry whose name ends in -traces,
// -metrics or -logs. The mesh and the namespace are kept as Kuma's own labels, kuma.io/mesh and
// k8s.kuma.io/namespace, and the form as penstock/format; they have no effect on
// connections.
//
// What Kuma's servers add is ignored: creationTime, modificationTime, kri and
// status of the universal form; status and what document.Noise lists of the
// Kubernetes form.
//
// What Penstock cannot do as Kuma does is refused by name: other kinds, targets
// that are not services, tags or meshes, and fields that select targets by
// properties that Penstock does not have (see
// unsupportedFields).
package kuma

import (
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Group and version of Kuma's objects in Kubernetes.
const (
	Group      = "kuma.io"
	APIVersion = "kuma.io/v1alpha1"
)

const (
	labelNamespace = "k8s.kuma.io/namespace"
	defaultMesh    = "default"
)

// tagService is the tag by which Kuma's policies name a service.
const tagService = "kuma.io/service"

// supportedKinds are the supported kinds. Routes become resources of the same kind.
var supportedKinds = []string{"MeshTCPRoute", "MeshHTTPRoute", kindPermission, kindRateLimit, kindTrace, kindMetric, kindAccessLog}

// The kinds that become resources of another kind.
const (
	kindPermission = "MeshTrafficPermission"
	kindRateLimit  = "MeshRateLimit"
)

// convert returns the resource for a document of a supported kind; none after a
// fault that leaves it without a spec.
func convert(f *document.Frame, kind string, name, labels, n *yaml.Node, warn warner) []*yaml.Node {
	if convert, ok := telemetryKinds[kind]; ok {
		if n == nil {
			f.Fault(f.Root, "spec", "is required", nil)
			return nil
		}
		kind, name, n = resource.KindTelemetry, convert.name(name), convert.spec(f, n, warn)
		if n == nil {
			return nil
		}
		return []*yaml.Node{f.Resource(kind, name, labels, n)}
	}
	switch kind {
	case kindPermission:
		kind, n = resource.KindPermission, permissionSpec(f, n)
	case kindRateLimit:
		kind, n = resource.KindRateLimit, rateLimitSpec(f, n)
	default:
		return []*yaml.Node{f.Resource(kind, name, labels, spec(f, n))}
	}
	if n == nil {
		return nil
	}
	return []*yaml.Node{f.Resource(kind, name, labels, n)}
}

// warner reports what a document has and a resource cannot say, and that may be left out.
type warner codec.ForeignFault

// of returns a function that reports warnings about the subject of f.
func (w warner) of(f *document.Frame) func(n *yaml.Node, path, message string, value any) {
	return func(n *yaml.Node, path, message string, value any) {
		w(n, strings.TrimSpace(f.Subject+" "+path), message, value)
	}
}

// telemetryKind converts a kind that becomes a Telemetry.
type telemetryKind struct {
	suffix string
	spec   func(f *document.Frame, n *yaml.Node, warn warner) *yaml.Node
}

var telemetryKinds = map[string]telemetryKind{
	kindTrace: {suffixTrace, traceSpec}, kindMetric: {suffixMetric, metricSpec}, kindAccessLog: {suffixAccessLog, accessLogSpec},
}

// name returns the name of the Telemetry.
func (k telemetryKind) name(n *yaml.Node) *yaml.Node {
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return n // decoding reports it
	}
	next := *n
	next.Value += k.suffix
	return &next
}

// Foreign returns Kuma's two formats.
func Foreign() []codec.Foreign {
	return []codec.Foreign{
		{Name: "Kuma", Is: isUniversal, Report: universal, Path: universalPath},
		{Name: "Kuma", Is: isKubernetes, Report: kubernetes, Path: kubernetesPath},
	}
}

// isUniversal recognises Kuma's universal form, the only one with a type.
func isUniversal(root *yaml.Node) bool {
	return document.Child(root, "type") != nil && document.Child(root, "kind") == nil && document.Child(root, "apiVersion") == nil
}

func isKubernetes(root *yaml.Node) bool {
	group, _, _ := strings.Cut(document.TextOf(root, "apiVersion"), "/")
	return group == Group
}

// universalNoise are the fields that Kuma's server adds to the universal form.
var universalNoise = map[string]bool{"creationTime": true, "modificationTime": true, "kri": true, "status": true}

func universal(root *yaml.Node, fault, warn codec.ForeignFault) []*yaml.Node {
	kind := document.TextOf(root, "type")
	f := document.Open(root, kind, document.Child(root, "name"), fault)
	if !checkKind(f, "type") {
		return nil
	}
	v := f.Fields(root, "", universalNoise, "type", "mesh", "name", "labels", "spec")
	mesh := v["mesh"]
	if given := document.Child(v["labels"], resource.LabelMesh); mesh == nil && given == nil {
		mesh = document.Text(root, defaultMesh)
	}
	labels := f.Labels(v["labels"], "labels",
		document.Label{Key: resource.LabelMesh, Value: mesh, Path: "mesh"},
		document.Label{Key: resource.LabelFormat, Value: document.Text(root, resource.FormatKuma)})
	return convert(f, kind, v["name"], labels, v["spec"], warner(warn))
}

func universalPath(path string) string {
	if path == `labels["`+resource.LabelMesh+`"]` {
		return "mesh"
	}
	return path
}

func kubernetes(root *yaml.Node, fault, warn codec.ForeignFault) []*yaml.Node {
	kind := document.TextOf(root, "kind")
	f := document.Open(root, kind, document.Child(document.Child(root, "metadata"), "name"), fault)
	known := checkKind(f, "kind")
	if version := document.TextOf(root, "apiVersion"); version != APIVersion {
		f.Fault(document.Child(root, "apiVersion"), "apiVersion", "this version of Kuma's objects is not supported; use "+APIVersion, version)
		return nil // the other fields may have another meaning
	}
	if !known {
		return nil
	}
	v := f.Fields(root, "", map[string]bool{"status": true}, "apiVersion", "kind", "metadata", "spec")
	meta := f.Metadata(v["metadata"])
	var mesh *yaml.Node
	if document.Child(meta.Labels, resource.LabelMesh) == nil {
		mesh = document.Text(root, defaultMesh)
	}
	labels := f.Labels(meta.Labels, "metadata.labels",
		document.Label{Key: resource.LabelMesh, Value: mesh},
		document.Label{Key: labelNamespace, Value: meta.Namespace, Path: "metadata.namespace"},
		document.Label{Key: resource.LabelFormat, Value: document.Text(root, resource.FormatKumaKubernetes)})
	return convert(f, kind, meta.Name, labels, v["spec"], warner(warn))
}

func kubernetesPath(path string) string {
	if path == `labels["`+labelNamespace+`"]` {
		return "metadata.namespace"
	}
	return document.MetadataPath(path)
}

// checkKind reports whether the kind, in the named field, is supported, and a
// fault if not.
func checkKind(f *document.Frame, field string) bool {
	n, word := document.Child(f.Root, field), document.TextOf(f.Root, field)
	if slices.Contains(supportedKinds, word) {
		return true
	}
	if n == nil {
		n = f.Root
	}
	if word == "" {
		f.Fault(n, field, "must be one of "+strings.Join(supportedKinds, ", ")+", the supported kinds of Kuma", nil)
		return false
	}
	known := "supported kinds of Kuma are " + strings.Join(supportedKinds, ", ")
	f.Fault(n, field, "is not supported; "+known+resource.DidYouMean(word, supportedKinds), word)
	return false
}
