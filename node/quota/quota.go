// Package quota divides the budgets of limits with scope cluster among the nodes.
// The leader leases each node a share of every budget that it has demand for; the
// shares follow demand. Connections and requests are counted against the node's
// share alone, so none of them waits for the leader.
//
// The Allocator is what the leader knows and decides, the Holder what a node holds.
// Both are pure: they have no clock, lock or I/O. A Driver runs them on a node.
// DESIGN.md has the bounds and their proof.
package quota

import (
	"time"

	"penstock/routing/limit"
)

const (
	// LeaseTime is how long a node may use a share, from when it asked for it and by
	// its own clock. It must be the same on all nodes.
	LeaseTime = 2 * time.Second
	// Interval is the longest time between two reports of a node.
	Interval = LeaseTime / 3
	// slack is what the leader adds to LeaseTime: clocks may differ in rate by 1/32.
	slack = LeaseTime / 32
	// counted is how long the leader counts a lease after it was given.
	counted = LeaseTime + slack
	// lostAfter is how old the last proof that a node has contact may be until the
	// leader reserves the floor for it. floorAfter is how long a node goes on
	// without the floor after it lost contact; it is so much longer that by then no
	// lease is in force that was given without that reserve.
	lostAfter  = LeaseTime + LeaseTime/2
	floorAfter = 3 * LeaseTime
	// idlePercent is what a node in contact may use of a budget without a lease, in
	// percent of an equal share.
	idlePercent = 0.25
	// margin is what a node keeps, and is given where demand exceeds the budget,
	// relative to its demand; headroom is how much more it gets where there is room.
	margin   = 1.01
	headroom = 1.25
	// Demand that has changed by significant, as a part of the budget, is reported
	// soon.
	significant = 0.01
	// With urgent it is even while another report is under way.
	urgent = 0.05
	// MaxKeys bounds the keys in a report. Others have no lease.
	MaxKeys = 10_000
	// maxKeyLength bounds a key in a report, in bytes. Longer ones are hashed.
	maxKeyLength = 128
	// HoldTime is how long the leader may hold an answer that would change nothing. The
	// answer is then still much younger than a lease.
	HoldTime = Interval / 2
	// maxHeldKeys bounds the keys of a report whose answer is held, which is decided anew
	// whenever others report.
	maxHeldKeys = 128
	// tick is how often a node looks at its demand, and the least time between two
	// reports.
	tick = LeaseTime / 40
	// maxTracked bounds the budgets that the leader remembers.
	maxTracked = 1_000_000
)

// Place returns a node's place among the members of a cluster. All nodes that know the
// same members divide a burst in the same way.
func Place(self string, members []string) limit.Place {
	p := limit.Place{Of: len(members)}
	for _, id := range members {
		if id < self {
			p.Index++
		}
	}
	return p
}

// Key names a budget.
type Key struct {
	Limit     string // name of the RateLimit
	Dimension uint8  // limit.Dimension
	Text      string // key of the bucket
}

// Budget is the whole of a budget, with what a node may use of it that has no
// contact to a leader.
type Budget struct {
	Rate  float64 // units per second
	Floor float64 // percent of an equal share, 0..100
}

// idle returns the rate without a lease of one of n nodes.
func (b Budget) idle(n int) float64 { return b.Rate * idlePercent / 100 / float64(max(n, 1)) }

// floor returns the rate without contact of one of n nodes.
func (b Budget) floor(n int) float64 { return b.Rate * b.Floor / 100 / float64(max(n, 1)) }

// Report is what a node tells the leader, and asks it for.
type Report struct {
	// Run is a number of the node's process, Seq rises with each report of it.
	Run uint64 `json:"run"`
	Seq uint64 `json:"seq"`
	// Term is the term of the leader that gave the node's last answer, and Contact
	// the Answer.At of the report before the last one that was answered: since then
	// at least the node has contact. 0: none.
	Term    uint64        `json:"term,omitempty"`
	Contact time.Duration `json:"contact,omitempty"`
	// Members is how many members the node divides by.
	Members int `json:"members"`
	// Keys has the demand, at most MaxKeys. What is not in it is given back.
	Keys []LimitDemand `json:"keys,omitempty"`
}

// LimitDemand is the demand for the budgets of one dimension of one limit. Its
// slices have an element for each key.
type LimitDemand struct {
	Limit     string   `json:"limit"`
	Dimension uint8    `json:"dimension"`
	Keys      []string `json:"keys"`
	// Want is the rate that the node's clients want, in units per second. Keep is
	// what the node restricts itself to until it is answered.
	Want []float64 `json:"want"`
	Keep []float64 `json:"keep"`
}

// Answer is what the leader answers.
type Answer struct {
	Term uint64 `json:"term"`
	// At is the time of the leader's clock, since any moment, never 0.
	At time.Duration `json:"at"`
	// Wait: the leader is new, and does not know yet what its predecessor has given.
	// Shares is empty, and the node asks again after this time.
	Wait time.Duration `json:"wait,omitempty"`
	// Again: the node was given less than it will have once others have reported.
	Again bool `json:"again,omitempty"`
	// Short: the node was given less than it wants.
	Short bool `json:"short,omitempty"`
	// Shares are rates in units per second, in the order of the report's keys.
	Shares []float64 `json:"shares,omitempty"`
}
