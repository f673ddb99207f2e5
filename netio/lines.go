package netio

import (
	"container/list"

	"penstock/netio/budget"
)

// lines are the sessions of a loop that wait for memory, a line for each party.
// A client may have as many waiting as it has connections: a refund has a few of
// each party ask again, so that its cost does not grow with their number, and no
// party waits behind another.
type lines map[budget.Party]*line

type line struct {
	party budget.Party
	conns list.List // of *Conn
}

// hold is what a session has reserved, and where it waits for more.
type hold struct {
	budget.Holder
	line *line // nil: it does not wait
	at   *list.Element
}

// wait puts a session at the end of its line, unless it waits already.
func (all lines) wait(c *Conn, h *hold, p budget.Party) {
	if h.line != nil {
		return
	}
	l := all[p]
	if l == nil {
		l = &line{party: p}
		all[p] = l
	}
	h.line, h.at = l, l.conns.PushBack(c)
}

// leave takes a session out of its line.
func (all lines) leave(h *hold) {
	if l := h.line; l != nil {
		l.conns.Remove(h.at)
		h.line, h.at = nil, nil
		all.drop(l)
	}
}

// drop forgets a line that is empty.
func (all lines) drop(l *line) {
	if l.conns.Len() == 0 && all[l.party] == l {
		delete(all, l.party)
	}
}

// Bounds of the sessions that are refused again when a refund has them ask, and
// of those of one party when the timer does.
const (
	askParty, askAll = 8, 256
	askLine          = 1024
)

// feedHungry tells sessions that were refused memory, of each party those that
// have waited longest: all that get some, and at most perParty that are refused
// again, or inAll of all parties.
func (l *loop) feedHungry(perParty, inAll int) {
	for _, line := range l.hungry {
		if inAll <= 0 {
			break // the map begins elsewhere each time
		}
		inAll -= l.feedLine(line, min(perParty, inAll))
	}
	l.waiting.Store(len(l.hungry) > 0)
}

// feedLine does that for one party; it returns how many were refused again.
func (l *loop) feedLine(line *line, most int) (refused int) {
	defer l.hungry.drop(line)
	for n := line.conns.Len(); n > 0 && refused < most && line.conns.Len() > 0; n-- {
		c := line.conns.Front().Value.(*Conn)
		h := l.holds[c]
		line.conns.Remove(h.at)
		h.line, h.at = nil, nil
		c.guard(func() { c.session().MemoryAvailable() })
		if h.line != nil {
			refused++
		}
	}
	return refused
}
