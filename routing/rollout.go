package routing

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"penstock/routing/resource"
)

// rollout lays the weights that a route's rollout has come to over those of its
// backendRefs. It reads no clock: when a step is over the leader says so, by a
// resource of its own. A route that has just come begins at its first step at
// once, before the leader has noted it, so that what a change does to traffic
// is known when it is made.
type rollout struct {
	route string
	state *resource.Rollout // as found; nil: there was none
	place RolloutPlace
	refs  []resource.BackendRef // with the weights that are in force
	at    int                   // of the new backend in refs
	tally *Tally                // of connections to it
}

// RolloutPlace is where a rollout is.
type RolloutPlace struct {
	Step   int    `json:"step" yaml:"step"` // from 1
	Steps  int    `json:"steps" yaml:"steps"`
	Weight int    `json:"weight" yaml:"weight"` // of the new backend, in percent
	Phase  string `json:"phase" yaml:"phase"`   // resource.Rollout.Phase
}

// String says it in words.
func (p *RolloutPlace) String() string {
	return fmt.Sprintf("weights of step %d of %d of its rollout, %s at %d %%", p.Step, p.Steps, p.Phase, p.Weight)
}

// Tally counts what becomes of the connections to a rollout's new backend. It
// lives as long as the route leads there; loops count in it without locks.
type Tally struct {
	since                    time.Time // never changed
	connects, failed, resets atomic.Uint64
}

// RolloutCounts are what a node sees of a rollout's new backend. The first three
// only grow, until the process ends or the route leads elsewhere.
type RolloutCounts struct {
	Connects  uint64 // attempts that have ended, and connections for which there was no endpoint to try
	Failed    uint64 // of them
	Resets    uint64 // of those that did not fail: reset before the first byte
	Endpoints int    // of a weight above 0
	Ejected   int    // of them
	// Counting is for how long the first three have been counted. A node that
	// was behind while the route was deleted and made anew has counted on.
	Counting time.Duration
}

// The counting, of a backend that is no rollout's as well.

func (t *Tally) connected() {
	if t != nil {
		t.connects.Add(1)
	}
}

func (t *Tally) failure() {
	if t != nil {
		t.connects.Add(1)
		t.failed.Add(1)
	}
}

func (t *Tally) reset() {
	if t != nil {
		t.resets.Add(1)
	}
}

// putRollout takes in how far a rollout has come; nil: nobody knows any more.
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

// rolloutOf makes the rollout of a route; nil: it has none. What was counted
// goes on where the backend is the same.
func (c *compiler) rolloutOf(name string, r *resource.MeshTCPRoute, before *policy) *rollout {
	at := r.RolloutRef()
	if at < 0 {
		return nil
	}
	state, _ := c.rollouts.Get(name)
	o := &rollout{route: name, state: state, at: at, tally: &Tally{since: c.now}, place: placeOf(r, state)}
	o.refs = slices.Clone(r.To[0].Rules[0].Default.BackendRefs)
	weights := r.RolloutWeights(o.place.Weight)
	for i := range o.refs {
		o.refs[i].Weight = &weights[i]
	}
	// A fork counts by itself what is only played.
	if before != nil && before.rollout != nil && c.like == nil && before.rollout.sameBackend(o) {
		o.tally = before.rollout.tally
	}
	return o
}

// placeOf is where a route's rollout is, by what the leader noted of it.
func placeOf(r *resource.MeshTCPRoute, state *resource.Rollout) RolloutPlace {
	p := RolloutPlace{Step: 1, Steps: len(r.Rollout.Steps), Weight: r.Rollout.Steps[0].Weight, Phase: resource.RolloutRunning}
	if state != nil && state.Of == r.RolloutOf() {
		p.Step, p.Weight, p.Phase = state.Step, state.Weight, state.Phase
	}
	return p
}

func (o *rollout) sameBackend(other *rollout) bool {
	a, b := &o.refs[o.at], &other.refs[other.at]
	return a.Name == b.Name && tagList(a.Tags) == tagList(b.Tags)
}

// upToDate tells whether nothing more is noted of the rollout than was found.
func (o *rollout) upToDate(c *compiler) bool {
	if o == nil {
		return true
	}
	state, _ := c.rollouts.Get(o.route)
	return state == o.state
}

// backendRefs are those of a policy: with a rollout's weights, or as the route
// has them.
func (o *rollout) backendRefs(own []resource.BackendRef) []resource.BackendRef {
	if o == nil {
		return own
	}
	return o.refs
}

// count has connections that these shares send to the new backend counted, and
// none that come there by another way.
func (o *rollout) count(sh *shares) {
	if o == nil || sh.refs[o.at].backend == nil {
		return
	}
	x := &sh.refs[o.at]
	counted := *x.backend
	counted.tally = o.tally
	if i := slices.Index(sh.live, x.backend); i >= 0 && x.skipped == "" {
		sh.live[i] = &counted
	}
	x.backend = &counted
}

// nobody counts a connection that is closed since none of the backends leads
// anywhere: while the new one gets a part, it has failed as well. At 100 % there
// is no other that could take its part.
func (o *rollout) nobody() {
	if o != nil && o.place.Weight > 0 {
		o.tally.failure()
	}
}

// where tells where the rollout is; nil: there is none.
func (o *rollout) where() *RolloutPlace {
	if o == nil {
		return nil
	}
	return &o.place
}

// RolloutCounts gives what is seen of the new backend of a route's rollout;
// false where there is no such route, none of its destination, or no rollout.
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
	counts.Connects, counts.Failed, counts.Resets = o.tally.connects.Load(), o.tally.failed.Load(), o.tally.resets.Load()
	counts.Counting = max(0, now.Sub(o.tally.since))
	if b := s.policies[i].refs[o.at].backend; b != nil {
		for _, m := range b.pool.Members() {
			if m.Weight == 0 {
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

// summarizeRollout are the sentences about rollouts that a change begins or ends.
func (tr *WhatIf) summarizeRollout() (words []string) {
	for _, name := range tr.routes {
		before, _ := tr.table.routes.Get(name)
		after, _ := tr.after.routes.Get(name)
		was, is := "", ""
		if before != nil {
			was = before.RolloutOf()
		}
		if after != nil {
			is = after.RolloutOf()
		}
		state, _ := tr.table.rollouts.Get(name)
		begun := "begins"
		if was != "" {
			begun = "begins anew"
		}
		switch {
		case was == is:
		case is == "" && after != nil:
			place := placeOf(before, state)
			words = append(words, fmt.Sprintf("%s: its rollout ends, %s at step %d of %d, %d %%: the route's own weights act", name, place.Phase, place.Step, place.Steps, place.Weight))
		case is != "":
			words = append(words, fmt.Sprintf("%s: a rollout %s: %s", name, begun, after.RolloutText()))
		}
	}
	return words
}
