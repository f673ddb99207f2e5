package rollout

import "time"

// Answer is one node's observation of a rollout and its new backend. Its counts
// only grow, until the node restarts.
type Answer struct {
	Mark    string        // identifies the state in force on the node
	Watched time.Duration // how long it has been in force
	Counts
	// Counting is how long the node has counted, by its own clock, which may
	// include an earlier rollout of the route.
	Counting           time.Duration
	Endpoints, Ejected int
}

// beforeBegin bounds how much earlier than the leader's record of it a rollout
// may be in force on a node, and be counted.
const beforeBegin = 10 * time.Second

// window has the counts of one rollout by node, as far back as the abort bounds
// require. A new leader starts with an empty window and ignores what came
// before.
type window struct {
	of    string             // identifies the rollout
	begin string             // Mark of the rollout's first state; "": not observed
	sum   Counts             // the total at the last update
	nodes map[string]*series // by node ID
	// begun is when this leader stored the first state of the route's rollout, if
	// there was none before, so that all counts since belong to it. Zero: it did
	// not.
	begun time.Time
}

// maxMarks bounds the marks per node.
const maxMarks = 60

// series has the counts of one node: marks at a minimum distance, which is a
// fraction of the window, and the last one.
type series struct {
	marks []mark // in order of time
	last  mark
}

// mark is a node's counts at one time.
type mark struct {
	at time.Time
	Counts
}

// add records a node's answer at one time.
func (w *window) add(node string, at time.Time, a Answer, length time.Duration) {
	if w.nodes == nil {
		w.nodes = map[string]*series{}
	}
	s, c := w.nodes[node], a.Counts
	m := mark{at, c}
	switch {
	case s == nil && w.holdsAll(at, a.Counting, length):
		w.nodes[node] = &series{marks: []mark{{at: at.Add(-a.Counting)}}, last: m}
		return
	case s == nil:
		w.nodes[node] = &series{marks: []mark{m}, last: m}
		return
	case c.Connects < s.last.Connects || c.Failed < s.last.Failed || c.Resets < s.last.Resets:
		// The node has restarted: it has counted everything since the last mark.
		s.marks = []mark{{at: s.last.at}}
	case at.Sub(s.marks[len(s.marks)-1].at) >= length/(maxMarks-2):
		s.marks = append(s.marks, m)
	}
	s.last = m
	s.trim(at.Add(-length))
}

// holdsAll reports whether everything that a node has counted during the given
// time belongs to this rollout and to the window. A node that was partitioned
// when the rollout started may not have noticed, and still count the earlier
// one; and the counts of a node that responds late may be older than the
// window.
func (w *window) holdsAll(now time.Time, counting, length time.Duration) bool {
	return !w.begun.IsZero() && counting <= min(length, now.Sub(w.begun)+beforeBegin)
}

// isOf reports whether the window belongs to an observed rollout. A rollout
// that starts or restarts gets a new window, so that earlier counts do not
// affect it.
func (w *window) isOf(look *Observation) bool {
	if w == nil || look.Route == nil || w.of != look.Route.RolloutOf() {
		return false
	}
	begin := look.begin()
	return begin == "" || w.begin == begin
}

// begin returns the Mark of the state if the rollout has just started;
// otherwise "".
func (l *Observation) begin() string {
	if l.Begun() && l.State.Begins() {
		return Mark(l.State)
	}
	return ""
}

// trim drops all marks before the last one at or before from.
func (s *series) trim(from time.Time) {
	old := 0
	for old+1 < len(s.marks) && !s.marks[old+1].at.After(from) {
		old++
	}
	s.marks = s.marks[old:]
}

// since returns the counts of the window that ends now. It forgets nodes that
// have not responded for longer than that.
func (w *window) since(now time.Time, length time.Duration) (sum Counts) {
	from := now.Add(-length)
	for node, s := range w.nodes {
		if s.last.at.Before(from) {
			delete(w.nodes, node)
			continue
		}
		s.trim(from)
		first := s.marks[0]
		sum.Connects += s.last.Connects - first.Connects
		sum.Failed += s.last.Failed - first.Failed
		sum.Resets += s.last.Resets - first.Resets
	}
	return sum
}
