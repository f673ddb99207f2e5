// Package resource is the model of what users write: its types, their
// defaults, strict decoding from YAML and JSON, and validation that reports
// every fault at once with file, line, path and value.
//
//	objects, faults := resource.Decode("edge.yaml", data, resource.RoutingKinds())
//	next, faults, warnings := set.With([]resource.Change{resource.Put(objects[0])})
//	service := objects[1].Spec.(*resource.Service).WithDefaults()
//
// The types here are the user's manual as well: each field's comment gives
// its unit, default and bounds, the field's tags hold them for the program, and
// tests compare the two with each other and with docs/resources.md.
//
// What is decoded is data as JSON has it, so that a file reads the same to
// everyone: no anchors, aliases or tags, no octal numbers, no "yes". A field
// without a value and an explicit 0 or "" that would mean a default are faults,
// because nobody can say what was meant. A text may be written as a number or
// boolean, which is taken letter by letter.
//
// Faults come in three layers. Decode tells what can be seen in one document;
// it and Spec.Validate depend on nothing but the content, not even on the
// time. Set tells what can be seen in all objects together, at the cost of what
// a change touches. Admit tells what matters only at the moment of applying.
//
// What is kept, in a store or a Set, is what the user wrote. Defaults are
// filled in by WithDefaults where something is done with it, so that a better
// default reaches everyone who did not choose.
package resource

import (
	"cmp"
	"fmt"
	"strings"
)

// A Spec is the content of one kind of resource.
type Spec interface {
	// Validate reports the faults that can be seen in this spec alone.
	// Paths are relative to the spec ("endpoints[2].address").
	Validate(report func(path, message string, value any))
	// Refs lists the resources that this one needs, for checks across
	// resources and for refusing a delete.
	Refs() []Ref
}

// Key identifies a resource.
type Key struct{ Kind, Name string }

func (k Key) String() string { return k.Kind + "/" + k.Name }

// Ref is a reference to another resource, with the path where it stands.
type Ref struct {
	Key
	Path string // "spec.hosts[0].service"
	// Optional: it may lead nowhere, which gives a warning only.
	Optional bool
}

// Object is one resource with the place it was read from.
type Object struct {
	Key
	Spec Spec
	// Labels sort resources for whoever manages them; nothing that is done
	// with connections depends on them. Nil: none.
	Labels map[string]string
	// Version is the version that the writer has seen; 0: not said.
	Version uint64
	// File and Line say where the document begins; empty when it came by RPC.
	File string
	Line int
	// Lines maps paths to lines, for faults that only show later. Lists of
	// plain values have one entry, for the list; see LineOf.
	Lines map[string]int

	from origin // the format of the document, where it was another's
}

// LineOf gives the line of a path, or of the nearest thing around it.
func (o *Object) LineOf(path string) int {
	for path != "" {
		if line, ok := o.Lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return o.Line
}

// Fault makes a fault of this object. The path begins with "spec".
func (o *Object) Fault(path, message string, value any) Fault {
	return Fault{File: o.File, Line: o.LineOf(path), Path: strings.TrimSpace(o.Subject() + " " + o.PathOf(path)), Message: message, Value: show(value)}
}

// PathOf gives the path that a path of the resource has in the document that
// it was read from.
func (o *Object) PathOf(path string) string { return o.from.path(path) }

// Subject is the kind and name that faults of the object begin with: those of
// the document that it was read from.
func (o *Object) Subject() string { return o.from.subject(o.String()) }

// Format is that of the document that it was read from, as faults call it.
func (o *Object) Format() string { return cmp.Or(o.from.format, ownFormat) }

// Kind describes one kind of resource to the decoder.
type Kind struct {
	Name   string // "Service"
	Plural string // "services"
	New    func() Spec
	// Secrets tells that there may be secrets where the types do not show it,
	// behind an interface.
	Secrets bool
	// Kept says why nobody may apply it, where a node writes it itself; "":
	// users may.
	Kept string
	// Status tells that a status is shown beside the spec. It is made when it
	// is asked for, and passed over when it comes back.
	Status bool
}

// RoutingKinds are the kinds of this package.
func RoutingKinds() []Kind {
	return []Kind{
		{Name: "Listener", Plural: "listeners", New: func() Spec { return new(Listener) }},
		{Name: "Service", Plural: "services", New: func() Spec { return new(Service) }},
		{Name: "MeshTCPRoute", Plural: "meshtcproutes", New: func() Spec { return new(MeshTCPRoute) }},
		{Name: "MeshHTTPRoute", Plural: "meshhttproutes", New: func() Spec { return new(MeshHTTPRoute) }},
		{Name: "Certificate", Plural: "certificates", New: func() Spec { return new(Certificate) }},
		{Name: "Host", Plural: "hosts", New: func() Spec { return new(Host) }},
	}
}

// FindKind finds a kind by its name in any case, singular or plural. Its
// error lists the known ones.
func FindKind(kinds []Kind, s string) (Kind, error) {
	for _, k := range kinds {
		if strings.EqualFold(s, k.Name) || strings.EqualFold(s, k.Plural) {
			return k, nil
		}
	}
	names := kindNames(kinds)
	return Kind{}, fmt.Errorf("unknown kind %s%s; known are %s", quote(s), didYouMean(s, names), strings.Join(names, ", "))
}

func kindNames(kinds []Kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return names
}

// Fault is one thing that is wrong.
type Fault struct {
	File string
	Line int
	// Document counts the documents of the file, from 1; 0: of JSON, or not
	// known.
	Document int
	Path     string // "Service/apps spec.endpoints[2].address"
	Message  string // what is wrong and what to do
	Value    string // the offending value, shortened; never a secret
}

// Error gives  file:line: path: what is wrong (value).
func (f Fault) Error() string {
	s := f.Path + ": " + f.Message
	if f.Value != "" {
		s += " (" + f.Value + ")"
	}
	if f.File != "" {
		s = fmt.Sprintf("%s:%d: %s", f.File, f.Line, s)
	}
	return s
}

// Faults is every thing that is wrong with a set of resources.
type Faults []Fault

// Error gives one fault per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Warnings are things that are allowed and probably not meant.
type Warnings []Fault
