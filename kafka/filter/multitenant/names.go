package multitenant

import (
	"fmt"
	"strings"

	"penstock/kafka/filter"
)

// maxString is how long a string of the protocol may be.
const maxString = 1<<15 - 1

// prefixed puts the prefix before a name. One that no string of the protocol
// can hold with it is cut: nothing of such a length is named after topics, and
// its length must not turn into one that says something else.
func (t *tenant) prefixed(name string) string {
	return t.prefix + name[:min(len(name), maxString-len(t.prefix))]
}

// topicIn is in, as a value.
func (t *tenant) topicIn(name string) string {
	if t.impossible(name) {
		return name
	}
	return t.prefixed(name)
}

// impossible tells of the names that no broker takes for a topic.
func (t *tenant) impossible(name string) bool { return name == "" || name == "." || name == ".." }

// in gives the name of a topic its prefix. Names that no broker takes ("", ".",
// "..") are left as they are, because with a prefix they would become good ones.
func (t *tenant) in(name *string) { *name = t.topicIn(*name) }

// inID is in for groups and transactional ids, for which only the empty one is
// not taken: "." would be everybody's.
func (t *tenant) inID(name *string) {
	if *name != "" {
		*name = t.prefixed(*name)
	}
}

// inOffsets is in for group ids of committed offsets, where the broker takes
// the empty one; it must not be everybody's.
func (t *tenant) inOffsets(group *string) { *group = t.prefixed(*group) }

// optional does what in or inID do, where there is a name.
func optional(name *string, in func(*string)) *string {
	if name == nil {
		return nil
	}
	s := *name // others may look at what it was
	in(&s)
	return &s
}

// inAll does what in, inID or inOffsets do with all names of a list.
func inAll(names []string, in func(*string)) {
	for i := range names {
		in(&names[i])
	}
}

// inEach does in with the names of n topics.
func (t *tenant) inEach(n int, name func(i int) *string) {
	for i := range n {
		t.in(name(i))
	}
}

// mine takes the prefix off a name of a list; false: it is somebody else's.
func (t *tenant) mine(name *string) bool {
	s, ok := strings.CutPrefix(*name, t.prefix)
	if ok {
		*name = s
	}
	return ok
}

// out takes the prefix off a name that repeats what was asked for.
func (t *tenant) out(name *string) error {
	if t.mine(name) {
		return nil
	}
	if t.impossible(*name) {
		return nil // see in
	}
	return fmt.Errorf("%w: the broker's answer has a name without the tenant's prefix", filter.ErrDenied)
}

// outEach does out with the names of n topics.
func (t *tenant) outEach(n int, name func(i int) *string) error {
	for i := range n {
		if err := t.out(name(i)); err != nil {
			return err
		}
	}
	return nil
}

// message takes the prefix off the names in what a broker says to people: where
// it stands at the beginning of a word. Of a prefix that does not end with a
// separator, which ordinary words may begin with, only names in quotes or
// brackets, or behind "=", are taken for names.
func (t *tenant) message(text *string) {
	if text == nil || !strings.Contains(*text, t.prefix) {
		return
	}
	var out strings.Builder
	s := *text
	end := t.prefix[len(t.prefix)-1]
	plain := end == '-' || end == '.' || end == '_'
	for from, at := 0, 0; ; {
		i := strings.Index(s[at:], t.prefix)
		if i < 0 {
			out.WriteString(s[from:])
			break
		}
		i += at
		at = i + len(t.prefix)
		before, after := byte(' '), byte(' ')
		if i > 0 {
			before = s[i-1]
		}
		if at < len(s) {
			after = s[at]
		}
		if inName(after) && (strings.IndexByte("'\"`=[({<", before) >= 0 || plain && !inName(before)) {
			out.WriteString(s[from:i])
			from = at
		} else {
			at = i + 1
		}
	}
	*text = out.String()
}

// inName tells whether a byte may be part of a topic's name.
func inName(b byte) bool { return strings.IndexByte(legal, b) >= 0 }

const user = "User:"

// principal gives the name of a principal its prefix, where that is wanted.
// The wildcard stays one.
func (t *tenant) principal(p *string) {
	if name, ok := strings.CutPrefix(*p, user); ok && t.principals && name != "*" && name != "" {
		*p = user + t.prefixed(name[:min(len(name), maxString-len(t.prefix)-len(user))])
	}
}

func (t *tenant) principalOut(p *string) {
	if name, ok := strings.CutPrefix(*p, user); ok && t.principals {
		*p = user + strings.TrimPrefix(name, t.prefix)
	}
}

// keep gives the elements that ok is true of, in place.
func keep[T any](list []T, ok func(*T) bool) []T {
	n := 0
	for i := range list {
		if ok(&list[i]) {
			list[n] = list[i]
			n++
		}
	}
	clear(list[n:])
	return list[:n]
}

// each calls do with the elements until one fails.
func each[T any](list []T, do func(*T) error) error {
	for i := range list {
		if err := do(&list[i]); err != nil {
			return err
		}
	}
	return nil
}
