package dataplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"penstock/routing"
	"penstock/routing/resource"
)

const (
	// maxOrders bounds the orders whose outcome can be asked for: the latest ones.
	maxOrders = 64
	// maxWhy bounds the texts of an order's outcome that are told apart.
	maxWhy = 16
)

// MoveOrder says which sessions are to move.
type MoveOrder struct {
	SessionFilter
	// To is the address of an endpoint to which they are to move; "": balancing chooses
	// another one than the present.
	To string
	// Count bounds how many move; 0: all.
	Count int
}

// moveOrder is an order and what has become of it. mysqlSessions.mu guards it.
type moveOrder struct {
	to     string
	at     time.Time
	result MoveOutcome
	done   chan struct{} // closed when no session is open any more
}

// MoveOutcome is what has become of an order.
type MoveOutcome struct {
	// Asked is the sum of the others: sessions that moved, that stayed where they are for
	// good, that have ended, and that are still to move.
	Asked, Moved, Stayed, Closed, Open int
	// Why counts the reasons of those that stayed, or are still to move.
	Why map[string]int
}

// outcome is what has become of one session of an order.
type outcome uint8

const (
	outcomeMoved outcome = iota
	outcomeStayed
	outcomeClosed
)

// Reasons of outcomes that are none of a move.
const (
	whyNever    = "its service has mysql.move: never"
	whyNewOrder = "another order took its place"
	whyOther    = "other reasons"
	whyTurn     = "waits for its turn"
	whyNowhere  = "there is no other usable server"
)

// OrderMoves orders sessions to move. They move at the pace of their services. The result
// is the order's ID, for OrderOutcome, and how many sessions have it.
func (d *Dataplane) OrderMoves(o *MoveOrder) (id uint64, asked int) {
	m := d.reconciler.sessions
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh(time.Now()) // whether services move their sessions
	m.lastID++
	order := &moveOrder{to: o.To, at: time.Now(), done: make(chan struct{}), result: MoveOutcome{Why: map[string]int{}}}
	order.result.Open = 1 // until all have it
	m.orders[m.lastID] = order
	delete(m.orders, m.lastID-maxOrders)
	for _, s := range m.services {
		if o.Service == "" || o.Service == s.name {
			m.order(s, order, o)
		}
	}
	asked = order.result.Asked - order.result.Stayed
	order.end()
	m.rouse()
	return m.lastID, asked
}

// order gives an order to the sessions of a service that are not where it sends them.
func (m *mysqlSessions) order(s *serviceSessions, order *moveOrder, o *MoveOrder) {
	q := orderQueue{order: order}
	for _, p := range s.places {
		if o.Endpoint != "" && !routing.IsAt(p.endpoint, o.Endpoint) || o.To != "" && routing.IsAt(p.endpoint, o.To) {
			continue
		}
		for _, l := range []*sessionList{&p.calm, &p.failed, &p.asked, &s.deferred} {
			for h := l.head; h != nil; h = h.entry.next {
				if o.Count > 0 && order.result.Asked-order.result.Stayed >= o.Count {
					break
				}
				if h.entry.place == p && h.entry.target == nil && o.matches(h) && m.give(h, p, order) {
					q.pending = append(q.pending, h)
				}
			}
		}
	}
	s.ordered = slices.DeleteFunc(s.ordered, func(old orderQueue) bool { return !old.compact() })
	if len(q.pending) > 0 {
		s.ordered = append(s.ordered, q)
	}
}

// endOrders ends the orders of a service whose sessions do not move any more. It adds
// those that were asked to stay.
func (m *mysqlSessions) endOrders(s *serviceSessions, stay []*mysqlConn) []*mysqlConn {
	s.ordered = nil
	for _, p := range s.places {
		for _, l := range []*sessionList{&p.calm, &p.failed, &p.asked, &s.deferred} {
			for h := l.head; h != nil; {
				e, next := &h.entry, h.entry.next
				if e.place == p && e.order != nil && e.target == nil {
					m.endOrder(h, outcomeStayed, whyNever)
					if e.cause == causeOrdered {
						e.cause = causeNone
						p.calm.put(h)
						stay = append(stay, h)
					}
				}
				h = next
			}
		}
	}
	return stay
}

// give gives an order to one session. It returns false if it stays.
func (m *mysqlSessions) give(h *mysqlConn, p *mysqlPlace, order *moveOrder) bool {
	r := &order.result
	r.Asked++
	if !p.service.moves {
		r.Stayed++
		r.count(whyNever)
		return false
	}
	m.endOrder(h, outcomeStayed, whyNewOrder)
	r.Open++
	m.ordered++
	h.entry.order = order
	return true
}

// endOrder records what has become of the order of a session, if it has one.
func (m *mysqlSessions) endOrder(h *mysqlConn, what outcome, why string) {
	order := h.entry.order
	if order == nil {
		return
	}
	h.entry.order = nil
	m.ordered--
	r := &order.result
	switch what {
	case outcomeMoved:
		r.Moved++
	case outcomeStayed:
		r.Stayed++
		r.count(why)
	case outcomeClosed:
		r.Closed++
	}
	order.end()
}

// end ends one part of an order.
func (o *moveOrder) end() {
	if o.result.Open--; o.result.Open == 0 {
		close(o.done)
	}
}

// count counts a reason.
func (r *MoveOutcome) count(why string) {
	if _, known := r.Why[why]; !known && len(r.Why) >= maxWhy {
		why = whyOther
	}
	r.Why[why]++
}

// orderQueue is the sessions of a service with an order that were not asked yet.
type orderQueue struct {
	order   *moveOrder
	pending []*mysqlConn
}

// waits reports whether a session is to be asked because of the queue's order.
func (q *orderQueue) waits(h *mysqlConn) bool {
	return h.entry.order == q.order && h.entry.cause == causeNone
}

// compact forgets the sessions that have ended or have another order, so that repeated
// orders do not pile up. It returns whether any are left.
func (q *orderQueue) compact() bool {
	q.pending = slices.DeleteFunc(q.pending, func(h *mysqlConn) bool { return !q.waits(h) })
	return len(q.pending) > 0
}

// take takes those whose turn it is. It returns false if the pace allows no more now.
func (q *orderQueue) take(s *serviceSessions, t *moveTurn) bool {
	for len(q.pending) > 0 {
		h := q.pending[0]
		if q.waits(h) {
			if !t.allows(s.pace) {
				return false
			}
			t.ask(h, causeOrdered, q.order.at)
		}
		q.pending[0], q.pending = nil, q.pending[1:]
	}
	return true
}

// OrderOutcome returns what has become of an order: as soon as no session is open, or
// when ctx ends. It fails if the order is too old.
func (d *Dataplane) OrderOutcome(ctx context.Context, id uint64) (MoveOutcome, error) {
	m := d.reconciler.sessions
	m.mu.Lock()
	order := m.orders[id]
	m.mu.Unlock()
	if order == nil {
		return MoveOutcome{}, fmt.Errorf("order %d is not known any more", id)
	}
	select {
	case <-order.done:
	case <-ctx.Done():
	}
	var waiting []string
	if !order.isDone() {
		var mu sync.Mutex
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLook)
		defer cancel()
		_ = d.eachSession(look, func(h *mysqlConn) { // those that do not answer have no reason
			if why, open := m.whyOpen(h, order); open {
				mu.Lock()
				defer mu.Unlock()
				waiting = append(waiting, why)
			}
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := order.result
	r.Why = maps.Clone(r.Why)
	for _, why := range waiting[:min(len(waiting), r.Open)] {
		r.count(why)
	}
	return r, nil
}

// maxLook bounds the time in which the loops say why sessions have not moved.
const maxLook = time.Second

func (o *moveOrder) isDone() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// whyOpen returns why a session has not followed an order yet, on its loop; false: it is
// none of the order's.
func (m *mysqlSessions) whyOpen(h *mysqlConn, order *moveOrder) (string, bool) {
	state := stateOf(h)
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.entry.place == nil || h.entry.order != order {
		return "", false
	}
	return m.whyNotMoved(h, state), true
}

// MovesNever returns whether a service keeps its sessions where they are; ok is false if
// it is no mysql service.
func (d *Dataplane) MovesNever(service string) (never, ok bool) {
	s, ok := d.Router.Table().Service(service)
	if !ok || s.Spec().Protocol != resource.ProtocolMySQL {
		return false, false
	}
	return s.Spec().MySQL.Move == "never", true
}

// HasServer reports whether a mysql service, or any if the name is "", has an endpoint
// with this address.
func (d *Dataplane) HasServer(service, address string) bool {
	for s := range d.Router.Table().Services() {
		if s.Spec().Protocol != resource.ProtocolMySQL || service != "" && s.Name() != service {
			continue
		}
		for _, m := range s.Members() {
			if routing.IsAt(m.Endpoint, address) {
				return true
			}
		}
	}
	return false
}

// SessionFilter selects sessions; fields with their zero value select all.
type SessionFilter struct {
	Service, Listener, User string
	// Endpoint is the address of the server: as configured, or resolved.
	Endpoint string
	ID       uint64
}

// matches reports whether a session is selected, its service and endpoint aside. User,
// listener and ID of a session do not change.
func (f *SessionFilter) matches(h *mysqlConn) bool {
	return (f.Listener == "" || f.Listener == h.conn.Listener()) && (f.User == "" || f.User == h.user) && (f.ID == 0 || f.ID == h.conn.ID())
}
