package resource

import (
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Foreign is somebody else's format, whose documents are taken as they are:
// each is converted to resources, which are then decoded as strictly as all
// others, with the lines that they have in the document.
type Foreign struct {
	// Is tells a document of the format by its root.
	Is func(root *yaml.Node) bool
	// Convert gives the resources that a document stands for, each a mapping
	// of kind, name and spec. What it takes over are the document's own nodes;
	// what it makes has the line of what it was made from. fault reports what
	// cannot be converted; the path is the document's.
	Convert func(root *yaml.Node, fault func(n *yaml.Node, path, message string, value any)) []*yaml.Node
}

// DecodeForeign is Decode that also takes documents of other formats. Such a
// document holds all that belongs together, so when something is wrong with one
// of its resources alone, what is wrong with them together is told as well.
func DecodeForeign(file string, data []byte, kinds []Kind, foreign []Foreign) ([]Object, Faults) {
	return decodeAll(&decoder{file: file, kinds: kinds, foreign: foreign, seen: map[Key]int{}}, data)
}

// convert decodes a document if it is one of another format.
func (d *decoder) convert(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode || childOf(root, "kind") != nil {
		return false
	}
	for _, f := range d.foreign {
		if f.Is(root) {
			d.together(f, root)
			return true
		}
	}
	return false
}

// together decodes the resources of one document of another format.
func (d *decoder) together(f Foreign, root *yaml.Node) {
	first, faults := len(d.objects), len(d.faults)
	d.broken, d.subject, d.failed = []Object{}, "", map[string]bool{}
	nodes := f.Convert(root, func(n *yaml.Node, path, message string, value any) {
		d.fail(d.offset+n.Line, path, message, value)
	})
	told := map[string]map[string]bool{}
	for _, n := range nodes {
		d.object(n)
		told[d.subject] = d.failed
	}
	broken := d.broken
	d.broken = nil
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
