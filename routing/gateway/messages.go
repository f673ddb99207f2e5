package gateway

import (
	"fmt"
	"strings"
)

// Messages contain texts of users, which may be long; these bounds keep each
// message below a kilobyte.
const (
	maxNamed = 5   // names that a message lists
	maxList  = 500 // bytes of these names; the first one is always listed
	maxText  = 253 // bytes of one text
)

// nameList collects distinct names for a message and keeps the first ones.
type nameList struct {
	first []string
	all   map[string]struct{}
}

func (n *nameList) add(name string) {
	if _, ok := n.all[name]; ok {
		return
	}
	if n.all == nil {
		n.all = map[string]struct{}{}
	}
	n.all[name] = struct{}{}
	if len(n.first) < maxNamed {
		n.first = append(n.first, name)
	}
}

// String lists the names as joinNames does.
func (n *nameList) String() string { return joinFirst(n.first, len(n.all)) }

// joinNames lists names, or the first of many.
func joinNames(names []string) string { return joinFirst(names, len(names)) }

// joinFirst lists the first of n names.
func joinFirst(first []string, n int) string {
	var b strings.Builder
	for i, name := range first[:min(len(first), maxNamed)] {
		name = truncate(name)
		if i > 0 && b.Len()+len(name) > maxList {
			first = first[:i]
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name)
	}
	if more := n - min(len(first), maxNamed); more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// truncate truncates a text that has no other bound.
func truncate(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "..."
}
