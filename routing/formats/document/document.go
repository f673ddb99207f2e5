// Package document reads what documents of Kubernetes have in common,
// apiVersion, kind and metadata around a spec, and builds resources from it. It
// works on YAML nodes, which keep their lines:
//
//	f := document.Open(root, "MeshTCPRoute", name, fault)
//	meta := f.Metadata(document.Child(root, "metadata"))
//	return f.Resource("MeshTCPRoute", meta.Name, labels, spec)
//
// It refuses unknown fields and ignores what servers add to the users'
// documents; see Noise.
package document

import (
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// LabelNamespace keeps the namespace of formats without a label for it. It and
// resource.LabelFormat are reserved: documents must not have them.
const LabelNamespace = "penstock/namespace"

// Noise are the metadata fields that servers add. They do not express what the
// user wants, so they are ignored, and so are annotations, which are for other
// programs.
var Noise = map[string]bool{
	"annotations": true, "creationTimestamp": true, "finalizers": true, "generation": true, "managedFields": true,
	"ownerReferences": true, "resourceVersion": true, "selfLink": true, "uid": true,
}

// Child returns the value of a key in a mapping, or nil.
func Child(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// TextOf returns the text of a key in a mapping, or "".
func TextOf(n *yaml.Node, key string) string {
	if c := Child(n, key); c != nil && c.Kind == yaml.ScalarNode && c.Tag != "!!null" {
		return c.Value
	}
	return ""
}

// Text returns a string node in the line of a node.
func Text(from *yaml.Node, s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Line: from.Line}
}

// Mapping builds a mapping.
type Mapping struct{ Node *yaml.Node }

// NewMapping returns an empty mapping in the line of a node.
func NewMapping(from *yaml.Node) Mapping {
	return Mapping{&yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: from.Line}}
}

// Put adds a pair; its key is in the line of from.
func (m Mapping) Put(from *yaml.Node, key string, value *yaml.Node) {
	m.Node.Content = append(m.Node.Content, Text(from, key), value)
}

// List returns a list in the line of a node.
func List(from *yaml.Node, items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: from.Line, Content: items}
}

// Frame is a document being read.
type Frame struct {
	Root *yaml.Node
	// Subject is the kind and name that faults begin with: "MeshTCPRoute/a".
	Subject string

	fault codec.ForeignFault
}

// Open starts reading a document. The subject of its faults is the kind and the
// name, as far as these are valid.
func Open(root *yaml.Node, kind string, name *yaml.Node, fault codec.ForeignFault) *Frame {
	f := &Frame{Root: root, Subject: "document", fault: fault}
	if isKindName(kind) {
		f.Subject = kind
	}
	if name != nil && name.Kind == yaml.ScalarNode && name.Tag != "!!null" && validate.NameOK(name.Value) {
		f.Subject += "/" + name.Value
	}
	return f
}

// isKindName reports whether a word has the form of a kind.
func isKindName(word string) bool {
	const longest = 63
	return word != "" && len(word) <= longest && strings.IndexFunc(word, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}) < 0
}

// Fault reports a fault at a path of the document.
func (f *Frame) Fault(n *yaml.Node, path, message string, value any) {
	f.fault(n, strings.TrimSpace(f.Subject+" "+path), message, value)
}

// Fields returns the values of the known keys of a mapping. It ignores the keys
// in noise, and reports all other keys and duplicates as faults.
func (f *Frame) Fields(n *yaml.Node, path string, noise map[string]bool, known ...string) map[string]*yaml.Node {
	values := map[string]*yaml.Node{}
	if n.Kind != yaml.MappingNode {
		f.Fault(n, path, "must be a mapping", nil)
		return values
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			f.Fault(key, path, "a key must be a string", nil)
			continue
		}
		at := resource.Step(path, key.Value)
		switch {
		case seen[key.Value]:
			f.Fault(key, at, "duplicate key", nil)
		case noise[key.Value]:
		case contains(known, key.Value):
			values[key.Value] = value
		default:
			hint := resource.DidYouMean(key.Value, known)
			if hint == "" {
				hint = "; known fields are " + strings.Join(known, ", ")
			}
			f.Fault(key, at, "unknown field"+hint, nil)
		}
		seen[key.Value] = true
	}
	return values
}

func contains(words []string, word string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return false
}

// Meta is the metadata of a Kubernetes object. A missing field is nil.
type Meta struct {
	Name, Namespace, Labels *yaml.Node
}

// Metadata reads the metadata of a Kubernetes object.
func (f *Frame) Metadata(n *yaml.Node) Meta {
	if n == nil {
		return Meta{}
	}
	v := f.Fields(n, "metadata", Noise, "name", "namespace", "labels", "deletionTimestamp")
	if at := v["deletionTimestamp"]; at != nil {
		f.Fault(at, "metadata.deletionTimestamp", "the object is being deleted at its source: remove it from the file", nil)
	}
	return Meta{v["name"], v["namespace"], v["labels"]}
}

// MetadataPath converts a path of the resource to the path in its Kubernetes
// object.
func MetadataPath(path string) string {
	if path == "name" || path == "labels" || strings.HasPrefix(path, "labels.") || strings.HasPrefix(path, "labels[") {
		return "metadata." + path
	}
	return path
}

// Labels returns the labels of a resource: those of the document, then those in kept.
func (f *Frame) Labels(n *yaml.Node, path string, kept ...Label) *yaml.Node {
	if n != nil && n.Kind != yaml.MappingNode {
		return n // decoding reports it
	}
	out := NewMapping(f.Root)
	if n != nil {
		out = NewMapping(n)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if key.Value == resource.LabelFormat || key.Value == LabelNamespace {
				f.Fault(key, path, "the label is reserved for Penstock: leave it out", key.Value)
				continue
			}
			out.Node.Content = append(out.Node.Content, key, value)
		}
	}
	for _, l := range kept {
		if l.Value == nil {
			continue
		}
		given := Child(out.Node, l.Key)
		switch {
		case given == nil:
			out.Put(l.Value, l.Key, l.Value)
		case given.Value != l.Value.Value:
			f.Fault(l.Value, l.Path, "differs from the label "+l.Key, l.Value.Value)
		}
	}
	return out.Node
}

// Label is a value that a document has elsewhere and a resource keeps as a label.
type Label struct {
	Key   string
	Value *yaml.Node // nil: not given
	Path  string     // of the value in the document
}

// Resource returns the mapping of a resource. Nil arguments are left out.
func (f *Frame) Resource(kind string, name, labels, spec *yaml.Node) *yaml.Node {
	out := NewMapping(f.Root)
	out.Put(f.Root, "kind", Text(f.Root, kind))
	for _, field := range []struct {
		key   string
		value *yaml.Node
	}{{"name", name}, {"labels", labels}, {"spec", spec}} {
		if field.value != nil {
			out.Put(field.value, field.key, field.value)
		}
	}
	return out.Node
}
