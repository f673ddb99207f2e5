package resource

import (
	"cmp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Foreign is somebody else's format, whose documents are taken as they are:
// each is converted to resources, which are then decoded as strictly as all
// others, with the lines that they have in the document.
type Foreign struct {
	// Name is the format as faults call it: "Kuma".
	Name string
	// Is tells a document of the format by its root, a mapping.
	Is func(root *yaml.Node) bool
	// Convert gives the resources that a document stands for, each a mapping
	// of kind, name and spec. What it takes over are the document's own nodes;
	// what it makes has the line of what it was made from. fault reports what
	// cannot be converted; the path is the document's. Where that begins with
	// a resource's kind and name ("MeshTCPRoute/a spec.to"), the resource counts
	// as broken, and nothing more is told of what is there.
	Convert func(root *yaml.Node, fault ForeignFault) []*yaml.Node
	// Report, in place of Convert, also warns of what is left out of a document
	// because that changes nothing for anybody.
	Report func(root *yaml.Node, fault, warn ForeignFault) []*yaml.Node
	// Items, in place of Convert, gives the documents that a list holds. Each
	// is taken as if it stood alone, but for lists, which lists do not hold.
	Items func(root *yaml.Node, fault ForeignFault) []*yaml.Node
	// Path gives the document's path for that of a converted resource. Nil:
	// they are the same.
	Path func(path string) string
	// Kinds gives the document's kind for that of a converted resource, where
	// they differ: faults name what the user wrote.
	Kinds map[string]string
}

// ForeignFault reports what cannot be taken of a document.
type ForeignFault = func(n *yaml.Node, path, message string, value any)

// ownFormat is how faults call documents that are not converted.
const ownFormat = "Penstock"

// DecodeForeign is Decode that also takes documents of other formats, each by
// the first that knows it. Such a document holds all that belongs together, so
// when something is wrong with one of its resources alone, what is wrong with
// them together is told as well.
func DecodeForeign(file string, data []byte, kinds []Kind, foreign []Foreign) ([]Object, Faults) {
	objects, faults, _ := DecodeReport(file, data, kinds, foreign)
	return objects, faults
}

// DecodeReport is DecodeForeign that also gives what the formats warn of, in
// the order of the file.
func DecodeReport(file string, data []byte, kinds []Kind, foreign []Foreign) (objects []Object, faults, warnings Faults) {
	d := &decoder{file: file, kinds: kinds, foreign: foreign, seen: map[Key]seenAt{}}
	objects, faults = decodeAll(d, data)
	slices.SortStableFunc(d.warnings, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return objects, faults, d.warnings
}

// origin is the format of the document at hand; of Penstock's own it is empty.
type origin struct {
	format string
	rename func(path string) string
	kinds  map[string]string
	failed map[string]bool // "KIND/NAME PATH" that could not be converted
}

func (o *origin) path(path string) string {
	if o.rename == nil || path == "" {
		return path
	}
	return o.rename(path)
}

// subject gives the kind and name that faults begin with for those of a
// converted resource; what follows them stays.
func (o *origin) subject(of string) string {
	end := strings.IndexAny(of, "/ ")
	if end < 0 {
		end = len(of)
	}
	if kind, ok := o.kinds[of[:end]]; ok {
		return kind + of[end:]
	}
	return of
}

// of lists the paths of a resource that could not be converted.
func (o *origin) of(subject string) (paths []string) {
	for at := range o.failed {
		if path, ok := strings.CutPrefix(at, subject+" "); ok {
			paths = append(paths, path)
		}
	}
	return paths
}

// ownDocument tells a document of Penstock's by its root: it has a kind, and
// nothing of a Kubernetes object or list.
func ownDocument(root *yaml.Node) bool {
	return childOf(root, "kind") != nil && childOf(root, "apiVersion") == nil && childOf(root, "items") == nil
}

// convert decodes a document if it is one of another format.
func (d *decoder) convert(root *yaml.Node, listed bool) bool {
	if root.Kind != yaml.MappingNode || len(d.foreign) == 0 || ownDocument(root) {
		return false
	}
	for _, f := range d.foreign {
		switch {
		case !f.Is(root):
			continue
		case f.Items == nil:
			d.together(f, root)
		case listed:
			d.subject, d.failed = "", nil
			d.fail(d.offset+root.Line, "items", "a list within a list is not taken: put its items into the list around it", nil)
		default:
			d.subject, d.failed = "", nil
			for _, item := range f.Items(root, d.unconverted) {
				d.one(item, true)
			}
		}
		return true
	}
	return false
}

func (d *decoder) unconverted(n *yaml.Node, path, message string, value any) {
	d.fail(d.offset+n.Line, path, message, value)
}

func (d *decoder) warn(n *yaml.Node, path, message string, value any) {
	if len(d.warnings) < MaxFaults {
		d.warnings = append(d.warnings, Fault{File: d.file, Line: d.offset + n.Line, Path: d.from.subject(path), Message: message, Value: show(value)})
	}
}

// together decodes the resources of one document of another format.
func (d *decoder) together(f Foreign, root *yaml.Node) {
	first, faults := len(d.objects), len(d.faults)
	d.broken, d.subject, d.failed = []Object{}, "", map[string]bool{}
	d.from = origin{kinds: f.Kinds}
	var nodes []*yaml.Node
	if f.Report != nil {
		nodes = f.Report(root, d.unconverted, d.warn)
	} else {
		nodes = f.Convert(root, d.unconverted)
	}
	d.from = origin{f.Name, f.Path, f.Kinds, d.failed}
	told := map[string]map[string]bool{}
	for _, n := range nodes {
		d.object(n)
		told[d.from.subject(d.subject)] = d.failed
	}
	broken := d.broken
	d.broken, d.from = nil, origin{}
	if len(d.faults) == faults {
		return // whoever checks them with others tells it
	}
	all, _ := ValidateSet(append(broken, d.objects[first:]...))
	for _, fault := range all {
		subject, path, _ := strings.Cut(fault.Path, " ")
		follows := false
		for p := range told[subject] {
			follows = follows || within(p, path) || within(path, p)
		}
		if !follows && !d.full() {
			d.faults = append(d.faults, fault)
		}
	}
}

// NameOK tells whether a text can be the name of a resource.
func NameOK(s string) bool { return nameFault(s) == "" }

// Step gives the path of a key of a mapping, shortened and quoted as needed.
func Step(path, key string) string { return string(appendStep([]byte(path), key)) }

// SpecNode gives the tree of a spec, secrets hidden, for documents of other
// formats.
func SpecNode(s Spec) *yaml.Node { return specNode(s) }
