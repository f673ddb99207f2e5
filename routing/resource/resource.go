// Package resource models the resources that users write: their types and
// defaults, and how faults are reported. Packages below it decode and encode
// them (codec), and find the faults of one resource and of a set (validate).
//
//	objects, faults := codec.Decode("edge.yaml", data, resource.RoutingKinds())
//	next, faults, warnings := set.With([]resource.Change{resource.Put(objects[0])})
//	service := objects[1].Spec.(*resource.Service).WithDefaults()
//
// The types are also the user's manual: each field's comment gives its unit,
// default and bounds, its tags hold them for the program, and tests compare the
// two with each other and with docs/resources.md.
//
// A store or a validate.Set keeps what the user wrote. WithDefaults fills in defaults
// where a spec is used, so that a better default reaches everyone who did not
// choose.
package resource

import (
	"cmp"
	"fmt"
	"strings"
)

// A Spec is the content of one kind of resource.
type Spec interface {
	// Refs lists the resources that this one needs, for checks across
	// resources and for refusing a delete.
	Refs() []Ref
}

// Key identifies a resource.
type Key struct{ Kind, Name string }

func (k Key) String() string { return k.Kind + "/" + k.Name }

// Compare orders objects by kind and name.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Kind, other.Kind), strings.Compare(k.Name, other.Name))
}

// Ref is a reference to another resource, with the path where it occurs.
type Ref struct {
	Key
	Path string // "spec.hosts[0].service"
	// Optional allows the target to be missing, which is then only a warning.
	Optional bool
}

// Object is one resource with the place that it was read from.
type Object struct {
	Key
	Spec Spec
	// Labels group resources for their owners; connections do not depend on them.
	// Nil: none.
	Labels map[string]string
	// Version is the version that the writer has seen; 0 if the writer gave none.
	Version uint64
	// File and Line are where the document begins; empty if it came by RPC.
	File string
	Line int
	// Lines maps paths to lines, for faults that are found later. A list of plain
	// values has one entry, for the list; see LineOf.
	Lines map[string]int
	// Origin is the format that the document was converted from; empty: Penstock's
	// own.
	Origin Origin `json:"-"`
}

// LineOf returns the line of a path, or of its nearest ancestor that has one.
func (o *Object) LineOf(path string) int {
	for path != "" {
		if line, ok := o.Lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return o.Line
}

// Fault returns a fault of this object. The path begins with "spec".
func (o *Object) Fault(path, message string, value any) Fault {
	return Fault{
		File:    o.File,
		Line:    o.LineOf(path),
		Path:    strings.TrimSpace(o.Subject() + " " + o.PathOf(path)),
		Message: message,
		Value:   Show(value),
	}
}

// PathOf converts a path of the resource to the path in the document that it was
// read from.
func (o *Object) PathOf(path string) string { return o.Origin.PathOf(path) }

// Subject returns the kind and name that the object's faults begin with, as the
// document that it was read from has them.
func (o *Object) Subject() string { return o.Origin.SubjectOf(o.String()) }

// Format returns the format of the document that it was read from, as faults
// call it.
func (o *Object) Format() string { return cmp.Or(o.Origin.Format, OwnFormat) }

// Kind describes one kind of resource to the decoder.
type Kind struct {
	Name   string // "Service"
	Plural string // "services"
	New    func() Spec
	// Secrets marks a kind that may hold secrets behind an interface, where its
	// types do not show them.
	Secrets bool
	// ReadOnly is the message that refuses an apply of a kind that only nodes
	// write; "" if users may apply it.
	ReadOnly string
	// Status marks a kind that is shown with a status beside its spec. The status
	// is computed when the object is read and ignored when it is applied.
	Status bool
}

// RoutingKinds are the kinds of this package.
func RoutingKinds() []Kind {
	return []Kind{
		{Name: "Listener", Plural: "listeners", New: func() Spec { return new(Listener) }},
		{Name: "Service", Plural: "services", New: func() Spec { return new(Service) }},
		{Name: "MeshTCPRoute", Plural: "meshtcproutes", New: func() Spec { return new(MeshTCPRoute) }},
		{Name: "MeshHTTPRoute", Plural: "meshhttproutes", New: func() Spec { return new(MeshHTTPRoute) }},
		{Name: "Certificate", Plural: "certificates", Status: true, New: func() Spec { return new(Certificate) }},
		{Name: "Host", Plural: "hosts", New: func() Spec { return new(Host) }},
		{Name: KindPermission, Plural: "trafficpermissions", New: func() Spec { return new(TrafficPermission) }},
		{Name: KindMesh, Plural: "meshes", New: func() Spec { return new(Mesh) }},
		{Name: KindProvider, Plural: "endpointproviders", New: func() Spec { return new(EndpointProvider) }},
		{Name: KindRateLimit, Plural: "ratelimits", New: func() Spec { return new(RateLimit) }},
		{Name: KindWorkload, Plural: "workloadidentities", New: func() Spec { return new(WorkloadIdentity) }},
		{Name: KindTrustBundle, Plural: "trustbundles", Status: true, New: func() Spec { return new(TrustBundle) }},
		{Name: KindTelemetry, Plural: "telemetries", New: func() Spec { return new(Telemetry) }},
	}
}

// FindKind finds a kind by its singular or plural name, ignoring case. The error
// lists the known kinds.
func FindKind(kinds []Kind, s string) (Kind, error) {
	for _, k := range kinds {
		if strings.EqualFold(s, k.Name) || strings.EqualFold(s, k.Plural) {
			return k, nil
		}
	}
	names := KindNames(kinds)
	return Kind{}, fmt.Errorf("unknown kind %s%s; known kinds are %s", quote(s), DidYouMean(s, names), strings.Join(names, ", "))
}

// KindNames lists the names of kinds.
func KindNames(kinds []Kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return names
}

// Fault is one error in a resource.
type Fault struct {
	File string
	Line int
	// Document is the number of the document in the file, from 1; 0 for JSON or if
	// not known.
	Document int
	Path     string // "Service/apps spec.endpoints[2].address"
	Message  string // what is wrong and what to do
	Value    string // the offending value, shortened; never a secret
}

// Error returns "file:line: path: message (value)".
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

// MaxFaults bounds the faults that are listed for one file or change.
const MaxFaults = 1000

// Faults are all errors found in a set of resources.
type Faults []Fault

// Error returns one fault per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Warnings report content that is allowed but probably not intended.
type Warnings []Fault

// Change puts an object in place of any with the same key, or deletes it.
type Change struct {
	Object
	Delete bool // Object gives the key only
}

// Put returns the change that puts o.
func Put(o Object) Change { return Change{Object: o} }

// Delete returns the change that deletes the object with that key.
func Delete(k Key) Change { return Change{Object: Object{Key: k}, Delete: true} }

// OwnFormat is the name in faults of documents that are not converted.
const OwnFormat = "Penstock"

// Origin describes the format of a document; empty for Penstock's own.
type Origin struct {
	Format string                   // its name in faults
	Rename func(path string) string // the document's path for a resource's; nil: they are the same
	Kinds  map[string]string        // the document's kind for a resource's, where they differ
}

// PathOf converts a path of the resource to the document's path.
func (o *Origin) PathOf(path string) string {
	if o.Rename == nil || path == "" {
		return path
	}
	return o.Rename(path)
}

// SubjectOf replaces the kind of a converted resource at the beginning of a fault
// by the document's kind.
func (o *Origin) SubjectOf(of string) string {
	end := strings.IndexAny(of, "/ ")
	if end < 0 {
		end = len(of)
	}
	if kind, ok := o.Kinds[of[:end]]; ok {
		return kind + of[end:]
	}
	return of
}
