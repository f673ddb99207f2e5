package netio

import (
	"math"
	"time"

	"penstock/netio/budget"
	"penstock/netio/reactor"
)

// newBudget is the memory of a node for what it has to hold of connections, and
// for those who hold more of them. See the package budget for shares.
//
// A quarter is reserved for the bytes that tell where a connection wants to go.
// Such a connection is charged when its first bytes come: for what they are if
// the header or hello is whole, and else for the most that can come of them, so
// that a hello that has begun can always be finished. While the budget is spent,
// connections that hold nothing are not read if their source and listener have
// their shares; others are, and the heaviest source gives way to them. Since all
// loops stop at the read that passes the limit, the sum exceeds it by one read
// per loop, and by what clients send along with the last bytes of their hello.
func newBudget(limit int64) *budget.Budget {
	return budget.New(budget.Config{Limit: limit, Reserve: limit / 4, Grace: bulkGrace, Stale: helloGrace})
}

// newPlaces are the handshakes with clients, of all that there may be at once: an
// eighth is left to those with endpoints.
func newPlaces(maxHandshakes int) *budget.Budget {
	return budget.New(budget.Config{Limit: int64(maxHandshakes - maxHandshakes/8)})
}

// enterHandshakes takes a place; false: the client's parties have their share.
func (c *Conn) enterHandshakes() bool {
	p := c.party()
	ok, _ := c.loop.engine.places.Take(&c.ident.place, budget.Bulk, (*evictee)(c), &p, 1, budget.Swap)
	return ok
}

// leaveHandshakes gives it back, if there is one.
func (c *Conn) leaveHandshakes() {
	if c.tls != nil && c.ident != nil {
		c.loop.engine.places.Give(&c.ident.place, 1)
	}
}

const (
	// bulkGrace is how long a frame is safe from eviction: most are whole sooner,
	// and whoever needs their memory can wait for that.
	bulkGrace = time.Second
	// helloGrace is how long a hello that is not whole is safe where each source
	// has but one: most are whole at once.
	helloGrace = time.Second
	// retryEvery is how often those who wait for memory ask again, as those who
	// hold it lose their grace.
	retryEvery = 250 * time.Millisecond
)

// Tenanted is a Plan that knows the connection's tenant.
type Tenanted interface {
	// Tenant returns a name from the configuration, or "" for no tenant.
	Tenant() string
}

// party is whom the connection's memory counts under.
func (c *Conn) party() (p budget.Party) {
	p.Source, p.Listener = budget.Source(c.Client().Addr()), c.listener.name
	if t, ok := c.plan.(Tenanted); ok {
		p.Tenant = t.Tenant()
	}
	return p
}

// crowded tells whether the connection's source and listener have their share of
// memory.
func (c *Conn) crowded() bool {
	p := c.party()
	return c.loop.engine.budget.Crowded(&p, maxIdentity)
}

// unheard is why a client ends that has not said in time what it should: it may
// not have been listened to.
func (c *Conn) unheard(why Reason) Reason {
	if c.ident.silent && c.loop.starving.Load() && c.client.Readable() {
		c.loop.engine.refused.count(LimitMemory)
		return LimitMemory
	}
	return why
}

// evictee is a connection as the owner of a budget.Holder.
type evictee Conn

// Evict implements budget.Owner.
func (v *evictee) Evict() {
	c := (*Conn)(v)
	c.loop.Post(func() {
		b, h := c.loop.engine.budget, c.loop.holds[c]
		if c.ident != nil && c.loop.engine.places.Evicted(&c.ident.place) {
			c.loop.engine.refused.count(LimitHandshakes)
			c.abort(LimitHandshakes)
		} else if c.ident != nil && b.Evicted(&c.ident.hold) || h != nil && b.Evicted(&h.Holder) {
			c.loop.engine.refused.count(LimitMemory)
			c.stop(LimitMemory, false)
		}
	})
}

// setCharge makes n what the connection is charged for until its relay begins.
// It may make the loop stop reading from others.
func (c *Conn) setCharge(n int64) {
	id := c.ident
	d := n - id.charge
	id.charge = n
	switch {
	case d > 0:
		p := c.party()
		if _, full := c.loop.engine.budget.Take(&id.hold, budget.Early, (*evictee)(c), &p, d, budget.Must); full {
			c.loop.starve()
		}
	case d < 0:
		c.loop.refund(&id.hold, -d)
	}
}

// starve has connections that hold nothing yet not read where their parties have
// their share, until enough is given back.
func (l *loop) starve() {
	if l.starving.Load() {
		return
	}
	l.starving.Store(true)
	if !l.retry.Armed() {
		l.Arm(&l.retry, retryEvery)
	}
	for id := l.silent.head; id != nil; id = id.next {
		id.conn.listen()
	}
	if l.engine.budget.Low() {
		l.feed() // it was given back before anyone could know who waits
	}
}

// refund gives n bytes back, and has those read again that wait for it.
func (l *loop) refund(h *budget.Holder, n int64) { l.engine.Give(h, n) }

// Take charges n bytes to the engine's memory budget for a holder outside the
// engine; see budget.Take. It may be called from any goroutine.
func (e *Engine) Take(h *budget.Holder, o budget.Owner, p *budget.Party, n int64) bool {
	granted, _ := e.budget.Take(h, budget.Bulk, o, p, n, budget.MayWait)
	return granted
}

// Give gives n of these bytes back and resumes connections that wait for
// memory.
func (e *Engine) Give(h *budget.Holder, n int64) {
	if !e.budget.Give(h, n) {
		return
	}
	for _, l := range e.loops {
		if (l.starving.Load() || l.waiting.Load()) && !l.feeding.Swap(true) {
			l.Post(l.feed)
		}
	}
}

// feed goes on reading, who has waited longest first.
func (l *loop) feed() {
	l.feeding.Store(false)
	if l.waiting.Load() {
		l.feedHungry(askParty, askAll)
	}
	if !l.starving.Load() || !l.engine.budget.Low() {
		return
	}
	l.starving.Store(false)
	for id := l.silent.tail; id != nil; id = id.prev {
		id.conn.listen()
	}
}

// Class says what a session reserves memory for.
type Class = budget.Class

// The classes of memory. Early is for small things that arrive before a client
// is known, such as a login.
const (
	Early = budget.Early
	Bulk  = budget.Bulk
)

// Reserve charges n bytes to the node's memory budget. While a connection
// holds memory, its class stays that of its first Reserve. Without room,
// Reserve charges nothing and returns false, and Session.MemoryAvailable
// follows when there may be room. A connection with more than its share may be
// closed with LimitMemory when others need memory.
func (c *Conn) Reserve(class Class, n int64) bool {
	l := c.loop
	h := l.holds[c]
	if h == nil {
		h = new(hold)
		if l.holds == nil {
			l.holds, l.hungry = make(map[*Conn]*hold), make(lines)
		}
		l.holds[c] = h
	}
	p := c.party()
	if ok, _ := l.engine.budget.Take(&h.Holder, class, (*evictee)(c), &p, n, budget.MayWait); ok {
		return true
	}
	l.hungry.wait(c, h, p)
	l.waiting.Store(true)
	if !l.retry.Armed() {
		l.Arm(&l.retry, retryEvery)
	}
	return false
}

// Release gives back n reserved bytes. Session.Closed may call it.
func (c *Conn) Release(n int64) {
	if h := c.loop.holds[c]; h != nil {
		c.loop.refund(&h.Holder, n)
	}
}

// Budget returns the most bytes that can be reserved at once.
func (c *Conn) Budget() int64 { return c.loop.engine.budget.MaxBulk() }

// retrying is a loop as the Expirer of its timer retry.
type retrying loop

// Expired implements reactor.Expirer.
func (r *retrying) Expired(*reactor.Timer) {
	l := (*loop)(r)
	if l.waiting.Load() || l.starving.Load() {
		l.Arm(&l.retry, retryEvery)
	}
	if l.waiting.Load() {
		l.feedHungry(askLine, math.MaxInt)
	}
	if l.starving.Load() {
		for id := l.silent.tail; id != nil; id = id.prev {
			id.conn.listen()
		}
	}
}
