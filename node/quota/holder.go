package quota

import "time"

// Holder is what a node holds. Times are of the node's monotonic clock since any
// moment; a clock that differs from the leader's changes nothing.
type Holder struct {
	run     uint64
	seq     uint64
	members int
	contact time.Duration // when it asked what was last answered, or its start
	term    uint64        // of the last answer
	last    time.Duration // Answer.At of the last answer
	before  time.Duration // last, when it asked what was last answered
	proven  bool          // the leader of term knows that there is contact
	leases  map[Key]lease

	asked    time.Duration // last report; 0: none
	answered bool          // it was
	failed   bool          // it will not be
	lowered  bool          // the answer lowered a share: others can have the rest once it is confirmed
	open     int           // reports since the last one that was answered
	again    bool          // Answer.Again of the last answer
	short    bool          // Answer.Short
	heavy    int           // leases that are
	wait     time.Duration // ask again then; 0: as usual
}

// lease is a share with the time until which it is the node's.
type lease struct {
	rate  float64
	until time.Duration
	want  float64 // as last reported
	heavy bool    // want is significant
}

// Asked is a report that waits for its answer.
type Asked struct {
	Report Report
	at     time.Duration
	last   time.Duration
}

// Demand is what clients want of a budget on this node.
type Demand struct {
	Key    Key
	Budget Budget
	Want   float64 // units per second
}

// NewHolder makes the Holder of a process; run is a number that no other process of
// the node has, members how many nodes the cluster has.
func NewHolder(run uint64, now time.Duration, members int) *Holder {
	return &Holder{run: run, contact: now, members: members, leases: map[Key]lease{}}
}

// Ask makes the next report. Until it is answered the node uses no more than the
// report says that it keeps, and gives everything else back. The demands of a limit's
// dimension must stand together, and be at most MaxKeys.
func (h *Holder) Ask(now time.Duration, members int, demands []Demand) *Asked {
	h.seq++
	h.members = members
	a := &Asked{at: now, last: h.last, Report: Report{Run: h.run, Seq: h.seq, Term: h.term, Contact: h.before, Members: members}}
	kept := make(map[Key]lease, len(demands))
	r, heavy := &a.Report, 0
	for i := range demands {
		d := &demands[i]
		held, rate := h.leases[d.Key], h.Rate(now, d.Key, d.Budget)
		keep := rate
		if now <= h.contact+floorAfter {
			keep = min(rate, d.Want*margin+d.Budget.idle(members))
		}
		if d.Want > d.Budget.Rate*significant {
			heavy++
		}
		kept[d.Key] = lease{keep, held.until, d.Want, d.Want > d.Budget.Rate*significant}
		if n := len(r.Keys); n == 0 || r.Keys[n-1].Limit != d.Key.Limit || r.Keys[n-1].Dimension != d.Key.Dimension {
			r.Keys = append(r.Keys, LimitDemand{Limit: d.Key.Limit, Dimension: d.Key.Dimension})
		}
		l := &r.Keys[len(r.Keys)-1]
		l.Keys, l.Want, l.Keep = append(l.Keys, d.Key.Text), append(l.Want, d.Want), append(l.Keep, keep)
	}
	h.leases, h.heavy, h.asked, h.answered, h.failed = kept, heavy, now, false, false
	h.open++
	return a
}

// Fail notes that the report will not be answered.
func (h *Holder) Fail(a *Asked) { h.failed = h.failed || a.Report.Seq == h.seq }

// Accept takes the answer to the last report, and reports whether it came in time.
func (h *Holder) Accept(now time.Duration, a *Asked, ans *Answer) bool {
	until := a.at + LeaseTime
	if a.Report.Seq != h.seq || now >= until {
		return false
	}
	h.contact, h.before, h.last = a.at, a.last, ans.At
	if ans.Term != h.term {
		h.term, h.before = ans.Term, 0
	}
	h.proven = a.Report.Term == h.term && a.Report.Contact != 0
	h.answered, h.open, h.again, h.short, h.wait, h.lowered = true, 0, ans.Again, ans.Short, 0, false
	if ans.Wait > 0 {
		h.wait = now + ans.Wait
		return true // what it has ends as it would have
	}
	i := 0
	for _, l := range a.Report.Keys {
		first := i
		for _, text := range l.Keys {
			if i < len(ans.Shares) {
				key := Key{l.Limit, l.Dimension, text}
				h.lowered = h.lowered || ans.Shares[i]*margin < h.leases[key].rate
				h.leases[key] = lease{max(ans.Shares[i], 0), until, l.Want[i-first], h.leases[key].heavy}
			}
			i++
		}
	}
	return true
}

// Rate returns what the node may use of a budget, in units per second.
func (h *Holder) Rate(now time.Duration, key Key, b Budget) float64 {
	l, leased := h.leases[key]
	switch {
	case leased && now < l.until:
		return l.rate
	case now > h.contact+floorAfter:
		return b.floor(h.members)
	case leased: // ended
		return min(l.rate, b.floor(h.members))
	case now > h.contact+LeaseTime:
		return min(b.idle(h.members), b.floor(h.members))
	}
	return b.idle(h.members)
}

// OnFloor reports whether the node uses its floor for want of a leader.
func (h *Holder) OnFloor(now time.Duration) bool { return now > h.contact+floorAfter }

// Contact returns for how long the node has had no answer.
func (h *Holder) Contact(now time.Duration) time.Duration { return max(now-h.contact, 0) }

// Due reports whether it is time for a report: at the latest after Interval; sooner
// when demand has changed so much that shares should, or the leader wants it.
func (h *Holder) Due(now time.Duration, demands []Demand) bool {
	since := now - h.asked
	switch {
	case h.asked == 0:
		return true
	case h.Confirms(now):
		return true
	case since < tick+time.Duration(len(h.leases))*perKey:
		return false
	case !h.answered && !h.failed:
		return since >= LeaseTime/2 || since >= tick<<min(h.open-1, 5) && h.moved(now, demands)
	case since >= Interval:
		return true
	case !h.answered:
		return since >= Interval/4
	case h.wait > 0:
		return now >= h.wait || since >= Interval/4 && !h.proven
	case h.again || h.short || !h.proven: // until it is, the leader reserves the node's floor
		return true
	}
	for i := range demands {
		d := &demands[i]
		l, change := h.leases[d.Key], d.Budget.Rate*significant
		if d.Want > h.Rate(now, d.Key, d.Budget) && d.Want-l.want > change || l.want-d.Want > change {
			return true
		}
	}
	return h.ended(demands)
}

// Confirms reports whether the last answer lowered a share, which nobody can use until the
// next report confirms that.
func (h *Holder) Confirms(now time.Duration) bool {
	return h.answered && h.lowered && now-h.asked >= tick/5
}

// moved reports whether demand has changed so much that the next report does not wait for
// the answer to the last one: others can have what is not wanted here any more, or there
// is a want that the leader does not know. An answer that comes later is dropped; so that
// one comes in time at last, each report that overtakes waits twice as long.
func (h *Holder) moved(now time.Duration, demands []Demand) bool {
	for i := range demands {
		d := &demands[i]
		l, rate, change := h.leases[d.Key], h.Rate(now, d.Key, d.Budget), d.Budget.Rate*urgent
		short := l.want > rate
		if rate-d.Want*margin > change || short && d.Want < rate || !short && d.Want-rate > change {
			return true
		}
	}
	return h.ended(demands)
}

// ended reports whether there is no demand any more where it was significant.
func (h *Holder) ended(demands []Demand) bool {
	heavy := 0
	for i := range demands {
		if h.leases[demands[i].Key].heavy {
			heavy++
		}
	}
	return heavy < h.heavy
}

// perKey is by how much each key of a report defers the next one that is not due yet.
const perKey = 50 * time.Microsecond

// Members returns how many members the node divides by.
func (h *Holder) Members() int { return h.members }

// Leases returns how many leases the node holds.
func (h *Holder) Leases(now time.Duration) (n int) {
	for _, l := range h.leases {
		if now < l.until {
			n++
		}
	}
	return n
}
