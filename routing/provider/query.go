package provider

import (
	"fmt"
	"time"
)

// query is the state of one query.
type query struct {
	Query
	applied map[string]Endpoint // in force, by address
	latest  answer              // the last one reported
	dirty   bool                // latest may differ from applied
	// known is true after the first answer. created is when the query was made,
	// from which staleness counts before that.
	known                      bool
	created, answered, changed time.Time
	// held is since when removals wait; zero: none do.
	held     time.Time
	err      string // of the last attempt; "" after an answer
	warning  string // beside the last answer
	failures int
	expired  bool // it was stale for too long: its endpoints are removed
}

func newQuery(q Query, endpoints []Endpoint, now time.Time) *query {
	state := &query{Query: q, applied: make(map[string]Endpoint, len(endpoints)), created: now}
	for i := range endpoints {
		state.applied[endpoints[i].Address] = endpoints[i]
	}
	return state
}

// lastKnown is the time from which staleness counts.
func (q *query) lastKnown() time.Time {
	if q.known {
		return q.answered
	}
	return q.created
}

// batch is what one step applies: as many changes as there are tokens for.
type batch struct {
	runner  *Runner
	now     time.Time
	tokens  int
	spent   int
	changes []Change
	states  []*query  // of changes, in their order
	next    time.Time // when something more is due; zero: unknown
}

// collect lists the changes that are due.
func (b *batch) collect() {
	r := b.runner
	for _, q := range r.dropped {
		_, gone := diff(q.applied, nil)
		b.add(q, nil, gone)
	}
	for _, wanted := range r.wanted {
		q := r.queries[wanted]
		b.expire(q)
		if !q.dirty {
			continue
		}
		put, gone := diff(q.applied, q.latest.endpoints)
		if b.holds(q, len(gone)) {
			gone = nil
		} else {
			q.dirty = false
			q.held = time.Time{}
		}
		if !b.add(q, put, gone) {
			q.dirty = true
		}
	}
}

// expire replaces an answer that has been stale for too long by an empty one.
func (b *batch) expire(q *query) {
	limit := b.runner.cfg.MaxStale
	if limit == 0 || q.expired || q.known && q.err == "" {
		return
	}
	if at := q.lastKnown().Add(limit); b.now.Before(at) {
		b.dueAt(at)
		return
	}
	q.expired, q.dirty, q.latest = true, true, answer{}
}

// holds reports whether removals of an answer have to wait.
func (b *batch) holds(q *query, gone int) bool {
	cfg := &b.runner.cfg
	if cfg.HoldFor < 0 || q.expired || gone*100 <= cfg.HoldShare*len(q.applied) {
		return false
	}
	if q.held.IsZero() {
		q.held = b.now
		cfg.Log.Warn("an answer would remove most endpoints of a service; its removals are held back",
			"provider", cfg.Name, "service", q.Service, "endpoints", len(q.applied), "removed", gone, "for", cfg.HoldFor)
	}
	until := q.held.Add(cfg.HoldFor)
	if !b.now.Before(until) {
		return false
	}
	b.dueAt(until)
	return true
}

// add adds the changes of a query, as far as there are tokens, and reports
// whether that is all of them.
func (b *batch) add(q *query, put []Endpoint, gone []string) (all bool) {
	room := b.tokens - b.spent
	if all = len(put)+len(gone) <= room; !all {
		put = put[:min(len(put), room)]
		gone = gone[:min(len(gone), room-len(put))]
		missing := time.Second / time.Duration(b.runner.cfg.ChangeRate)
		b.dueAt(b.now.Add(max(missing, b.runner.cfg.Interval)))
	}
	if len(put)+len(gone) > 0 {
		b.spent += len(put) + len(gone)
		b.changes = append(b.changes, Change{Query: q.Query, Put: put, Gone: gone})
		b.states = append(b.states, q)
	}
	return all
}

func (b *batch) dueAt(t time.Time) {
	if b.next.IsZero() || t.Before(b.next) {
		b.next = t
	}
}

// applied records that the changes are in force.
func (b *batch) applied() {
	for i, c := range b.changes {
		q := b.states[i]
		for _, e := range c.Put {
			q.applied[e.Address] = e
		}
		for _, address := range c.Gone {
			delete(q.applied, address)
		}
		q.changed = b.now
		b.runner.counts.Changes += uint64(len(c.Put) + len(c.Gone))
		if b.runner.dropped[q.Query] == q && len(q.applied) == 0 {
			delete(b.runner.dropped, q.Query)
		}
	}
}

// undo marks the changes as due again, after they could not be applied.
func (b *batch) undo() {
	for _, q := range b.states {
		q.dirty = true
	}
}

// sink is the Runner as its source sees it.
type sink Runner

// Wanted implements Sink.
func (s *sink) Wanted() (queries []Query, replaced <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted, s.replaced
}

// Report implements Sink.
func (s *sink) Report(q Query, endpoints []Endpoint) {
	a := fold(endpoints, s.cfg.MaxEndpoints)
	now := time.Now()
	s.mu.Lock()
	state := s.queries[q]
	if state == nil {
		s.mu.Unlock()
		return // no longer wanted
	}
	recovered := s.err != ""
	s.restarts, s.err = 0, ""
	s.counts.Answers++
	state.latest, state.dirty, state.known = a, true, true
	state.answered, state.err, state.warning, state.failures, state.expired = now, "", "", 0, false
	s.mu.Unlock()
	if recovered {
		s.cfg.Log.Info("endpoint provider answers again", "provider", s.cfg.Name)
	}
	(*Runner)(s).wakeUp()
}

// Confirm implements Sink.
func (s *sink) Confirm(q Query) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.queries[q]; state != nil && state.known && state.err == "" {
		state.answered = now
		s.counts.Answers++
	}
}

// Warn implements Sink.
func (s *sink) Warn(q Query, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.queries[q]; state != nil {
		state.warning = fmt.Sprint(err)
	}
}

// Failed implements Sink.
func (s *sink) Failed(q Query, err error) {
	s.mu.Lock()
	if state := s.queries[q]; state != nil {
		state.err = fmt.Sprint(err)
		state.failures++
		s.counts.Failures++
	}
	s.mu.Unlock()
	(*Runner)(s).wakeUp()
}

// FailedAll implements Sink.
func (s *sink) FailedAll(err error) {
	queries, _ := s.Wanted()
	for _, q := range queries {
		s.Failed(q, err)
	}
}
