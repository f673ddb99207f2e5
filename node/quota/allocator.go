package quota

import (
	"math"
	"slices"
	"time"
)

// Allocator divides budgets for one term of the leader. Times are of the leader's
// monotonic clock since any moment before the first call, and never 0.
type Allocator struct {
	term    uint64
	since   time.Duration // start of the term, or later
	swept   time.Duration
	nodes   map[string]*member
	budgets map[Key]*shares
	members []*member // of the report at hand; nil: one that has not reported
	given   uint64    // leases
	moved   bool      // what nodes want or hold has changed since Moved was called
	kept    int       // keys of the report at hand that the node's last report had too
}

// member is what the Allocator knows of a node.
type member struct {
	index       int
	run, before uint64 // process of the last report, and the one before it
	seq         uint64 // of the last report
	report      uint64 // counts the reports of all processes
	at          time.Duration
	contact     time.Duration // Report.Contact; 0: none in this term
	members     int
	holds       int // keys of the last report
}

// shares are the parts of one budget.
type shares struct {
	budget Budget
	holds  []hold // by member.index
}

// hold is a node's part of a budget.
type hold struct {
	// report is that in which the node had the budget; 0: none. If it is not the
	// node's last one, the node has given its part back.
	report uint64
	want   float64
	// count is the most that the node may use: what it keeps or was given.
	count float64
	share float64 // last given
}

// NewAllocator makes the Allocator of a term that begins now, or has begun before.
func NewAllocator(term uint64, now time.Duration) *Allocator {
	return &Allocator{term: term, since: now, swept: now, nodes: map[string]*member{}, budgets: map[Key]*shares{}}
}

// Term returns the term.
func (a *Allocator) Term() uint64 { return a.term }

// Budgets returns the budget of a limit's dimension; not ok if there is none here.
type Budgets func(limit string, dimension uint8) (b Budget, ok bool)

// Report takes a report of a member, and returns what it is given. members are the IDs
// of all members. ok is false for a report that is older than another of the node; it
// has no answer. With hold the answer would change nothing for a node that is short. It
// may be held for HoldTime at most: by Hold, and Retry when Moved.
func (a *Allocator) Report(
	now time.Duration, id string, r *Report, members []string, budget Budgets,
) (ans Answer, hold, ok bool) {
	n := a.nodes[id]
	if n == nil {
		n = &member{index: len(a.nodes)}
		a.nodes[id] = n
	}
	if r.Run == n.before || r.Run == n.run && r.Seq <= n.seq {
		return Answer{}, false, false
	}
	if r.Run != n.run {
		n.run, n.before = r.Run, n.run
	}
	wasLost := lost(now, n)
	n.seq, n.at, n.contact, n.members = r.Seq, now, 0, r.Members
	n.report++
	if r.Term == a.term {
		n.contact = r.Contact
	}
	a.sweep(now)
	had := n.holds
	a.kept = 0
	ans, hold = a.decide(now, n, r, members, budget)
	// What it does not name any more it has given back, and so the floor that it does not need.
	a.moved = a.moved || a.kept < had || wasLost != lost(now, n)
	return ans, hold, true
}

// Retry decides again about a report whose answer was held; ok is false if the node has
// sent another since.
func (a *Allocator) Retry(
	now time.Duration, id string, r *Report, members []string, budget Budgets,
) (ans Answer, hold, ok bool) {
	n := a.nodes[id]
	if n == nil || n.run != r.Run || n.seq != r.Seq {
		return Answer{}, false, false
	}
	ans, hold = a.decide(now, n, r, members, budget)
	return ans, hold, true
}

// Moved reports whether what nodes want or hold has changed since the last call.
func (a *Allocator) Moved() bool {
	was := a.moved
	a.moved = false
	return was
}

// decide answers the last report of a node.
func (a *Allocator) decide(now time.Duration, n *member, r *Report, members []string, budget Budgets) (ans Answer, hold bool) {
	ans = Answer{Term: a.term, At: n.at}
	a.resolve(members)
	if wait := a.since + counted - now; wait > 0 {
		ans.Wait = wait
	}
	changes := false
	n.holds = 0
	for i := range r.Keys {
		l := &r.Keys[i]
		b, known := budget(l.Limit, l.Dimension)
		for j, text := range l.Keys {
			n.holds++
			share := 0.0
			if known && n.holds <= MaxKeys && j < len(l.Want) && j < len(l.Keep) && len(text) <= maxKeyLength {
				key := Key{l.Limit, l.Dimension, text}
				keep := amount(l.Keep[j])
				var target float64
				share, target = a.give(now, n, key, b, amount(l.Want[j]), keep, ans.Wait == 0)
				ans.Again = ans.Again || target > share*margin
				ans.Short = ans.Short || l.Want[j] > share*margin
				changes = changes || math.Abs(share-keep) > b.Rate*significant
			}
			if ans.Wait == 0 {
				ans.Shares = append(ans.Shares, share)
			}
		}
	}
	return ans, ans.Short && !changes && ans.Wait == 0 && !lost(now, n) && n.holds <= maxHeldKeys
}

// Hold takes back what the answer to the node's last report has given, as it is not sent.
func (a *Allocator) Hold(id string, r *Report) {
	n := a.nodes[id]
	for i := range r.Keys {
		l := &r.Keys[i]
		for j, text := range l.Keys {
			if s := a.budgets[Key{l.Limit, l.Dimension, text}]; s != nil && s.find(n) != nil {
				h := s.find(n)
				h.count = amount(l.Keep[j])
				h.share = h.count
			}
		}
	}
}

// resolve looks up the members once for all keys of a report.
func (a *Allocator) resolve(ids []string) {
	a.members = a.members[:0]
	for _, id := range ids {
		a.members = append(a.members, a.nodes[id])
	}
}

// amount returns a rate of a report, and 0 for what is none.
func amount(v float64) float64 {
	if v > 0 && v <= math.MaxFloat32 {
		return v
	}
	return 0
}

// give records what a node wants and keeps of a budget, and returns its share, and what it
// should have.
// Before the leader knows what its predecessor gave it gives nothing.
func (a *Allocator) give(
	now time.Duration, n *member, key Key, b Budget, want, keep float64, known bool,
) (share, target float64) {
	s := a.budgets[key]
	if s == nil {
		if len(a.budgets) >= maxTracked {
			return 0, 0
		}
		s = new(shares)
		a.budgets[key] = s
	}
	s.budget = b
	h := s.hold(n)
	if h.report == n.report-1 {
		a.kept++
	}
	if change := b.Rate * significant; math.Abs(h.want-want) > change || h.count > keep {
		a.moved = true
	}
	h.report, h.want, h.count, h.share = n.report, want, keep, 0
	if !known {
		return 0, 0
	}
	others, target := a.target(now, s, n)
	share = max(min(target, b.Rate-others), 0)
	h.share, h.count = share, max(h.count, share)
	a.given++
	return share, target
}

// hold returns the node's part, which it adds if there is none.
func (s *shares) hold(n *member) *hold {
	for len(s.holds) <= n.index {
		s.holds = append(s.holds, hold{})
	}
	return &s.holds[n.index]
}

// target returns what all others may use at most until a lease given now has ended,
// and what the node should have.
func (a *Allocator) target(now time.Duration, s *shares, asks *member) (others, target float64) {
	var room [16]float64
	wants := room[:0]     // of all who share, what each wants with headroom
	own := 0.0            // 0: the node that asks is no member
	free := s.budget.Rate // without what is reserved for those that do not share
	for _, n := range a.members {
		if n == nil {
			f := max(s.budget.floor(len(a.members)), s.budget.idle(len(a.members)))
			others, free = others+f, free-f
			continue
		}
		h := s.find(n)
		c := count(now, s.budget, n, h)
		if n != asks {
			others += c
		}
		if n != asks && (h == nil || lost(now, n)) {
			free -= c
			continue
		}
		want := h.want*margin + s.budget.idle(n.members)
		if n == asks {
			own = want
		}
		wants = append(wants, want)
	}
	if own == 0 {
		return others, 0
	}
	return others, divide(wants, own, free)
}

// find returns the part that the node has by its last report; nil: none.
func (s *shares) find(n *member) *hold {
	if n.index < len(s.holds) && s.holds[n.index].report == n.report {
		return &s.holds[n.index]
	}
	return nil
}

// lost reports whether a node may soon use its floor.
func lost(now time.Duration, n *member) bool { return n.contact == 0 || now-n.contact >= lostAfter }

// count returns the most that a node may use of a budget from now on, until a lease
// given now has ended. h is nil if its last report did not name the budget.
func count(now time.Duration, b Budget, n *member, h *hold) float64 {
	c := b.idle(n.members)
	if h != nil {
		c = max(c, h.count)
	}
	if !lost(now, n) {
		return c
	}
	floor := max(b.floor(n.members), b.idle(n.members))
	if h != nil && now < n.at+counted {
		return max(floor, c)
	}
	return floor
}

// divide returns one's part of what is free: max-min fair by what each wants. If that
// is less than there is, each gets headroom, then half of the rest is spread evenly,
// and the other half is kept for those whose demand begins. It reorders wants.
func divide(wants []float64, own, free float64) float64 {
	slices.Sort(wants)
	total := 0.0
	for _, w := range wants {
		total += w
	}
	free = max(free, 0)
	if total*headroom <= free {
		return own*headroom + (free-total*headroom)/2/float64(len(wants))
	}
	if total <= free {
		return own * free / total
	}
	for i, w := range wants {
		level := free / float64(len(wants)-i)
		if w >= level {
			return min(own, level)
		}
		free -= w
	}
	return own
}

// sweep forgets budgets that no node has a part of, now and then.
func (a *Allocator) sweep(now time.Duration) {
	if now-a.swept < LeaseTime {
		return
	}
	a.swept = now
	for key, s := range a.budgets {
		used := false
		for _, n := range a.nodes {
			used = used || s.find(n) != nil && now < n.at+floorAfter
		}
		if !used {
			delete(a.budgets, key)
		}
	}
}

// Given returns how many leases were given in this term.
func (a *Allocator) Given() uint64 { return a.given }
