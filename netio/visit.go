package netio

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// visitSlice bounds the connections that a loop shows in one turn. At a microsecond or
// less each, a slice takes less than a turn with a full read.
const visitSlice = 64

// ErrClosed says that the engine is closed.
var ErrClosed = errors.New("the engine is closed")

// Visit shows the connections of all loops, a few in each turn, so that a hundred
// thousand of them hold up nobody. begin is called on each loop, and returns what is
// called for each of its connections, the newest first, until that returns false, and
// what is called at the end. A connection that ends meanwhile is left out if its turn has
// not come; those that come after begin are not shown. Visit returns when all loops have
// ended their visit, or with an error; in that case functions of the visit may still be
// called.
func (e *Engine) Visit(ctx context.Context, begin func(loop int) (each func(c *Conn) bool, end func())) error {
	ended := make(chan struct{}, len(e.loops))
	for _, l := range e.loops {
		if !l.Post(func() {
			v := &visit{ctx: ctx, loop: l, next: l.conns.head, ended: ended}
			l.visits = append(l.visits, v)
			v.each, v.end = begin(l.index)
			v.step()
		}) {
			return ErrClosed
		}
	}
	for range e.loops {
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		case <-e.over:
			return ErrClosed
		}
	}
	return ctx.Err()
}

// visit is a walk through the connections of a loop.
type visit struct {
	ctx   context.Context
	loop  *loop
	next  *Conn // whose turn comes; loop.passBy moves it on when that one ends
	each  func(c *Conn) bool
	end   func()
	ended chan<- struct{} // takes one of each loop
}

// step shows a slice, and the next one in a later turn.
func (v *visit) step() {
	goesOn := false
	defer func() { // also after a panic
		if !goesOn {
			v.loop.visits = slices.DeleteFunc(v.loop.visits, func(other *visit) bool { return other == v })
			v.ended <- struct{}{}
		}
	}()
	if v.ctx.Err() != nil {
		return
	}
	for n := visitSlice; v.next != nil && n > 0; n-- {
		c := v.next
		v.next = c.next
		if !v.each(c) {
			v.next = nil
		}
	}
	if v.next == nil {
		v.end()
		return
	}
	goesOn = v.loop.Post(v.step)
}

// passBy keeps a connection that is about to leave the list out of all visits.
func (l *loop) passBy(c *Conn) {
	for _, v := range l.visits {
		if v.next == c {
			v.next = c.next
		}
	}
}

// CloseSome closes the connections that match now, over the window, as DrainSome does,
// and returns how many they are. The loops look at them a few in each turn. match is
// called on the loops, again for a connection that is about to be closed, so that it may
// change its mind.
func (e *Engine) CloseSome(ctx context.Context, over time.Duration, why Reason, match func(c *Conn) bool) (int, error) {
	drains := make([]*drain, len(e.loops))
	err := e.Visit(ctx, func(loop int) (func(c *Conn) bool, func()) {
		d := &drain{loop: e.loops[loop], why: why, match: match, listed: true}
		each := func(c *Conn) bool {
			if match(c) {
				d.queue = append(d.queue, drained{c, c.active})
				d.sessions = d.sessions || c.flags&sessioned != 0
			}
			return true
		}
		return each, func() { drains[loop] = d }
	})
	if err != nil {
		return 0, err
	}
	total := 0
	for _, d := range drains {
		total += len(d.queue)
		slices.SortFunc(d.queue, func(a, b drained) int { return cmp.Compare(a.active, b.active) })
		d.timer.Init(d)
		if len(d.queue) > 0 {
			d.loop.Post(func() { d.start(over) })
		}
	}
	return total, nil
}
