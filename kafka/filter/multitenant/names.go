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

// message takes the prefix out of what a broker says to people.
func (t *tenant) message(text *string) {
	if text != nil {
		*text = strings.ReplaceAll(*text, t.prefix, "")
	}
}

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
