package netio

import (
	"crypto/rand"
	"sync/atomic"

	"penstock/netio/reactor"
	"penstock/netio/tlsstream"
)

// loop is one reactor loop with the connections that live on it. Only its
// own goroutine touches it, except for what is atomic.
type loop struct {
	*reactor.Loop
	engine *Engine
	index  int
	local  *tlsstream.Local

	sockets  map[*socket]struct{} // listening here, also those being retired
	conns    connList             // all that are open here
	open     atomic.Int64         // their number, and those on their way here
	ids      uint64               // given so far
	silent   identList            // those that wait for the first bytes of their client
	starving atomic.Bool          // the memory budget is spent: crowded silent ones are not read
	hungry   lines                // sessions that Reserve refused
	paced    map[*Conn]*pacing    // of connections with a Pacer
	holds    map[*Conn]*hold      // of what sessions have reserved
	waiting  atomic.Bool          // there are some that are hungry
	feeding  atomic.Bool          // feed is on its way
	retry    reactor.Timer        // has them try again; armed while there are some
	draining *drain
	leavers  map[*Conn]*drain // sessions that a drain has told to leave
	visits   []*visit         // that go through conns
	closed   bool
	spare    []*ident // to be used again
	scratch  []byte   // where what goes to an endpoint first is put together
	refused  Conn     // lent to Handler.Closed for each refused connection
	failure  error    // see Conn.Failure
}

const (
	// maxSpareIdents bounds the spare ones; maxSpareBuffer is the largest
	// buffer that one keeps: beyond any ordinary ClientHello.
	maxSpareIdents = 128
	maxSpareBuffer = 4 << 10
)

func newLoop(e *Engine, index int) (*loop, error) {
	l := &loop{engine: e, index: index, sockets: make(map[*socket]struct{}), paced: make(map[*Conn]*pacing), leavers: make(map[*Conn]*drain)}
	r, err := reactor.NewLoop(reactor.Config{CloseTimeout: e.cfg.CloseTimeout, OnPanic: l.panicked})
	if err != nil {
		return nil, err
	}
	l.Loop = r
	l.local = tlsstream.NewLocal(r, e.pool)
	l.retry.Init((*retrying)(l))
	return l, nil
}

// run is the loop's goroutine.
func (l *loop) run() {
	if err := l.Run(); err != nil {
		l.engine.log.Error("event loop ended", "loop", l.index, "error", err)
	}
}

// panicked logs a fault. Who was at fault is reset by the reactor.
func (l *loop) panicked(v any, stack []byte) {
	l.engine.log.Error("panic on an event loop", "loop", l.index, "panic", v, "stack", string(stack))
}

// nextID is unique among all loops.
func (l *loop) nextID() uint64 {
	l.ids++
	return l.ids*uint64(len(l.engine.loops)) + uint64(l.index)
}

// connList and identList are doubly linked through their elements.
type connList struct{ head *Conn }

func (q *connList) add(c *Conn) {
	c.prev, c.next = nil, q.head
	if q.head != nil {
		q.head.prev = c
	}
	q.head = c
}

func (q *connList) remove(c *Conn) {
	if c.next != nil {
		c.next.prev = c.prev
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		q.head = c.next
	}
	c.next, c.prev = nil, nil
}

type identList struct{ head, tail *ident }

func (q *identList) add(id *ident) {
	id.silent, id.prev, id.next = true, nil, q.head
	if q.head != nil {
		q.head.prev = id
	} else {
		q.tail = id
	}
	q.head = id
}

func (q *identList) remove(id *ident) {
	if !id.silent {
		return
	}
	if id.next != nil {
		id.next.prev = id.prev
	} else {
		q.tail = id.prev
	}
	if id.prev != nil {
		id.prev.next = id.next
	} else {
		q.head = id.next
	}
	id.silent, id.next, id.prev = false, nil, nil
}

// newInstance is what tells this process from all others.
func newInstance() (b [8]byte) {
	_, _ = rand.Read(b[:]) // never fails
	return b
}
