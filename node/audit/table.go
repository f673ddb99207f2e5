package audit

import (
	"cmp"
	"net"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
)

const (
	// maxGroups bounds the rules, or the tokens, that a table has lines of, and
	// maxLines the lines of each. A line takes up to about 2 KiB, mostly some 300
	// bytes.
	maxGroups = 200
	maxLines  = 24
	// staleAfter is how long a line must not have changed to make room for another
	// one of its group: a flood of sources otherwise replaces those of each moment.
	staleAfter = time.Minute
	// maxText bounds each text of an entry, in bytes.
	maxText = 512
)

// table counts events by group and line in bounded memory. A group has maxLines
// lines and one for all others; a table has maxGroups groups, of which the one
// that changed last longest ago makes room.
type table struct {
	groups  map[string]*group
	evicted uint64 // lines that made room for others
}

// group is the lines of one rule, or of one token.
type group struct {
	lines  map[line]*kept
	others *kept // events of lines for which there was no room; nil: none
	last   uint64
}

// line is what the events of a line have in common.
type line struct{ who, from, act, what, outcome string }

// kept is a line with its position.
type kept struct {
	entry    api.AuditEntry
	position uint64
}

func newTable() table { return table{groups: map[string]*group{}} }

// add counts an event of a group. Positions increase.
func (t *table) add(of string, l line, e *api.AuditEntry, position uint64) {
	g := t.groups[of]
	if g == nil {
		g = t.newGroup(of)
	}
	g.last = position
	k := g.lines[l]
	if k == nil && len(g.lines) >= maxLines {
		if t.makeRoom(g, e.At); len(g.lines) >= maxLines {
			g.addOther(e, position)
			return
		}
	}
	if k == nil {
		first := *e
		g.lines[l] = &kept{first, position}
		return
	}
	k.count(e, position)
}

// count counts another event of the line.
func (k *kept) count(e *api.AuditEntry, position uint64) {
	if k.entry.First.IsZero() {
		k.entry.First = k.entry.At
	}
	// The path of a request does not make a line, or a client could fill the table.
	k.entry.At, k.entry.Error, k.entry.Request, k.position = e.At, e.Error, e.Request, position
	k.entry.Count++
}

// addOther counts an event in the line for those without one of their own.
func (g *group) addOther(e *api.AuditEntry, position uint64) {
	if g.others == nil {
		first := *e
		first.Who, first.From, first.Via, first.What, first.Request, first.Error = "", "", "", "other sources or destinations", "", ""
		g.others = &kept{first, position}
		return
	}
	g.others.count(e, position)
	g.others.entry.Request, g.others.entry.Error = "", ""
}

// newGroup adds a group, in place of the one that changed last longest ago if there
// are too many.
func (t *table) newGroup(of string) *group {
	if len(t.groups) >= maxGroups {
		oldest, at := "", uint64(0)
		for name, g := range t.groups {
			if at == 0 || g.last < at {
				oldest, at = name, g.last
			}
		}
		t.evicted += uint64(t.groups[oldest].size())
		delete(t.groups, oldest)
	}
	g := &group{lines: map[line]*kept{}}
	t.groups[of] = g
	return g
}

// makeRoom removes the group's line that changed last longest ago, if it is stale.
func (t *table) makeRoom(g *group, now time.Time) {
	var oldest line
	at := uint64(0)
	for l, k := range g.lines {
		if at == 0 || k.position < at {
			oldest, at = l, k.position
		}
	}
	if now.Sub(g.lines[oldest].entry.At) >= staleAfter {
		delete(g.lines, oldest)
		t.evicted++
	}
}

func (g *group) size() int {
	if g.others != nil {
		return len(g.lines) + 1
	}
	return len(g.lines)
}

// size returns the number of lines.
func (t *table) size() (n int) {
	for _, g := range t.groups {
		n += g.size()
	}
	return n
}

// expire removes the lines that have not changed since oldest.
func (t *table) expire(oldest time.Time) {
	for name, g := range t.groups {
		for l, k := range g.lines {
			if k.entry.At.Before(oldest) {
				delete(g.lines, l)
			}
		}
		if g.others != nil && g.others.entry.At.Before(oldest) {
			g.others = nil
		}
		if g.size() == 0 {
			delete(t.groups, name)
		}
	}
}

// changed appends the lines that have changed after a position.
func (t *table) changed(to []api.AuditEntry, after uint64) []api.AuditEntry {
	for _, g := range t.groups {
		for _, k := range g.lines {
			if k.position > after {
				to = append(to, k.entry)
			}
		}
		if g.others != nil && g.others.position > after {
			to = append(to, g.others.entry)
		}
	}
	return to
}

// Sort orders entries by time, and those of one time in a fixed order.
func Sort(entries []api.AuditEntry) {
	slices.SortStableFunc(entries, func(a, b api.AuditEntry) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Node, b.Node), strings.Compare(a.Act, b.Act), strings.Compare(a.What, b.What))
	})
}

// hostOf returns the address without its port, if it has one.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// cut returns at most maxText bytes of a text, whole characters.
func cut(s string) string { return cutTo(s, maxText) }

// cutTo is cut for another number of bytes.
func cutTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(strings.Clone(s[:most]), "")
}
