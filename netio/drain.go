package netio

import (
	"cmp"
	"context"
	"slices"
	"time"

	"penstock/netio/reactor"
)

// Drain accepts all connections that wait in the kernel's queues, stops
// accepting, and then closes all connections with the reason Drained: evenly
// over the window, most idle first, and each at a moment when nothing is under
// way on it, if there is one before the window ends. A session whose turn has
// come and which is in use ends behind its next answer. Drain returns when no
// connection is left, or with the context's error.
func (e *Engine) Drain(ctx context.Context, over time.Duration) error {
	e.mu.Lock()
	e.stopListening()
	e.mu.Unlock()
	if err := e.waitClosed(ctx); err != nil {
		return err
	}
	var empty []chan struct{}
	for _, l := range e.loops {
		done := make(chan struct{})
		if l.Post(func() { l.drain(over, done) }) {
			empty = append(empty, done)
		}
	}
	return waitAll(ctx, empty)
}

// Resume undoes Drain, finished or not: the remaining connections stay, and
// SetListeners works again. It must not run concurrently with Drain; after
// Close it does nothing.
func (e *Engine) Resume() {
	e.onLoops(func(l *loop) {
		if l.draining != nil {
			for c, d := range l.leavers {
				if d == l.draining {
					c.stay()
				}
			}
			l.draining.finish()
			l.draining = nil
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = e.closed
}

// waitClosed waits for all listening sockets to be closed.
func (e *Engine) waitClosed(ctx context.Context) error {
	open := make(chan []chan struct{}, len(e.loops))
	e.onLoops(func(l *loop) {
		var some []chan struct{}
		for s := range l.sockets {
			some = append(some, s.closed)
		}
		open <- some
	})
	close(open)
	for some := range open {
		if err := waitAll(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func waitAll(ctx context.Context, all []chan struct{}) error {
	for _, c := range all {
		select {
		case <-c:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// DrainSome closes the connections that match over the window, as Drain does,
// with another reason. It returns at once and does not stop accepting. match is
// called on the loops, for a connection that is about to be closed as well, so
// that it may change its mind.
func (e *Engine) DrainSome(over time.Duration, why Reason, match func(c *Conn) bool) {
	for _, l := range e.loops {
		l.Post(func() {
			d := &drain{loop: l, why: why, match: match}
			d.timer.Init(d)
			d.begin(over)
		})
	}
}

// drain closes a loop's connections over a window. Each loop does its own.
type drain struct {
	loop  *loop
	why   Reason
	match func(c *Conn) bool // nil: all connections of the loop, and nobody else comes
	// listed says that only those in the queue are closed, none that came meanwhile.
	listed   bool
	sessions bool // there are sessions in the queue; with listed, who lists them knows
	timer    reactor.Timer
	begun    time.Duration
	over     time.Duration
	spread   time.Duration // the part of over in which turns come
	total    int
	// queue is who is still to be closed, most idle first. Relays that turn
	// out to be busy go to its end.
	queue []drained
	// soon are sessions whose turn has come: they end behind their next answer,
	// or when they have been quiet for a while.
	soon []*Conn
	done []chan struct{}
}

// drained is a connection as it was when it was queued.
type drained struct {
	conn   *Conn
	active time.Duration
}

const (
	drainTick = 20 * time.Millisecond
	// maxQuiet is how long a session whose turn has come must have been quiet to be
	// closed without an answer that the end goes along with. A client that has just
	// spoken may be about to speak again, and its command would cross the end.
	maxQuiet = time.Second
)

// quiet is maxQuiet, or less in a window that is short.
func (d *drain) quiet() time.Duration { return max(min(maxQuiet, d.over/8), quietTime) }

// drain begins to close the connections of the loop. A second call makes
// those still open go by its own window.
func (l *loop) drain(over time.Duration, done chan struct{}) {
	d := l.draining
	if d == nil {
		d = &drain{loop: l, why: Drained}
		d.timer.Init(d)
		l.draining = d
	}
	d.done = append(d.done, done)
	d.begin(over)
}

// begin queues the connections and closes the first that are due.
func (d *drain) begin(over time.Duration) {
	d.queue, d.soon = d.queue[:0], nil
	for c := d.loop.conns.head; c != nil; c = c.next {
		if d.matches(c) {
			d.queue = append(d.queue, drained{c, c.active})
		}
	}
	slices.SortStableFunc(d.queue, func(a, b drained) int { return cmp.Compare(a.active, b.active) })
	d.start(over)
}

// start begins the window of those in the queue. Sessions have a quarter of it from the
// last turn to the end: for what the last ones have begun.
func (d *drain) start(over time.Duration) {
	d.begun, d.over, d.spread, d.total = d.loop.Now(), over, over, len(d.queue)
	if d.sessions || !d.listed && slices.ContainsFunc(d.queue, func(q drained) bool { return q.conn.flags&sessioned != 0 }) {
		d.spread = over * 3 / 4
	}
	d.Expired(&d.timer)
}

func (d *drain) matches(c *Conn) bool { return d.match == nil || d.match(c) }

// closeListed closes a slice of those that are left at the end of the window, in the
// queue and among the sessions whose turn has come, and the next one in a later turn.
func (d *drain) closeListed() {
	for n := visitSlice; n > 0 && len(d.queue)+len(d.soon) > 0; n-- {
		var c *Conn
		if len(d.queue) > 0 {
			c, d.queue = d.queue[0].conn, d.queue[1:]
		} else {
			c, d.soon = d.soon[0], d.soon[1:]
		}
		if c.phase != phaseClosed && d.matches(c) {
			c.stop(d.why, c.isIdle())
		}
	}
	if len(d.queue)+len(d.soon) == 0 || !d.loop.Post(d.closeListed) {
		d.finish()
	}
}

// closeAll closes those that are left, and those that came meanwhile.
func (d *drain) closeAll() {
	for c := d.loop.conns.head; c != nil; {
		next := c.next
		if d.matches(c) {
			c.stop(d.why, c.isIdle())
		}
		c = next
	}
}

// Expired implements reactor.Expirer: it closes as many as are due by now.
func (d *drain) Expired(*reactor.Timer) {
	l := d.loop
	elapsed := l.Now() - d.begun
	if elapsed >= d.over && d.listed {
		d.closeListed()
		return
	}
	if elapsed >= d.over {
		d.closeAll()
		d.finish()
		return
	}
	// Those that are gone, closed here or by their peers, count as done, and so do
	// sessions that were told to leave: otherwise one that stays busy would have the
	// drain tell all others at once.
	due := int(float64(d.total) * float64(elapsed) / float64(d.spread))
	for n := len(d.queue); n > 0 && d.total-len(d.queue) < due; n-- {
		next := d.queue[0]
		d.queue = d.queue[1:]
		switch c := next.conn; {
		case c.phase == phaseClosed || !d.matches(c):
		case c.flags&sessioned != 0:
			c.leaveSoon(d)
			d.soon = append(d.soon, c)
		case c.active == next.active && c.isIdle():
			c.stop(d.why, true)
		default:
			d.queue = append(d.queue, drained{c, c.active})
		}
	}
	d.soon = slices.DeleteFunc(d.soon, d.closeQuiet)
	if l.conns.head == nil && d.match == nil {
		d.finish()
		return
	}
	next := d.over - elapsed
	if len(d.queue)+len(d.soon) > 0 || d.match == nil {
		next = min(drainTick, next)
	}
	l.Arm(&d.timer, next)
}

// closeQuiet closes a session whose client has been quiet for a while; true: it is
// not to be closed any more.
func (d *drain) closeQuiet(c *Conn) bool {
	switch {
	case c.phase == phaseClosed:
		return true
	case !d.matches(c):
		if d.loop.leavers[c] == d {
			c.stay()
		}
		return true
	case d.loop.Now()-c.active < d.quiet() || !c.isIdle() || c.client.Unread() > 0:
		return false
	}
	c.stop(d.why, true)
	return true
}

// connClosed ends the drain early when the last connection is gone.
func (d *drain) connClosed() {
	if d.loop.conns.head == nil {
		d.loop.Arm(&d.timer, 0)
	}
}

// finish tells whoever waits.
func (d *drain) finish() {
	d.loop.Disarm(&d.timer)
	for _, done := range d.done {
		close(done)
	}
	d.done, d.queue, d.soon = nil, nil, nil
}
