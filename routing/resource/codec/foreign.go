package codec

import (
	"cmp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Foreign is another project's format, whose documents work unchanged: each is
// converted to resources, which are decoded as strictly as all others and keep
// the lines of the document.
type Foreign struct {
	// Name is the format's name in faults, such as "Kuma".
	Name string
	// Is reports whether a document, given its root mapping, is of this format.
	Is func(root *yaml.Node) bool
	// Convert returns the resources that a document stands for, each a mapping of
	// kind, name and spec. Nodes that it takes over are the document's own; a node
	// that it creates has the line of its origin. fault reports what cannot be
	// converted, with the document's path. If that path begins with a resource's
	// kind and name ("MeshTCPRoute/a spec.to"), the resource counts as broken, and
	// no further faults are reported at that place.
	Convert func(root *yaml.Node, fault ForeignFault) []*yaml.Node
	// Report replaces Convert for formats that also warn of parts of a document
	// that are left out because they have no effect.
	Report func(root *yaml.Node, fault, warn ForeignFault) []*yaml.Node
	// Items replaces Convert for lists: it returns the documents that a list
	// holds. Each is decoded as if it stood alone, but must not be a list.
	Items func(root *yaml.Node, fault ForeignFault) []*yaml.Node
	// Path converts the path of a converted resource to the document's. Nil: they
	// are the same.
	Path func(path string) string
	// Kinds maps the kind of a converted resource to the document's, where they
	// differ: faults name what the user wrote.
	Kinds map[string]string
}

// ForeignFault reports a part of a document that cannot be converted.
type ForeignFault = func(n *yaml.Node, path, message string, value any)

// DecodeForeign is like Decode but also accepts documents of other formats, each
// converted by the first format that recognises it. Such a document holds
// everything that belongs together, so if one of its resources has a fault of
// its own, the faults of all of them together are reported as well.
func DecodeForeign(file string, data []byte, kinds []resource.Kind, foreign []Foreign) ([]resource.Object, resource.Faults) {
	objects, faults, _ := DecodeReport(file, data, kinds, foreign)
	return objects, faults
}

// DecodeReport is like DecodeForeign but also returns the formats' warnings, by line.
func DecodeReport(
	file string, data []byte, kinds []resource.Kind, foreign []Foreign,
) (objects []resource.Object, faults, warnings resource.Faults) {
	d := &decoder{file: file, kinds: kinds, foreign: foreign, seen: map[resource.Key]seenAt{}}
	objects, faults = decodeAll(d, data)
	slices.SortStableFunc(d.warnings, func(a, b resource.Fault) int { return cmp.Compare(a.Line, b.Line) })
	return objects, faults, d.warnings
}

// unconvertedPaths lists the paths of the current resource that could not be
// converted.
func (d *decoder) unconvertedPaths() (paths []string) {
	for at := range d.unconverted {
		if path, ok := strings.CutPrefix(at, d.subject+" "); ok {
			paths = append(paths, path)
		}
	}
	return paths
}

// ownDocument reports whether a document is Penstock's own: its root has a kind,
// and no apiVersion or items as a Kubernetes object or list has.
func ownDocument(root *yaml.Node) bool {
	return childOf(root, "kind") != nil && childOf(root, "apiVersion") == nil && childOf(root, "items") == nil
}

// convert decodes a document of another format and reports whether it is one.
func (d *decoder) convert(root *yaml.Node, listed bool) bool {
	if root.Kind != yaml.MappingNode || len(d.foreign) == 0 || ownDocument(root) {
		return false
	}
	for _, f := range d.foreign {
		switch {
		case !f.Is(root):
			continue
		case f.Items == nil:
			d.decodeForeign(f, root)
		case listed:
			d.subject, d.failed = "", nil
			d.fail(d.offset+root.Line, "items", "nested lists are not supported: put the items into the outer list", nil)
		default:
			d.subject, d.failed = "", nil
			for _, item := range f.Items(root, d.failForeign) {
				d.decodeItem(item, true)
			}
		}
		return true
	}
	return false
}

func (d *decoder) failForeign(n *yaml.Node, path, message string, value any) {
	d.fail(d.offset+n.Line, path, message, value)
}

func (d *decoder) warn(n *yaml.Node, path, message string, value any) {
	if len(d.warnings) < resource.MaxFaults {
		d.warnings = append(d.warnings, resource.Fault{
			File:    d.file,
			Line:    d.offset + n.Line,
			Path:    d.from.SubjectOf(path),
			Message: message,
			Value:   resource.Show(value),
		})
	}
}

// decodeForeign decodes the resources of one document of another format.
func (d *decoder) decodeForeign(f Foreign, root *yaml.Node) {
	first, faults := len(d.objects), len(d.faults)
	d.broken, d.subject, d.failed = []resource.Object{}, "", map[string]bool{}
	d.from = resource.Origin{Kinds: f.Kinds}
	var nodes []*yaml.Node
	if f.Report != nil {
		nodes = f.Report(root, d.failForeign, d.warn)
	} else {
		nodes = f.Convert(root, d.failForeign)
	}
	d.from, d.unconverted = resource.Origin{Format: f.Name, Rename: f.Path, Kinds: f.Kinds}, d.failed
	failed := map[string]map[string]bool{}
	for _, n := range nodes {
		d.decodeObject(n)
		failed[d.from.SubjectOf(d.subject)] = d.failed
	}
	broken := d.broken
	d.broken, d.from, d.unconverted = nil, resource.Origin{}, nil
	if len(d.faults) == faults {
		return // the check of the whole set reports their faults
	}
	all, _ := validate.Objects(append(broken, d.objects[first:]...))
	for _, fault := range all {
		subject, path, _ := strings.Cut(fault.Path, " ")
		follows := false
		for p := range failed[subject] {
			follows = follows || within(p, path) || within(path, p)
		}
		if !follows && !d.full() {
			d.faults = append(d.faults, fault)
		}
	}
}

// SpecNode returns the YAML tree of a spec, secrets hidden, for documents of
// other formats.
func SpecNode(s resource.Spec) *yaml.Node { return specNode(s) }
