package dataplane

import (
	"sync/atomic"
	"time"

	"penstock/routing"
	"penstock/routing/hamt"
)

// goneGrace is how long a listener that was removed is remembered. Its socket
// goes on taking those that the kernel has queued, and they may still have a
// PROXY header, a hello and a handshake before them, each with its own
// deadline; who needs longer ends with no_listener.
const goneGrace = 30 * time.Second

// removedListeners are the listeners that were removed a moment ago, each with the last
// table that knew it. A client that was in the queue of such a listener, or
// said its hello there, came while it was open and is served as it was then:
// a removal turns away those who come later, and nobody else.
//
// Loops look things up without a lock; changes come one at a time.
type removedListeners struct {
	m atomic.Pointer[hamt.Map[removedListener]]
}

type removedListener struct {
	table *routing.Table
	at    time.Time
}

// table is the last one that had the listener; nil where it is not remembered.
func (g *removedListeners) table(listener string) *routing.Table {
	m := g.m.Load()
	if m == nil {
		return nil
	}
	f, _ := m.Get(listener)
	return f.table
}

// change applies an edit.
func (g *removedListeners) change(edit func(*hamt.Edit[removedListener])) {
	m := g.m.Load()
	if m == nil {
		m = new(hamt.Map[removedListener])
	}
	e := m.Edit()
	edit(e)
	next := e.Map()
	g.m.Store(&next)
}

// remember keeps listeners that are about to be removed from a table.
func (g *removedListeners) remember(listeners []string, table *routing.Table, now time.Time) {
	if len(listeners) == 0 {
		return
	}
	g.change(func(e *hamt.Edit[removedListener]) {
		for _, name := range listeners {
			if _, ok := table.Listener(name); ok {
				e.Set(name, removedListener{table, now})
			}
		}
	})
}

// sweep forgets those whose time is over. It tells whether there were any.
func (g *removedListeners) sweep(now time.Time) bool {
	var over []string
	if m := g.m.Load(); m != nil {
		for name, f := range m.All() {
			if now.Sub(f.at) > goneGrace {
				over = append(over, name)
			}
		}
	}
	if len(over) == 0 {
		return false
	}
	g.change(func(e *hamt.Edit[removedListener]) {
		for _, name := range over {
			e.Delete(name)
		}
	})
	return true
}
