package budget

import (
	"container/heap"
	"time"
)

// tier is one class: its parties, and what they hold.
type tier struct {
	used    int64
	leaving int64 // of used: of holders that were evicted and have not given it back
	parties map[key]*party
	spare   []*party // to be used again
	heaps   [levels]heaviest
}

// party is a source, a listener or a tenant with its holders.
type party struct {
	key        key
	used       int64
	index      int     // in its heap
	head, tail *Holder // the oldest first
}

// heaviest is a heap of parties by what they hold.
type heaviest []*party

func (q heaviest) Len() int           { return len(q) }
func (q heaviest) Less(i, j int) bool { return q[i].used > q[j].used }
func (q heaviest) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *heaviest) Push(x any) {
	p := x.(*party)
	p.index = len(*q)
	*q = append(*q, p)
}

// Pop implements heap.Interface.
func (q *heaviest) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return p
}

// A Holder holds a part of a budget. The zero Holder holds nothing. It must
// not be copied while it holds something, and can be reused afterwards.
type Holder struct {
	owner   Owner
	n       int64
	since   time.Time
	class   Class
	evicted bool // in no list any more
	links   [levels]link
	at      [levels]*party
}

type link struct{ next, prev *Holder }

// maxSpare bounds the parties that are kept to be used again.
const maxSpare = 64

func (t *tier) newParty(k key) *party {
	n := len(t.spare)
	if n == 0 {
		return &party{key: k}
	}
	p := t.spare[n-1]
	t.spare = t.spare[:n-1]
	p.key = k
	return p
}

// enter puts a holder of nothing into the lists of its parties.
func (h *Holder) enter(b *Budget, c Class, o Owner, p *Party) {
	t := &b.tiers[c]
	h.class, h.owner = c, o
	if c == Bulk && b.cfg.Grace > 0 || c == Early && b.cfg.Stale > 0 {
		h.since = time.Now()
	}
	for level := range h.at {
		k := p.key(level)
		at := t.parties[k]
		if at == nil {
			at = t.newParty(k)
			t.parties[k] = at
			heap.Push(&t.heaps[level], at)
		}
		h.at[level] = at
		h.links[level] = link{prev: at.tail}
		if at.tail != nil {
			at.tail.links[level].next = h
		} else {
			at.head = h
		}
		at.tail = h
	}
}

// add has a holder hold more.
func (h *Holder) add(b *Budget, n int64) {
	t := &b.tiers[h.class]
	h.n += n
	t.used += n
	b.used.Add(n)
	h.count(t, n)
}

// count counts n more under the holder's parties.
func (h *Holder) count(t *tier, n int64) {
	for level, p := range h.at {
		p.used += n
		heap.Fix(&t.heaps[level], p.index)
	}
}

// leave takes a holder out of the lists.
func (h *Holder) leave(b *Budget) {
	t := &b.tiers[h.class]
	for level, p := range h.at {
		l := &h.links[level]
		if l.prev != nil {
			l.prev.links[level].next = l.next
		} else {
			p.head = l.next
		}
		if l.next != nil {
			l.next.links[level].prev = l.prev
		} else {
			p.tail = l.prev
		}
		if p.head == nil {
			heap.Remove(&t.heaps[level], p.index)
			delete(t.parties, p.key)
			if len(t.spare) < maxSpare {
				*p = party{}
				t.spare = append(t.spare, p)
			}
		}
		h.links[level], h.at[level] = link{}, nil
	}
	h.owner = nil
}

// maxVictims bounds the evictions for one holder; lookAt how many of a party's
// oldest holders are compared.
const maxVictims, lookAt = 64, 32

// makeRoom evicts until over is on its way back, as far as the holder is
// entitled to that.
func (b *Budget) makeRoom(h *Holder, n, over int64) (victims []Owner) {
	c := h.class
	if c == Bulk && b.tiers[Bulk].used+n <= b.MaxBulk() {
		c = Early // has borrowed what is wanted now
	}
	for over -= b.tiers[c].leaving; over > 0 && len(victims) < maxVictims; {
		v := b.victim(h, c, n)
		if v == nil {
			break
		}
		over -= v.n
		victims = append(victims, v.owner)
		b.evict(v)
	}
	return victims
}

// victim is who gives way to a holder in a class; nil: nobody.
func (b *Budget) victim(h *Holder, c Class, n int64) *Holder {
	t := &b.tiers[c]
	for level := range ofAll {
		if len(t.heaps[level]) == 0 || !b.entitled(h, level, n) {
			continue
		}
		top := t.heaps[level][0]
		share := b.share(c, level)
		if c != h.class { // only what was borrowed
			share = b.cfg.Reserve / int64(len(t.heaps[level]))
		}
		if top.key == h.at[level].key || top.used <= share || top.used < 2*(h.at[level].used+n) {
			continue
		}
		if v := b.oldest(h, top, level); v != nil {
			return v
		}
	}
	if c == Early && h.class == Early {
		return b.stale(h, h.at[bySource].used+n)
	}
	return nil
}

// stale is the oldest holder of Early that is not safe any more from a source
// that would then hold that much; nil: there is none among the oldest.
func (b *Budget) stale(asks *Holder, after int64) *Holder {
	all := b.tiers[Early].heaps[ofAll]
	if b.cfg.Stale <= 0 || len(all) == 0 {
		return nil
	}
	for h, i := all[0].head, 0; h != nil && i < lookAt && time.Since(h.since) >= b.cfg.Stale; h, i = h.links[ofAll].next, i+1 {
		if h != asks && h.at[bySource].used >= after {
			return h
		}
	}
	return nil
}

// oldest is the first holder of a party to go: the one that is idle longest,
// or the oldest, of those whose source is not lighter than that of who asks.
func (b *Budget) oldest(asks *Holder, p *party, level int) (found *Holder) {
	bestRank, best := -1, time.Duration(0)
	for h, i := p.head, 0; h != nil && i < lookAt; h, i = h.links[level].next, i+1 {
		switch {
		case h == asks, level != bySource && h.at[bySource].used < asks.at[bySource].used:
			continue
		case h.class == Bulk && b.cfg.Grace > 0 && time.Since(h.since) < b.cfg.Grace:
			return found // the others are younger
		}
		o, ok := h.owner.(Idler)
		if !ok {
			return h
		}
		if rank, d := o.Idle(); rank > bestRank || rank == bestRank && d > best {
			found, bestRank, best = h, rank, d
		}
	}
	return found
}

// evict takes a holder out of the lists. What it holds is held until it gives
// it back.
func (b *Budget) evict(h *Holder) {
	t := &b.tiers[h.class]
	b.evicted[h.at[byListener].key.name]++
	t.leaving += h.n
	h.count(t, -h.n)
	h.leave(b)
	h.evicted = true
}
