package netio

import (
	"cmp"
	"slices"
	"time"
)

// reviewSlice bounds the connections that a loop judges in one turn. At a few
// microseconds each, a slice takes less than a turn with a full read.
const reviewSlice = 64

// Review asks judge about every connection that is routed, a few in each turn of
// the loops, and closes those for which it returns true, over the window that it
// returns, as DrainSome does. It returns at once. judge is called on the loops,
// again for a connection that is about to be closed. done, if not nil, is called
// once on each loop, or for a loop that has ended, when all its connections have
// been judged.
func (e *Engine) Review(why Reason, judge func(c *Conn) (over time.Duration, leave bool), done func()) {
	if done == nil {
		done = func() {}
	}
	for _, l := range e.loops {
		if !l.Post(func() { l.review(why, judge, done) }) {
			done()
		}
	}
}

// review judges the connections of one loop.
type review struct {
	loop  *loop
	why   Reason
	judge func(c *Conn) (time.Duration, bool)
	done  func()
	rest  []*Conn
	leave map[time.Duration]*drain // by window
}

func (l *loop) review(why Reason, judge func(c *Conn) (time.Duration, bool), done func()) {
	r := &review{loop: l, why: why, judge: judge, done: done, leave: map[time.Duration]*drain{}}
	for c := l.conns.head; c != nil; c = c.next {
		if c.plan != nil {
			r.rest = append(r.rest, c)
		}
	}
	r.step()
}

// step judges a slice, and the next one in a later turn.
func (r *review) step() {
	n := min(reviewSlice, len(r.rest))
	for _, c := range r.rest[:n] {
		if c.phase == phaseClosed {
			continue
		}
		if over, leave := r.judge(c); leave {
			d := r.leave[over]
			if d == nil {
				d = &drain{loop: r.loop, why: r.why, match: r.stillLeaves, listed: true}
				r.leave[over] = d
			}
			d.queue = append(d.queue, drained{c, c.active})
			d.sessions = d.sessions || c.flags&sessioned != 0
		}
	}
	if r.rest = r.rest[n:]; len(r.rest) > 0 {
		if r.loop.Post(r.step) {
			return
		}
		r.rest = nil // the loop has ended
	}
	for over, d := range r.leave {
		slices.SortStableFunc(d.queue, func(a, b drained) int { return cmp.Compare(a.active, b.active) })
		d.timer.Init(d)
		d.start(over)
	}
	r.done()
}

func (r *review) stillLeaves(c *Conn) bool {
	_, leave := r.judge(c)
	return leave
}
