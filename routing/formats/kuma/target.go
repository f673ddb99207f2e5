package kuma

import (
	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
)

// unsupportedFields are fields of Kuma's targets that Penstock cannot honour,
// each with the reason and what to do instead. Ignoring them would route other
// connections than Kuma does.
var unsupportedFields = map[string]string{
	"mesh":        "is not supported: Penstock supports only one mesh",
	"namespace":   "is not supported: Services have no namespaces, write the Service's full name",
	"sectionName": "is not supported: a Service has no ports to select, make the port a Service of its own",
	"port":        "is not supported: a Service has no ports to select, make the port a Service of its own",
	"labels":      "is not supported: labels do not select targets, use a name or tags",
	"proxyTypes":  "is not supported: all sources have one type",
}

// unsupportedTargets are kinds of Kuma's targets that Penstock does not have.
var unsupportedTargets = map[string]string{
	"Dataplane":            "Dataplane is not supported: select sources by tags with MeshSubset",
	"MeshGateway":          "MeshGateway is not supported: a gateway is a Listener, and MeshSubset selects sources by its tags",
	"MeshExternalService":  "MeshExternalService is not supported: make it a Service, and name that with MeshService",
	"MeshMultiZoneService": "MeshMultiZoneService is not supported: make it a Service, and name that with MeshService",
	"MeshHTTPRoute":        "MeshHTTPRoute is not supported as a target: routes apply to sources and services",
}

// spec returns the spec without unsupported fields. The rest is unchanged;
// decoding reports its faults.
func spec(f *document.Frame, n *yaml.Node) *yaml.Node {
	if own := document.Child(n, "rollout"); own != nil {
		f.Fault(
			own, "spec.rollout",
			"is not supported in Kuma's documents: write the route in Penstock's format, with kind, name and spec",
			nil,
		)
	}
	return within(n, "targetRef", func(n *yaml.Node) *yaml.Node {
		return target(f, n, "spec.targetRef")
	}, "to", func(n *yaml.Node) *yaml.Node {
		return each(n, "spec.to", func(n *yaml.Node, path string) *yaml.Node {
			return destination(f, n, path)
		})
	})
}

// unsupportedToFields are fields of a destination without an equivalent.
var unsupportedToFields = map[string]string{
	"hostnames": "is not supported: it applies to MeshGateway; write server names in the Listener",
}

func destination(f *document.Frame, n *yaml.Node, path string) *yaml.Node {
	n = dropUnsupported(f, n, path, unsupportedToFields)
	return within(n, "targetRef", func(n *yaml.Node) *yaml.Node {
		return target(f, n, path+".targetRef")
	}, "rules", func(n *yaml.Node) *yaml.Node {
		return each(n, path+".rules", func(n *yaml.Node, path string) *yaml.Node {
			return within(n, "default", func(n *yaml.Node) *yaml.Node {
				return within(n, "backendRefs", func(n *yaml.Node) *yaml.Node {
					return each(n, path+".default.backendRefs", func(n *yaml.Node, path string) *yaml.Node {
						return target(f, n, path)
					})
				}, "", nil)
			}, "", nil)
		})
	})
}

// within returns a mapping with the values of two keys replaced. Other nodes
// are returned unchanged.
func within(
	n *yaml.Node, key string, replace func(*yaml.Node) *yaml.Node, other string, replaceOther func(*yaml.Node) *yaml.Node,
) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return n
	}
	out := *n
	out.Content = append([]*yaml.Node(nil), n.Content...)
	for i := 0; i+1 < len(out.Content); i += 2 {
		switch out.Content[i].Value {
		case key:
			out.Content[i+1] = replace(out.Content[i+1])
		case other:
			if replaceOther != nil {
				out.Content[i+1] = replaceOther(out.Content[i+1])
			}
		}
	}
	return &out
}

// each returns a list with all items replaced.
func each(n *yaml.Node, path string, replace func(n *yaml.Node, path string) *yaml.Node) *yaml.Node {
	if n.Kind != yaml.SequenceNode {
		return n
	}
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = replace(c, resource.Item(path, i))
	}
	return &out
}

// target reports the unsupported parts of a targetRef or backendRef, and
// returns it without unsupported fields.
func target(f *document.Frame, n *yaml.Node, path string) *yaml.Node {
	if kind := document.Child(n, "kind"); kind != nil {
		if why, no := unsupportedTargets[kind.Value]; no {
			f.Fault(kind, path+".kind", why, nil)
		}
	}
	return dropUnsupported(f, n, path, unsupportedFields)
}

// dropUnsupported reports the unsupported fields of a mapping, each with its
// reason, and returns the mapping without them.
func dropUnsupported(f *document.Frame, n *yaml.Node, path string, refused map[string]string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	out := *n
	out.Content = make([]*yaml.Node, 0, len(n.Content))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if why, no := refused[key.Value]; no {
			f.Fault(key, path+"."+key.Value, why, nil)
			continue
		}
		out.Content = append(out.Content, key, value)
	}
	return &out
}
