package resource

import "slices"

// HostName is one name of one rule.
type HostName struct {
	Rule *HostRule
	Name string
}

// same reports whether both send a ClientHello to the same service.
func (a HostName) same(b HostName) bool {
	return a.Name == b.Name && (a.Rule == b.Rule || a.Rule.Service == b.Rule.Service && slices.Equal(a.Rule.ALPN, b.Rule.ALPN))
}

// hostCursor iterates over all names of all rules.
type hostCursor struct {
	rules      []HostRule
	rule, name int
}

func (c *hostCursor) next() (HostName, bool) {
	for c.rule < len(c.rules) {
		if r := &c.rules[c.rule]; c.name < len(r.Names) {
			c.name++
			return HostName{r, r.Names[c.name-1]}, true
		}
		c.rule, c.name = c.rule+1, 0
	}
	return HostName{}, false
}

// ahead appends the next entries to into, up to most in all, and does not move c.
func (c hostCursor) ahead(into []HostName, most int) []HostName {
	for len(into) < most {
		x, ok := c.next()
		if !ok {
			break
		}
		into = append(into, x)
	}
	return into
}

// lookAhead is the number of entries within which two lists must agree again for
// a difference to count as an insertion, deletion or change.
const lookAhead = 32

// DiffHosts returns the entries of the old rules that the new ones lack, and the
// entries that they add. A listener's lists are long and nearly always the same
// except for a few entries, so they are compared side by side; only after a
// longer difference are entries looked up by name.
func DiffHosts(old, rules []HostRule) (removed, added []HostName) {
	if len(old) == len(rules) && (len(old) == 0 || &old[0] == &rules[0]) {
		return nil, nil
	}
	a, b := hostCursor{rules: old}, hostCursor{rules: rules}
	var aheadA, aheadB []HostName
	for {
		startA, startB := a, b
		x, more := a.next()
		y, moreToo := b.next()
		if more && moreToo && x.same(y) {
			continue
		}
		if !more && !moreToo {
			return removed, added
		}
		a, b = startA, startB
		aheadA, aheadB = a.ahead(aheadA[:0], lookAhead), b.ahead(aheadB[:0], lookAhead)
		i, j, ok := resync(aheadA, aheadB)
		if !ok {
			return diffByName(a, b, removed, added)
		}
		removed, added = append(removed, aheadA[:i]...), append(added, aheadB[:j]...)
		for range i {
			a.next()
		}
		for range j {
			b.next()
		}
	}
}

// resync returns how many entries to skip in each list, as few as possible, so
// that the lists continue alike.
func resync(a, b []HostName) (i, j int, ok bool) {
	for sum := 1; sum < len(a)+len(b); sum++ {
		for i := max(0, sum-len(b)+1); i <= sum && i < len(a); i++ {
			if a[i].same(b[sum-i]) {
				return i, sum - i, true
			}
		}
	}
	if len(a) < lookAhead && len(b) < lookAhead {
		return len(a), len(b), true // both lists end here
	}
	return 0, 0, false
}

// diffByName compares the rest of two lists, in any order.
func diffByName(a, b hostCursor, removed, added []HostName) ([]HostName, []HostName) {
	left := map[string][]HostName{}
	for x, ok := a.next(); ok; x, ok = a.next() {
		left[x.Name] = append(left[x.Name], x)
	}
	for y, ok := b.next(); ok; y, ok = b.next() {
		if i := slices.IndexFunc(left[y.Name], y.same); i >= 0 {
			left[y.Name] = slices.Delete(left[y.Name], i, i+1)
		} else {
			added = append(added, y)
		}
	}
	for _, entries := range left {
		removed = append(removed, entries...)
	}
	return removed, added
}
