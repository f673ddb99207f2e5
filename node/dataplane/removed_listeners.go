package dataplane

import (
	"sync/atomic"
	"time"

	"penstock/routing"
	"penstock/routing/hamt"
)

// removedListenerTTL is how long a removed listener is remembered. Its socket still accepts
// the connections that the kernel has queued, and their PROXY header, ClientHello
// and handshake may be still to come, each with its own deadline. Connections that
// take longer end with no_listener.
const removedListenerTTL = 30 * time.Second

// removedListeners holds recently removed listeners, each with the last table that
// contains it. A client that was queued at such a listener, or had not completed
// its hello, connected while the listener was open and is routed as before: a
// removal affects only clients that connect later.
//
// Loops read it without a lock; the reconciler serializes changes.
type removedListeners struct {
	m atomic.Pointer[hamt.Map[removedListener]]
}

type removedListener struct {
	table *routing.Table
	at    time.Time
}

// table returns the last table with the listener; nil if it is not remembered.
func (g *removedListeners) table(listener string) *routing.Table {
	m := g.m.Load()
	if m == nil {
		return nil
	}
	f, _ := m.Get(listener)
	return f.table
}

// edit replaces the map by one that change has edited.
func (g *removedListeners) edit(change func(*hamt.Edit[removedListener])) {
	m := g.m.Load()
	if m == nil {
		m = new(hamt.Map[removedListener])
	}
	e := m.Edit()
	change(e)
	next := e.Map()
	g.m.Store(&next)
}

// add records listeners that are about to be removed from a table.
func (g *removedListeners) add(listeners []string, table *routing.Table, now time.Time) {
	if len(listeners) == 0 {
		return
	}
	g.edit(func(e *hamt.Edit[removedListener]) {
		for _, name := range listeners {
			if _, ok := table.Listener(name); ok {
				e.Set(name, removedListener{table, now})
			}
		}
	})
}

// sweep drops listeners that were removed longer than removedListenerTTL ago. It reports
// whether there were any.
func (g *removedListeners) sweep(now time.Time) bool {
	var over []string
	if m := g.m.Load(); m != nil {
		for name, f := range m.All() {
			if now.Sub(f.at) > removedListenerTTL {
				over = append(over, name)
			}
		}
	}
	if len(over) == 0 {
		return false
	}
	g.edit(func(e *hamt.Edit[removedListener]) {
		for _, name := range over {
			e.Delete(name)
		}
	})
	return true
}
