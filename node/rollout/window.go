package rollout

import "time"

// Answer is what one node says of a rollout's new backend. Its counts only
// grow, until the node begins anew.
type Answer struct {
	Mark    string        // of the state that is in force there
	Watched time.Duration // for how long it is
	Counts
	Endpoints, Ejected int
}

// window keeps what nodes have said of one rollout, as far back as its bounds
// look. The leader that it belongs to begins with nothing: what came before it
// is not judged.
type window struct {
	of    string // of the rollout that it is about
	begin string // Mark of the state that it began with; "": not seen
	sum   Counts // what was in it when it was last added to
	whole bool   // all that a node has ever counted is of this rollout
	nodes map[string]*series
}

// maxMarks bounds what is kept of one node.
const maxMarks = 60

// series is what one node has said: marks not closer to one another than a
// part of the window, and the last one.
type series struct {
	marks []mark // in order of time
	last  mark
}

// mark is what a node said at a time.
type mark struct {
	at time.Time
	Counts
}

// add takes in what a node said at a time.
func (w *window) add(node string, at time.Time, c Counts, length time.Duration) {
	if w.nodes == nil {
		w.nodes = map[string]*series{}
	}
	s := w.nodes[node]
	m := mark{at, c}
	switch {
	case s == nil && w.whole:
		w.nodes[node] = &series{marks: []mark{{at: at}}, last: m}
		return
	case s == nil:
		w.nodes[node] = &series{marks: []mark{m}, last: m}
		return
	case c.Connects < s.last.Connects || c.Failed < s.last.Failed || c.Resets < s.last.Resets:
		// It has begun anew: all that it has counted, it has counted since.
		s.marks = []mark{{at: s.last.at}}
	case at.Sub(s.marks[len(s.marks)-1].at) >= length/(maxMarks-2):
		s.marks = append(s.marks, m)
	}
	s.last = m
	s.trim(at.Add(-length))
}

// isOf tells whether this is the window of what a look has. What was before a
// rollout began, or began anew, is not held against it: it gets another one.
func (w *window) isOf(look *Look) bool {
	if w == nil || look.Route == nil || w.of != look.Route.RolloutOf() {
		return false
	}
	begin := look.begin()
	return begin == "" || w.begin == begin
}

// begin is the Mark of the state where the rollout has only begun; otherwise "".
func (l *Look) begin() string {
	if l.Begun() && l.State.Begins() {
		return Mark(l.State)
	}
	return ""
}

// trim forgets what lies before the last mark at or before a time.
func (s *series) trim(from time.Time) {
	old := 0
	for old+1 < len(s.marks) && !s.marks[old+1].at.After(from) {
		old++
	}
	s.marks = s.marks[old:]
}

// since gives what was counted in the window's length up to now. A node that
// has said nothing for longer than that is forgotten.
func (w *window) since(now time.Time, length time.Duration) (sum Counts) {
	from := now.Add(-length)
	for node, s := range w.nodes {
		if s.last.at.Before(from) {
			delete(w.nodes, node)
			w.whole = false // it may come back with what was long ago
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
