// Package lifecycle holds the lifecycle phase of a node, for the code that changes
// it and the code that reports it.
package lifecycle

import "sync/atomic"

// State is the lifecycle phase of a node. It only advances, except when a drain is
// undone. The zero value is Starting. Its methods are safe for concurrent use.
type State struct{ v atomic.Int32 }

// The phases.
const (
	Starting int32 = iota
	Serving
	Draining // not ready; still accepting for a while
	Drained  // no connections left, and none accepted
	Stopping
)

// Phases holds the names of the phases, indexed by phase.
var Phases = [...]string{"starting", "serving", "draining", "drained", "stopping"}

// Advance moves to a phase and returns true, unless the node is in that phase or a
// later one.
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

// Resume moves from Draining or Drained back to Serving and returns true.
// Otherwise it returns false.
func (s *State) Resume() bool {
	return s.v.CompareAndSwap(Draining, Serving) || s.v.CompareAndSwap(Drained, Serving)
}

func (s *State) String() string { return Phases[s.v.Load()] }

// Leaving reports whether the node drains, has drained or stops.
func (s *State) Leaving() bool { return s.v.Load() >= Draining }

// NotReady returns why the node should get no traffic; "": it should.
func (s *State) NotReady() string {
	if s.v.Load() == Serving {
		return ""
	}
	return s.String()
}
