package rollout

import "time"

// Answer is what one node says of a rollout's new backend. Its counts only
// grow, until the node begins anew.
type Answer struct {
	Mark    string        // of the state that is in force there
	Watched time.Duration // for how long it is
	Counts
	// Counting is for how long it has counted, by its own clock; what it had
	// counted in a rollout of the route before may be part of that.
	Counting           time.Duration
	Endpoints, Ejected int
}

// beforeBegin is how much earlier than the leader has noted it a rollout may
// act, and be counted.
const beforeBegin = 10 * time.Second

// window keeps what nodes have said of one rollout, as far back as its bounds
// look. The leader that it belongs to begins with nothing: what came before it
// is not judged.
type window struct {
	of    string             // of the rollout that it is about
	begin string             // Mark of the state that it began with; "": not seen
	sum   Counts             // what was in it when it was last added to
	nodes map[string]*series // by ID
	// begun is when this leader noted the first state of the route's rollout,
	// where there was none: what was counted since is of it. Zero: it did not.
	begun time.Time
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
		// It has begun anew: all that it has counted, it has counted since.
		s.marks = []mark{{at: s.last.at}}
	case at.Sub(s.marks[len(s.marks)-1].at) >= length/(maxMarks-2):
		s.marks = append(s.marks, m)
	}
	s.last = m
	s.trim(at.Add(-length))
}

// holdsAll tells whether all that a node has counted in some time up to now is
// of this rollout, and within the window. A node that was away when the rollout
// began may not know of that, and go on with what it counted before; and one
// that is heard late has counted what is past.
func (w *window) holdsAll(now time.Time, counting, length time.Duration) bool {
	return !w.begun.IsZero() && counting <= min(length, now.Sub(w.begun)+beforeBegin)
}

// isOf tells whether this is the window of what a look has. What was before a
// rollout began, or began anew, is not held against it: it gets another one.
func (w *window) isOf(look *Observation) bool {
	if w == nil || look.Route == nil || w.of != look.Route.RolloutOf() {
		return false
	}
	begin := look.begin()
	return begin == "" || w.begin == begin
}

// begin is the Mark of the state where the rollout has only begun; otherwise "".
func (l *Observation) begin() string {
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
