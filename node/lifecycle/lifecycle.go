// Package lifecycle holds the phase of a node's life, for who changes it and who
// tells of it.
package lifecycle

import "sync/atomic"

// State is the phase of a node's life. It only goes forward, but for a drain
// that is undone. The zero value is Starting.
type State struct{ v atomic.Int32 }

// The phases.
const (
	Starting int32 = iota
	Serving
	Draining // not ready; still accepting for a while
	Drained  // no connection is left, nor will there be
	Stopping
)

// Phases are their names, in the order of their numbers.
var Phases = [...]string{"starting", "serving", "draining", "drained", "stopping"}

// Advance goes to a phase, unless the node is there or beyond.
func (s *State) Advance(to int32) bool {
	for {
		at := s.v.Load()
		if at >= to {
			return false
		}
		if s.v.CompareAndSwap(at, to) {
			return true
		}
	}
}

// Resume goes back to Serving, unless the node is stopping.
func (s *State) Resume() bool {
	return s.v.CompareAndSwap(Draining, Serving) || s.v.CompareAndSwap(Drained, Serving)
}

func (s *State) String() string { return Phases[s.v.Load()] }

// NotReady says why the node should get no traffic; "": it should.
func (s *State) NotReady() string {
	if s.v.Load() == Serving {
		return ""
	}
	return s.String()
}
