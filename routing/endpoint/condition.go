package endpoint

import (
	"fmt"
	"time"
)

// State is the state of an endpoint as one word, for status, explain and
// metrics.
type State string

// The states, by descending priority: the first that applies is reported.
const (
	// StateUnhealthy: active checks fail.
	StateUnhealthy State = "unhealthy"
	// StateEjected: it failed too often in use.
	StateEjected State = "ejected"
	// StatePaused: it failed to connect, and is skipped for a while.
	StatePaused State = "paused"
	// StateHealthy: active checks pass.
	StateHealthy State = "healthy"
	// StateUnchecked: it has no active check, or none has finished.
	StateUnchecked State = "unchecked"
)

// Condition is the state of an endpoint and the reason for it.
type Condition struct {
	State State
	// Reason is why connections do not go there; "" if they do.
	Reason string
	// Error is the last failure, of a connection or a check, at ErrorAt; "" if
	// there was none. It remains after the endpoint has recovered.
	Error   string
	ErrorAt time.Time
}

// Condition returns an endpoint's condition at that time.
func (g *Group) Condition(e *Endpoint, now time.Time) Condition {
	st := g.History(e, now)
	c := Condition{Error: st.Error, ErrorAt: st.ErrorAt}
	left := func(until time.Time) time.Duration { return until.Sub(now).Round(time.Millisecond) }
	switch {
	case e.Health() == Unhealthy:
		c.State, c.Reason = StateUnhealthy, "its health checks fail"
	case e.Ejected(now):
		c.State, c.Reason = StateEjected, fmt.Sprintf("it is ejected for another %v", left(e.EjectedUntil()))
	case e.Paused(now) && e.PausedUntil().After(now):
		c.State, c.Reason = StatePaused, fmt.Sprintf("it did not connect, and is paused for another %v", left(e.PausedUntil()))
	case e.Paused(now):
		c.State, c.Reason = StatePaused, "it did not connect, and a connection is probing it"
	case e.Health() == Healthy:
		c.State = StateHealthy
	default:
		c.State = StateUnchecked
	}
	if b := g.breaker.Load(); b != nil && c.Reason == "" {
		c.Reason = e.Usage().full(&b.Endpoint)
	}
	return c
}

// NoteError records the error of a failed health check, or of a connect that
// failed because this node lacked a resource.
func (g *Group) NoteError(e *Endpoint, text string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &e.state().record
	r.lastError, r.lastErrorAt = text, Stamp(now)
}
