package telemetry

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever is set and forgotten, a ring has the value that was set last before each slot.
func TestRingHasWhatWasSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r ring
		value := rapid.OneOf(rapid.Float64Range(-1e6, 1e18), rapid.Map(rapid.Int64Range(-100, 1<<40), func(i int64) float64 { return float64(i) }))
		slot := rapid.Uint32Range(0, 1000).Draw(t, "first")
		first := slot
		want := map[uint32]float64{slot: value.Draw(t, "v")}
		r.start(slot, want[slot])
		last := want[slot]
		oldest := slot
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "trim") {
				oldest = max(oldest, rapid.Uint32Range(oldest, slot).Draw(t, "to"))
				r.trim(oldest)
				continue
			}
			for range rapid.IntRange(0, 5).Draw(t, "gap") {
				slot++
				want[slot] = last
			}
			last = value.Draw(t, "v")
			want[slot] = last
			r.set(slot, last)
		}
		at := first
		for v, ok := range r.values(first, slot) {
			if ok != (at >= oldest) {
				t.Fatalf("slot %d: known is %v, but the oldest is %d", at, ok, oldest)
			}
			if ok && v != want[at] {
				t.Fatalf("slot %d: %v, want %v", at, v, want[at])
			}
			at++
		}
		if at != slot+1 {
			t.Fatalf("%d slots, want %d", at-first, slot+1-first)
		}
	})
}

// A value that stays takes no memory.
func TestConstantsCostNothing(t *testing.T) {
	var r ring
	r.start(0, 3)
	for slot := range uint32(1000) {
		r.set(slot, 3)
	}
	if r.size() != 0 {
		t.Fatalf("%d bytes", r.size())
	}
}
