// Package split divides turns (connections or requests) by weight. In any run
// of turns as long as the sum of the weights each part gets exactly its weight,
// and after n turns no part deviates by a whole turn from its share of n. A
// part of 1 % gets one turn in each hundred, not a burst at the end.
//
// A part with share p is scheduled like a periodic task with utilisation p: its
// k-th turn, counted from 0, is in [k/p, (k+1)/p). The shares add up to 1, so
// taking the turn with the earliest deadline, of those whose window is open,
// misses no window (Tijdeman 1980, "The chairman assignment problem"; the
// windows are those of Baruah et al. 1996, "Proportionate progress").
package split

import (
	"math/bits"
	"sync"
)

// Split divides turns among parts 0 to n-1. It is safe for concurrent use: the
// order is that of all callers together.
type Split struct {
	weights []int64 // in lowest terms; immutable
	sum     int64   // sum of weights: the period, after which the sequence repeats

	mu    sync.Mutex
	turn  int64 // turns taken in this period, below sum
	parts []part
}

// part is the state of a part's next turn.
type part struct {
	count int64 // turns taken in this period, up to the weight
	from  int64 // start of the next turn's window
	until int64 // end of the window, exclusive
}

// New returns a split by weights of at least 0. Their sum in lowest terms must
// be above 0 and below 2^53, up to which phases are exact. phase, in [0, 1), is
// the initial position in the period. A split with changed weights continues at
// the Phase of the old one, so that frequent changes do not starve small parts.
// A split that starts within a period is exact from the end of that period on.
func New(weights []int, phase float64) *Split {
	s := &Split{weights: make([]int64, len(weights)), parts: make([]part, len(weights))}
	var divisor int64
	for _, w := range weights {
		divisor = gcd(int64(w), divisor)
	}
	for i, w := range weights {
		s.weights[i] = int64(w) / divisor
		s.sum += s.weights[i]
	}
	s.begin(min(int64(phase*float64(s.sum)), s.sum-1))
	return s
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// begin sets the state after that many turns. Turns whose window has ended
// count as taken; the remaining ones are taken from open windows, the most
// urgent first.
func (s *Split) begin(turn int64) {
	left := turn
	for i, w := range s.weights {
		s.parts[i].count = ratio(w, turn, 0, s.sum)
		left -= s.parts[i].count
		s.plan(i)
	}
	s.turn = turn - 1 // the last turn taken
	for ; left > 0; left-- {
		s.advance(s.choose())
	}
	s.turn = turn
}

// plan computes the window of part i's next turn.
func (s *Split) plan(i int) {
	p, w := &s.parts[i], s.weights[i]
	if w == 0 {
		p.from, p.until = never, never
		return
	}
	p.from = ratio(p.count, s.sum, 0, w)
	p.until = ratio(p.count+1, s.sum, w-1, w)
}

// ratio returns (a*b + c) / d of non-negative numbers, where the product may
// exceed an int64.
func ratio(a, b, c, d int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	low, carry := bits.Add64(low, uint64(c), 0)
	if high += carry; high == 0 { // the usual, faster case
		return int64(low / uint64(d))
	}
	q, _ := bits.Div64(high, low, uint64(d))
	return int64(q)
}

// never is later than every period.
const never = 1 << 62

// choose returns the part with the earliest deadline of those whose window is
// open.
func (s *Split) choose() int {
	best, until := 0, int64(never)
	for i := range s.parts {
		if p := &s.parts[i]; p.until < until && p.from <= s.turn {
			best, until = i, p.until
		}
	}
	return best
}

func (s *Split) advance(i int) {
	s.parts[i].count++
	s.plan(i)
}

// Next takes a turn and returns its part.
func (s *Split) Next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.choose()
	s.advance(i)
	if s.turn++; s.turn == s.sum {
		s.turn = 0
		for i := range s.parts {
			s.parts[i].count = 0
			s.plan(i)
		}
	}
	return i
}

// Peek returns the part that Next would return.
func (s *Split) Peek() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.choose()
}

// Phase returns the position in the period, in [0, 1).
func (s *Split) Phase() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.turn) / float64(s.sum)
}
