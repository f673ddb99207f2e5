package routing

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"penstock/routing/resource"
)

// rollout replaces the weights of a route's backendRefs by those of its current
// rollout step. It reads no clock: the leader ends a step by writing a Rollout
// resource. A new route is at its first step at once, before the leader has
// recorded it, so that the effect of a change on traffic is known when it is
// applied.
type rollout struct {
	route    string
	state    *resource.Rollout // at that version; nil if there was none
	progress RolloutProgress
	refs     []resource.BackendRef // with the weights in force
	at       int                   // index of the new backend in refs
	outcomes *outcomeCounter       // of connections to the new backend
}

// RolloutProgress is the current step of a rollout.
type RolloutProgress struct {
	Step   int    `json:"step" yaml:"step"` // from 1
	Steps  int    `json:"steps" yaml:"steps"`
	Weight int    `json:"weight" yaml:"weight"` // of the new backend, in percent
	Phase  string `json:"phase" yaml:"phase"`   // resource.Rollout.Phase
}

// String describes the step.
func (p *RolloutProgress) String() string {
	return fmt.Sprintf("weights of step %d of %d of its rollout, %s at %d %%", p.Step, p.Steps, p.Phase, p.Weight)
}

// outcomeCounter counts the outcomes of connections to a rollout's new backend. It
// exists as long as the route has that backend. Event loops update it without
// locks.
type outcomeCounter struct {
	since                    time.Time // immutable
	connects, failed, resets atomic.Uint64
}

// RolloutCounts are one node's observations of a rollout's new backend. The
// first three only grow, until the process ends or the route gets another
// backend.
type RolloutCounts struct {
	Connects  uint64 // finished attempts, and connections without an endpoint to try
	Failed    uint64 // of them
	Resets    uint64 // of the successful ones: reset before the first byte
	Endpoints int    // with a weight above 0
	Ejected   int    // of them
	// Counting is the duration of the first three counts. A node that missed that
	// the route was deleted and recreated keeps counting.
	Counting time.Duration
}

// Counter methods; a nil outcomeCounter does nothing.

func (t *outcomeCounter) countConnect() {
	if t != nil {
		t.connects.Add(1)
	}
}

func (t *outcomeCounter) countFailure() {
	if t != nil {
		t.connects.Add(1)
		t.failed.Add(1)
	}
}

func (t *outcomeCounter) countReset() {
	if t != nil {
		t.resets.Add(1)
	}
}

// putRollout records the state of a rollout; a nil spec removes it.
func (c *compiler) putRollout(name string, spec resource.Spec) {
	if s, ok := spec.(*resource.Rollout); ok {
		c.rollouts.Set(name, s)
	} else {
		c.rollouts.Delete(name)
	}
	if r, ok := c.routes.Get(name); ok && r.Rollout != nil {
		for _, d := range destinations(r) {
			c.dirtyPolicies[d] = true
		}
	}
}

// rolloutOf builds the rollout of a route, or returns nil if it has none.
// Counts continue if the backend is the same.
func (c *compiler) rolloutOf(name string, r *resource.MeshTCPRoute, before *policy) *rollout {
	at := r.RolloutRef()
	if at < 0 {
		return nil
	}
	state, _ := c.rollouts.Get(name)
	o := &rollout{route: name, state: state, at: at, outcomes: &outcomeCounter{since: c.now}, progress: progressOf(r, state)}
	o.refs = slices.Clone(r.To[0].Rules[0].Default.BackendRefs)
	weights := r.RolloutWeights(o.progress.Weight)
	for i := range o.refs {
		o.refs[i].Weight = &weights[i]
	}
	// A clone counts simulated connections in counters of its own.
	if before != nil && before.rollout != nil && c.cloned == nil && before.rollout.sameBackend(o) {
		o.outcomes = before.rollout.outcomes
	}
	return o
}

// progressOf returns the current step of a route's rollout from the state that the
// leader wrote.
func progressOf(r *resource.MeshTCPRoute, state *resource.Rollout) RolloutProgress {
	p := RolloutProgress{Step: 1, Steps: len(r.Rollout.Steps), Weight: r.Rollout.Steps[0].Weight, Phase: resource.RolloutRunning}
	if state != nil && state.Of == r.RolloutID() {
		p.Step, p.Weight, p.Phase = state.Step, state.Weight, state.Phase
	}
	return p
}

func (o *rollout) sameBackend(other *rollout) bool {
	a, b := &o.refs[o.at], &other.refs[other.at]
	return a.Name == b.Name && tagList(a.Tags) == tagList(b.Tags)
}

// upToDate reports whether the state of the rollout is unchanged.
func (o *rollout) upToDate(c *compiler) bool {
	if o == nil {
		return true
	}
	state, _ := c.rollouts.Get(o.route)
	return state == o.state
}

// backendRefs returns the refs with the rollout's weights, or without a rollout
// the route's own.
func (o *rollout) backendRefs(own []resource.BackendRef) []resource.BackendRef {
	if o == nil {
		return own
	}
	return o.refs
}

// attachCounter attaches the counter to the new backend in these shares.
// Connections that reach it by another route are not counted.
func (o *rollout) attachCounter(sh *shares) {
	if o == nil || sh.refs[o.at].backend == nil {
		return
	}
	x := &sh.refs[o.at]
	counted := *x.backend
	counted.outcomes = o.outcomes
	if i := slices.Index(sh.live, x.backend); i >= 0 && x.skipped == "" {
		sh.live[i] = &counted
	}
	x.backend = &counted
}

// countUnroutable counts a connection that is closed because no backend can
// take it. While the new backend has weight this counts as its failure: at 100
// % no other backend can take its share.
func (o *rollout) countUnroutable() {
	if o != nil && o.progress.Weight > 0 {
		o.outcomes.countFailure()
	}
}

// current returns the current step, or nil without a rollout.
func (o *rollout) current() *RolloutProgress {
	if o == nil {
		return nil
	}
	return &o.progress
}

// RolloutCounts returns the counts of the new backend of a route's rollout, or
// false if the route, its destination or the rollout does not exist.
func (t *Table) RolloutCounts(route string, now time.Time) (counts RolloutCounts, ok bool) {
	r, ok := t.routes.Get(route)
	if !ok || r.Rollout == nil || len(r.To) != 1 {
		return counts, false
	}
	s, ok := t.services.Get(r.To[0].TargetRef.Name)
	if !ok {
		return counts, false
	}
	i := slices.IndexFunc(s.policies, func(p *policy) bool { return p.route == route && p.rollout != nil })
	if i < 0 {
		return counts, false
	}
	o := s.policies[i].rollout
	counts.Connects, counts.Failed, counts.Resets = o.outcomes.connects.Load(), o.outcomes.failed.Load(), o.outcomes.resets.Load()
	counts.Counting = max(0, now.Sub(o.outcomes.since))
	if b := s.policies[i].refs[o.at].backend; b != nil {
		for i, m := range b.pool.Members() {
			if m.Weight == 0 || !b.pool.Matches(i) {
				continue
			}
			counts.Endpoints++
			if m.Ejected(now) {
				counts.Ejected++
			}
		}
	}
	return counts, true
}

// summarizeRollout describes the rollouts that a change starts or ends.
func (w *WhatIf) summarizeRollout() (sentences []string) {
	for _, name := range w.routes {
		before, _ := w.table.routes.Get(name)
		after, _ := w.after.routes.Get(name)
		was, is := "", ""
		if before != nil {
			was = before.RolloutID()
		}
		if after != nil {
			is = after.RolloutID()
		}
		state, _ := w.table.rollouts.Get(name)
		begun := "a rollout begins"
		if was != "" {
			begun = "the rollout restarts"
		}
		switch {
		case was == is:
		case is == "" && after != nil:
			place := progressOf(before, state)
			sentences = append(sentences, fmt.Sprintf("%s: the rollout ends, %s at step %d of %d, %d %%: the route's own weights apply",
				name, place.Phase, place.Step, place.Steps, place.Weight))
		case is != "":
			sentences = append(sentences, fmt.Sprintf("%s: %s: %s", name, begun, after.RolloutText()))
		}
	}
	return sentences
}
