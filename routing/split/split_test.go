package split

import (
	"fmt"
	"math/big"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func anyWeights(most int) *rapid.Generator[[]int] {
	return rapid.Custom(func(t *rapid.T) []int {
		weights := rapid.SliceOfN(rapid.IntRange(0, most), 1, 20).Draw(t, "weights")
		if sum(weights) == 0 {
			weights[0] = 1
		}
		return weights
	})
}

func sum(weights []int) int {
	n := 0
	for _, w := range weights {
		n += w
	}
	return n
}

// Rule 14 of integration/rules_test.go: each part gets its weight, and weight 0
// nothing.
func TestAnyWindowOfThePeriodIsExactAndNoPrefixIsOffByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := anyWeights(40).Draw(t, "weights")
		period := sum(weights)
		s := New(weights, 0)
		turns := make([]int, 3*period)
		counts := make([]int, len(weights))
		for n := range turns {
			turns[n] = s.Next()
			counts[turns[n]]++
			for i, w := range weights {
				// |counts - n*w/period| < 1, in whole numbers
				if off := counts[i]*period - (n+1)*w; off <= -period || off >= period {
					t.Fatalf("after %d turns part %d of %v had %d", n+1, i, weights, counts[i])
				}
			}
		}
		for from := 0; from <= len(turns)-period; from += 7 {
			for i, w := range weights {
				if had := count(turns[from:from+period], i); had != w {
					t.Fatalf("in the %d turns from %d on part %d of %v had %d", period, from, i, weights, had)
				}
			}
		}
	})
}

// The weights of a rollout are a hundred times those of its backends, and their
// products exceed an int64. Wherever such a split starts, and some turns later,
// no part deviates by a whole turn from its share.
func TestLargeWeightsAreAsExactAsSmallOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 1 << 53 / 100
		weights := rapid.SliceOfN(rapid.IntRange(most/2, most), 2, 100).Draw(t, "weights")
		s := New(weights, rapid.Float64Range(0, 0.999).Draw(t, "phase"))
		check := func(what string) {
			had := int64(0)
			for i, w := range s.weights {
				had += s.parts[i].count
				off := new(big.Int).Mul(big.NewInt(s.parts[i].count), big.NewInt(s.sum))
				off.Sub(off, new(big.Int).Mul(big.NewInt(w), big.NewInt(s.turn)))
				if off.CmpAbs(big.NewInt(s.sum)) >= 0 {
					t.Fatalf("%s: at turn %d of %d part %d of weight %d has had %d", what, s.turn, s.sum, i, w, s.parts[i].count)
				}
			}
			if had != s.turn {
				t.Fatalf("%s: at turn %d the parts have had %d", what, s.turn, had)
			}
		}
		check("at first")
		for range 200 {
			s.Next()
		}
		check("later")
	})
}

func count(turns []int, part int) int {
	n := 0
	for _, x := range turns {
		if x == part {
			n++
		}
	}
	return n
}

// No bursts: the turns of a small part are a hundred apart, and a large part
// waits for at most one turn of a small one.
func TestTurnsAreSpread(t *testing.T) {
	s := New([]int{99, 1}, 0)
	last := -1
	for n := range 1000 {
		if s.Next() == 1 {
			if last >= 0 && n-last != 100 {
				t.Errorf("turns of the part of 1 %% at %d and %d", last, n)
			}
			last = n
		}
	}
	s = New([]int{1, 1, 1, 1}, 0)
	for n := range 100 {
		if got := s.Next(); got != n%4 {
			t.Fatalf("turn %d of four equal parts went to %d", n, got)
		}
	}
}

// Goroutines that take turns concurrently share one exact sequence.
func TestConcurrentTurnsAreExact(t *testing.T) {
	weights := []int{50, 30, 15, 5, 0}
	s := New(weights, 0)
	const loops, each = 8, 5_000
	counts := make([][]int, loops)
	var done sync.WaitGroup
	for l := range loops {
		counts[l] = make([]int, len(weights))
		done.Go(func() {
			for range each {
				counts[l][s.Next()]++
			}
		})
	}
	done.Wait()
	for i, w := range weights {
		got := 0
		for l := range loops {
			got += counts[l][i]
		}
		if want := loops * each * w / 100; got != want {
			t.Errorf("part %d had %d of %d turns, want %d", i, got, loops*each, want)
		}
	}
}

// A split that starts within a period gives each part its share of the rest of
// it, and is exact afterwards.
func TestSplitMayStartAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := anyWeights(1000).Draw(t, "weights")
		s := New(weights, rapid.Float64Range(0, 0.999999).Draw(t, "phase"))
		period, rest := s.sum, s.sum-s.turn
		counts := make([]int64, len(weights))
		for range rest {
			counts[s.Next()]++
		}
		for i, w := range s.weights {
			if off := counts[i]*period - rest*w; off <= -period || off >= period {
				t.Fatalf("the last %d turns of %d gave part %d of %v %d", rest, period, i, weights, counts[i])
			}
		}
		clear(counts)
		for range period {
			counts[s.Next()]++
		}
		if !slices.Equal(counts, s.weights) {
			t.Fatalf("the next period gave %v, want %v", counts, s.weights)
		}
	})
}

func TestSplitContinuesWhereTheOldOneWas(t *testing.T) {
	old := New([]int{99, 1}, 0)
	for range 60 {
		old.Next()
	}
	next := New([]int{95, 5}, old.Phase())
	if got := next.Phase(); got != 0.6 {
		t.Errorf("phase %v, want 0.6", got)
	}
}

// A small part gets its share even if the weights change all the time.
func TestFrequentChangesDoNotStarveASmallPart(t *testing.T) {
	small, phase := 0, 0.0
	const turns = 10_000
	for n := range turns {
		s := New([]int{90, 10 + n%2}, phase)
		small += s.Next()
		phase = s.Phase()
	}
	if small < turns/10-turns/50 || small > turns/10+turns/50 {
		t.Errorf("the part of 10 %% had %d of %d turns", small, turns)
	}
}

func TestPeekReturnsNextTurn(t *testing.T) {
	s := New([]int{3, 2, 1}, 0)
	for range 20 {
		want := s.Peek()
		if got := s.Next(); got != want {
			t.Fatalf("Next gave %d after Peek gave %d", got, want)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, n := range []int{2, 16} {
		weights := make([]int, n)
		for i := range weights {
			weights[i] = 1 + i*62_499
		}
		s := New(weights, 0)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Next()
			}
		})
		b.Run(fmt.Sprintf("%d/parallel", n), func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					s.Next()
				}
			})
		})
	}
}
