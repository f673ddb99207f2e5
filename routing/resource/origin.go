package resource

import "strings"

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
