package node

import "sync/atomic"

// state is the phase of a node's life. It only goes forward, but for a drain
// that is undone.
type state struct{ v atomic.Int32 }

// The phases.
const (
	starting int32 = iota
	serving
	draining // not ready; still accepting for a while
	drained  // no connection is left, nor will there be
	stopping
)

var phases = [...]string{"starting", "serving", "draining", "drained", "stopping"}

// advance goes to a phase, unless the node is there or beyond.
func (s *state) advance(to int32) bool {
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

// resume goes back to serving, unless the node is stopping.
func (s *state) resume() bool {
	return s.v.CompareAndSwap(draining, serving) || s.v.CompareAndSwap(drained, serving)
}

func (s *state) String() string { return phases[s.v.Load()] }

// notReady says why the node should get no traffic; "": it should.
func (s *state) notReady() string {
	if s.v.Load() == serving {
		return ""
	}
	return s.String()
}
