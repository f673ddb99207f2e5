// Package split hands out turns by weight. The unit is the connection: of any
// run of connections as long as the sum of the weights, each part gets exactly
// its weight, and after n turns no part is a whole turn away from its share of
// n. A part of 1 % is not owed a bunch of turns at the end: it gets one in
// each hundred.
//
// A turn of a part with share p becomes due like the jobs of a processor that
// p of belongs to: its k-th turn, counted from 0, comes in [k/p, (k+1)/p). All
// shares add up to 1, so serving the turn that must be served first, among
// those that may be served already, misses none of these windows (Tijdeman
// 1980, "The chairman assignment problem"; the windows are those of Baruah et
// al. 1996, "Proportionate progress").
package split

import (
	"math/bits"
	"sync"
)

// Split hands out turns to parts 0 to n-1. All loops may use one Split: the
// order is that of all of them together.
type Split struct {
	weights []int64 // lowest terms; never changed
	sum     int64   // of weights: the period, after which all begins anew

	mu    sync.Mutex
	turn  int64 // handed out in this period, below sum
	parts []part
}

// part is a part's next turn.
type part struct {
	count int64 // turns had in this period, up to the weight
	from  int64 // first moment of the next one's window
	until int64 // the window's end: the turn is due before it
}

// New makes a split of these weights, 0 or more, of which the sum in lowest
// terms is more than 0 and below 2^53, to which phases are exact. phase, from 0
// to below 1, is how far into the period it begins; a split whose weights change
// goes on from the Phase of the old one, so that small parts are not passed over
// by frequent changes. A split that begins within a period is exact from that
// period's end on.
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

// begin brings the split to the state after that many turns. Turns whose
// window is over were had; those whose window is open were had as far as
// there were turns left, the most urgent first.
func (s *Split) begin(turn int64) {
	left := turn
	for i, w := range s.weights {
		s.parts[i].count = ratio(w, turn, 0, s.sum)
		left -= s.parts[i].count
		s.plan(i)
	}
	s.turn = turn - 1 // the last one that was had
	for ; left > 0; left-- {
		s.advance(s.choose())
	}
	s.turn = turn
}

// plan works out the window of part i's next turn.
func (s *Split) plan(i int) {
	p, w := &s.parts[i], s.weights[i]
	if w == 0 {
		p.from, p.until = never, never
		return
	}
	p.from = ratio(p.count, s.sum, 0, w)
	p.until = ratio(p.count+1, s.sum, w-1, w)
}

// ratio is (a*b + c) / d of numbers that are not negative, where the product
// alone may be more than an int64 holds.
func ratio(a, b, c, d int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	low, carry := bits.Add64(low, uint64(c), 0)
	if high += carry; high == 0 { // as a rule, and quicker
		return int64(low / uint64(d))
	}
	q, _ := bits.Div64(high, low, uint64(d))
	return int64(q)
}

// never lies after every period.
const never = 1 << 62

// choose gives the most urgent part of those that may have the turn at hand.
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

// Next hands out a turn.
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

// Peek tells which part Next would give now.
func (s *Split) Peek() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.choose()
}

// Phase is how far into its period the split is, from 0 to below 1.
func (s *Split) Phase() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.turn) / float64(s.sum)
}
