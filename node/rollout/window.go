package rollout

import "time"

// NodeObservation is one node's observation of a rollout and its new backend.
// Its counts only grow, until the node restarts.
type NodeObservation struct {
	StateDigest string        // identifies the state in force on the node
	Watched     time.Duration // how long it has been in force
	Counts
	// Counting is how long the node has counted, by its own clock, which may
	// include an earlier rollout of the route.
	Counting           time.Duration
	Endpoints, Ejected int
}

// maxEarlyStart bounds how much earlier than the leader's record of it a
// rollout may be in force on a node, and be counted.
const maxEarlyStart = 10 * time.Second

// window has the counts of one rollout by node, as far back as the abort bounds
// require. A new leader starts with an empty window and ignores what came
// before.
type window struct {
	rolloutID  string             // identifies the rollout
	firstState string             // StateDigest of the rollout's first state; "": not observed
	sum        Counts             // the total at the last update
	nodes      map[string]*series // by node ID
	// storedAt is when this leader stored the first state of the route's
	// rollout, if there was none before, so that all counts since belong to it.
	// Zero: it did not.
	storedAt time.Time
}

// maxSamples bounds the samples per node.
const maxSamples = 60

// series has the counts of one node: samples at a minimum distance, which is a
// fraction of the window, and the last one.
type series struct {
	samples []sample // in order of time
	last    sample
}

// sample is a node's counts at one time.
type sample struct {
	at time.Time
	Counts
}

// add records a node's answer at one time.
func (w *window) add(node string, at time.Time, a NodeObservation, length time.Duration) {
	if w.nodes == nil {
		w.nodes = map[string]*series{}
	}
	s, c := w.nodes[node], a.Counts
	m := sample{at, c}
	switch {
	case s == nil && w.countsAll(at, a.Counting, length):
		w.nodes[node] = &series{samples: []sample{{at: at.Add(-a.Counting)}}, last: m}
		return
	case s == nil:
		w.nodes[node] = &series{samples: []sample{m}, last: m}
		return
	case c.Connects < s.last.Connects || c.Failed < s.last.Failed || c.Resets < s.last.Resets:
		// The node has restarted: it has counted everything since the last sample.
		s.samples = []sample{{at: s.last.at}}
	case at.Sub(s.samples[len(s.samples)-1].at) >= length/(maxSamples-2):
		s.samples = append(s.samples, m)
	}
	s.last = m
	s.trim(at.Add(-length))
}

// countsAll reports whether everything that a node has counted during the given
// time belongs to this rollout and to the window. A node that was partitioned
// when the rollout started may not have noticed, and still count the earlier
// one; and the counts of a node that responds late may be older than the
// window.
func (w *window) countsAll(now time.Time, counting, length time.Duration) bool {
	return !w.storedAt.IsZero() && counting <= min(length, now.Sub(w.storedAt)+maxEarlyStart)
}

// belongsTo reports whether the window belongs to an observed rollout. A
// rollout that starts or restarts gets a new window, so that earlier counts do
// not affect it.
func (w *window) belongsTo(obs *Observation) bool {
	if w == nil || obs.Route == nil || w.rolloutID != obs.Route.RolloutID() {
		return false
	}
	begin := obs.firstState()
	return begin == "" || w.firstState == begin
}

// firstState returns the StateDigest of the state if the rollout has just
// started; otherwise "".
func (l *Observation) firstState() string {
	if l.Started() && l.State.Begins() {
		return StateDigest(l.State)
	}
	return ""
}

// trim drops all samples before the last one at or before from.
func (s *series) trim(from time.Time) {
	old := 0
	for old+1 < len(s.samples) && !s.samples[old+1].at.After(from) {
		old++
	}
	s.samples = s.samples[old:]
}

// total returns the counts of the window that ends now. It forgets nodes that
// have not responded for longer than that.
func (w *window) total(now time.Time, length time.Duration) (sum Counts) {
	from := now.Add(-length)
	for node, s := range w.nodes {
		if s.last.at.Before(from) {
			delete(w.nodes, node)
			continue
		}
		s.trim(from)
		first := s.samples[0]
		sum.Connects += s.last.Connects - first.Connects
		sum.Failed += s.last.Failed - first.Failed
		sum.Resets += s.last.Resets - first.Resets
	}
	return sum
}
