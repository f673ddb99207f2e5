package gateway

import (
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Objects of the Gateway API are taken as users have them:
//
//	apiVersion: gateway.networking.k8s.io/v1
//	kind: TLSRoute
//	metadata: {name: apps, namespace: shop}
//	spec: ...
//
// becomes Penstock's resource of that kind, called shop.apps, with the same
// spec; the version, namespace and age become its spec.origin.
//
// What servers add is ignored: status, and what document.Noise lists. Other kinds
// of the group, unknown versions, and fields whose effect Penstock does not have
// are refused by name; see unsupportedFields.

// documentKinds are the supported kinds, in the order of messages.
var documentKinds = []string{KindGateway, KindTLSRoute, KindTCPRoute, KindGrant}

// unsupportedKinds are unsupported kinds of the group, with what to write
// instead.
var unsupportedKinds = map[string]string{
	"GatewayClass":     "a GatewayClass is not supported: Penstock serves every Gateway applied to it, leave the class out",
	"HTTPRoute":        "an HTTPRoute is not supported: write a TLSRoute or a TCPRoute, or a MeshHTTPRoute for HTTP requests",
	"GRPCRoute":        "a GRPCRoute is not supported: write a TLSRoute or a TCPRoute, or a MeshHTTPRoute for gRPC requests",
	"UDPRoute":         "a UDPRoute is not supported: Penstock proxies only TCP",
	"BackendTLSPolicy": "a BackendTLSPolicy is not supported: configure TLS to endpoints in the Service's spec.tls",
	"ListenerSet":      "a ListenerSet is not supported: write the listeners into the Gateway",
}

// derivedField refuses a field that Penstock has and the Gateway API does not.
const derivedField = "unknown field: Penstock derives it from apiVersion and metadata"

// unsupportedFields has what to do instead of each unsupported field, by kind
// and path without indices.
var unsupportedFields = map[string]string{
	"Gateway spec.origin":           derivedField,
	"TLSRoute spec.origin":          derivedField,
	"TCPRoute spec.origin":          derivedField,
	"ReferenceGrant spec.origin":    derivedField,
	"Gateway spec.infrastructure":   "is not supported: Penstock creates no infrastructure for a Gateway",
	"Gateway spec.allowedListeners": "is not supported: a Gateway has only its own listeners",
	"Gateway spec.tls": "is not supported: configure TLS to endpoints in a Service's spec.tls, " +
		"and client certificates in a Listener's tls.clientAuth",
	"Gateway spec.backendTLS":                       "is not supported: configure TLS to endpoints in a Service's spec.tls",
	"Gateway spec.defaultScope":                     "is not supported: routes name their Gateway in parentRefs",
	"Gateway spec.listeners.tls.options":            "is not supported: Penstock knows no options",
	"Gateway spec.listeners.tls.frontendValidation": "is not supported: configure client certificates in a Listener's tls.clientAuth",
	"TLSRoute spec.useDefaultGateways":              "is not supported: name the Gateway in parentRefs",
	"TCPRoute spec.useDefaultGateways":              "is not supported: name the Gateway in parentRefs",
	"TLSRoute spec.rules.filters":                   "is not supported: connections have no filters",
	"TCPRoute spec.rules.filters":                   "is not supported: connections have no filters",
	"TLSRoute spec.rules.backendRefs.filters":       "is not supported: connections have no filters",
	"TCPRoute spec.rules.backendRefs.filters":       "is not supported: connections have no filters",
}

// APIVersions returns the versions that are supported for at least one kind.
func APIVersions() []string {
	var list []string
	for _, kind := range documentKinds {
		for _, v := range Versions(kind) {
			if v = Group + "/" + v; !slices.Contains(list, v) {
				list = append(list, v)
			}
		}
	}
	slices.Sort(list)
	return list
}

// Foreign returns the format of the Gateway API.
func Foreign() []codec.Foreign {
	return []codec.Foreign{{Name: "the Gateway API", Is: isGatewayAPI, Convert: convertDocument, Path: documentPath}}
}

func isGatewayAPI(root *yaml.Node) bool {
	group, _, _ := strings.Cut(document.TextOf(root, "apiVersion"), "/")
	return group == Group
}

func convertDocument(root *yaml.Node, fault codec.ForeignFault) []*yaml.Node {
	kind := document.TextOf(root, "kind")
	name := document.Child(document.Child(root, "metadata"), "name")
	f := document.Open(root, kind, name, fault)
	if !checkKind(f, kind) {
		return nil
	}
	v := f.Fields(root, "", map[string]bool{"status": true}, "apiVersion", "kind", "metadata", "spec")
	meta := f.Metadata(v["metadata"])
	if namespace := scalarText(meta.Namespace); namespace != "" && name != nil && name.Kind == yaml.ScalarNode {
		// Faults of the resource must have the name of the resource.
		name = &yaml.Node{Kind: yaml.ScalarNode, Tag: name.Tag, Value: NameOf(namespace, name.Value), Line: name.Line}
		f.Subject = document.Open(root, kind, name, fault).Subject
	}
	labels := f.Labels(meta.Labels, "metadata.labels")
	return []*yaml.Node{f.Resource(kind, name, labels, documentSpec(f, kind, v["spec"], documentOrigin(root, meta)))}
}

func scalarText(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

// checkKind reports whether the kind and its version are supported, and a fault
// if not.
func checkKind(f *document.Frame, kind string) bool {
	at := document.Child(f.Root, "kind")
	if at == nil {
		at = f.Root
	}
	known := Versions(kind)
	if known == nil {
		message := "is not supported; supported kinds of the Gateway API are " + strings.Join(documentKinds, ", ") +
			resource.DidYouMean(kind, documentKinds)
		if why, ok := unsupportedKinds[kind]; ok {
			message = why
		}
		f.Fault(at, "kind", message, kind)
		return false
	}
	group, version, _ := strings.Cut(document.TextOf(f.Root, "apiVersion"), "/")
	if !slices.Contains(known, version) {
		words := make([]string, len(known))
		for i, v := range known {
			words[i] = group + "/" + v
		}
		f.Fault(
			document.Child(f.Root, "apiVersion"), "apiVersion",
			"this version of "+kind+" is not supported; use one of "+strings.Join(words, ", "),
			group+"/"+version,
		)
		return false
	}
	return true
}

// documentOrigin returns the spec.origin of a document; nil if it would be empty.
func documentOrigin(root *yaml.Node, meta document.Meta) *yaml.Node {
	out := document.NewMapping(root)
	at := document.Child(root, "apiVersion")
	if _, version, _ := strings.Cut(at.Value, "/"); version != "v1" {
		out.Put(at, "apiVersion", document.Text(at, version))
	}
	if meta.Namespace != nil {
		out.Put(meta.Namespace, "namespace", meta.Namespace)
	}
	if at := document.Child(document.Child(root, "metadata"), "creationTimestamp"); scalarText(at) != "" {
		out.Put(at, "creationTimestamp", document.Text(at, at.Value))
	}
	if len(out.Node.Content) == 0 {
		return nil
	}
	return out.Node
}

// documentSpec returns the spec with the origin and without unsupported fields.
func documentSpec(f *document.Frame, kind string, n, origin *yaml.Node) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return n // decoding reports it
	}
	out := dropUnsupported(f, kind, n, "spec", "spec")
	if origin != nil {
		out.Content = append([]*yaml.Node{document.Text(origin, "origin"), origin}, out.Content...)
	}
	return out
}

// dropUnsupported returns a value without its unsupported fields. path is the
// value's path, plain the same without indices.
func dropUnsupported(f *document.Frame, kind string, n *yaml.Node, path, plain string) *yaml.Node {
	out := *n
	switch n.Kind {
	case yaml.MappingNode:
		out.Content = make([]*yaml.Node, 0, len(n.Content))
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			at := plain + "." + key.Value
			if why, no := unsupportedFields[kind+" "+at]; no {
				f.Fault(key, path+"."+key.Value, why, nil)
				continue
			}
			out.Content = append(out.Content, key, dropUnsupported(f, kind, value, path+"."+key.Value, at))
		}
	case yaml.SequenceNode:
		out.Content = make([]*yaml.Node, len(n.Content))
		for i, c := range n.Content {
			out.Content[i] = dropUnsupported(f, kind, c, resource.Item(path, i), plain)
		}
	}
	return &out
}

// documentPath converts a path of the resource to the document's path.
func documentPath(path string) string {
	switch path {
	case "spec.origin.namespace":
		return "metadata.namespace"
	case "spec.origin.creationTimestamp":
		return "metadata.creationTimestamp"
	case "spec.origin.apiVersion":
		return "apiVersion"
	}
	return document.MetadataPath(path)
}
