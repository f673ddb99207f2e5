package multitenant

import (
	"fmt"
	"strings"

	"penstock/kafka/filter"
)

// maxString bounds the strings of the protocol.
const maxString = 1<<15 - 1

// prefixed puts the prefix before a name. If the result were too long for a
// string of the protocol, it is cut: no topic has a name of that length, and
// its length must not wrap into that of another name.
func (t *tenant) prefixed(name string) string {
	return t.prefix + name[:min(len(name), maxString-len(t.prefix))]
}

// prefixedTopic returns the name of a topic with the prefix, see prefixTopic.
func (t *tenant) prefixedTopic(name string) string {
	if t.isIllegalTopic(name) {
		return name
	}
	return t.prefixed(name)
}

// isIllegalTopic reports whether no broker accepts a name for a topic.
func (t *tenant) isIllegalTopic(name string) bool { return name == "" || name == "." || name == ".." }

// prefixTopic puts the prefix before the name of a topic. Names that no broker
// accepts ("", ".", "..") stay as they are: with a prefix they would become
// good ones.
func (t *tenant) prefixTopic(name *string) { *name = t.prefixedTopic(*name) }

// prefixID does the same for groups and transactional ids. Brokers refuse the
// empty one only; "." without the prefix would be shared by all tenants.
func (t *tenant) prefixID(name *string) {
	if *name != "" {
		*name = t.prefixed(*name)
	}
}

// prefixOffsetsGroup does the same for group ids of committed offsets, where
// brokers accept the empty one, which tenants must not share.
func (t *tenant) prefixOffsetsGroup(group *string) { *group = t.prefixed(*group) }

// mapOptional applies prefixTopic or prefixID to a name that may be null.
func mapOptional(name *string, in func(*string)) *string {
	if name == nil {
		return nil
	}
	s := *name // others may look at what it was
	in(&s)
	return &s
}

// prefixAll applies one of these to all names of a list.
func prefixAll(names []string, in func(*string)) {
	for i := range names {
		in(&names[i])
	}
}

// prefixEach applies prefixTopic to the names of n topics.
func (t *tenant) prefixEach(n int, name func(i int) *string) {
	for i := range n {
		t.prefixTopic(name(i))
	}
}

// tryUnprefix removes the prefix from a name in a list; false: it is another
// tenant's.
func (t *tenant) tryUnprefix(name *string) bool {
	s, ok := strings.CutPrefix(*name, t.prefix)
	if ok {
		*name = s
	}
	return ok
}

// unprefix removes the prefix from a name that repeats one of the request.
// Without the prefix it is an error.
func (t *tenant) unprefix(name *string) error {
	if t.tryUnprefix(name) {
		return nil
	}
	if t.isIllegalTopic(*name) {
		return nil // see prefixTopic
	}
	return fmt.Errorf("%w: the broker's answer has a name without the tenant's prefix", filter.ErrDenied)
}

// unprefixEach applies unprefix to the names of n topics.
func (t *tenant) unprefixEach(n int, name func(i int) *string) error {
	for i := range n {
		if err := t.unprefix(name(i)); err != nil {
			return err
		}
	}
	return nil
}

// unprefixMessage removes the prefix from names in a text for people, where it stands
// at the beginning of a word. Ordinary words may begin with a prefix that does
// not end with a separator; then only names in quotes or brackets, or behind
// "=", count as names.
func (t *tenant) unprefixMessage(text *string) {
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
		if isNameByte(after) && (strings.IndexByte("'\"`=[({<", before) >= 0 || plain && !isNameByte(before)) {
			out.WriteString(s[from:i])
			from = at
		} else {
			at = i + 1
		}
	}
	*text = out.String()
}

// isNameByte reports whether a byte may be part of the name of a topic.
func isNameByte(b byte) bool { return strings.IndexByte(legal, b) >= 0 }

const userPrefix = "User:"

// prefixPrincipal puts the prefix before the name of a principal, if principals are
// prefixed. The wildcard stays.
func (t *tenant) prefixPrincipal(p *string) {
	if name, ok := strings.CutPrefix(*p, userPrefix); ok && t.principals && name != "*" && name != "" {
		*p = userPrefix + t.prefixed(name[:min(len(name), maxString-len(t.prefix)-len(userPrefix))])
	}
}

func (t *tenant) unprefixPrincipal(p *string) {
	if name, ok := strings.CutPrefix(*p, userPrefix); ok && t.principals {
		*p = userPrefix + strings.TrimPrefix(name, t.prefix)
	}
}

// retain filters a list in place.
func retain[T any](list []T, ok func(*T) bool) []T {
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

// forEach calls do with the elements until one fails.
func forEach[T any](list []T, do func(*T) error) error {
	for i := range list {
		if err := do(&list[i]); err != nil {
			return err
		}
	}
	return nil
}
