package routing

import (
	"fmt"
	"strings"
	"time"

	"penstock/routing/limit"
)

// RateLimited is the reason of connections and requests that a RateLimit refuses.
const RateLimited Reason = "rate_limited"

// LimitSteps returns a step for each rate limit that applies, and RateLimited if one would
// refuse the connection or request now. It takes nothing from any budget. With q.Kafka
// topic is the topic whose limits are asked for, or "".
func (t *Table) LimitSteps(q *LimitQuery, topic string) (steps []Step, reason Reason) {
	if t.limits == nil {
		return nil, OK
	}
	l, ok := t.listeners.Get(q.Input.Listener)
	if !ok {
		l = &noListener
	}
	src := t.source(q.Input, l)
	for r := range t.limits.candidates(q) {
		if !r.counts(q) || !r.selects(q, &src) || r.spec.By == byTopic && topic == "" {
			continue
		}
		key := limit.Key{Text: topic, Cluster: q.Cluster}
		if r.spec.By != byTopic {
			key = r.key(q, &src)
		}
		step, refused := r.step(q, key)
		if steps = append(steps, step); refused {
			reason = RateLimited
		}
	}
	return steps, reason
}

// step explains one limit.
func (r *rateLimit) step(q *LimitQuery, key limit.Key) (s Step, refused bool) {
	s = Step{Name: "limit", Looked: "RateLimit " + r.state.Name() + ", by " + r.spec.By}
	if text := key.String(); text != "" {
		s.Looked += fmt.Sprintf(" (%q)", text)
	} else if r.spec.By != "all" {
		s.Looked += " (no key: shares a budget with all such clients)"
	}
	b, ok := r.state.Find(key)
	if !ok {
		s.Result = "its budget is unused: admitted"
		return s, false
	}
	defer b.Release()
	var parts []string
	for _, d := range q.dimensions() {
		if !b.Bounds(d) {
			continue
		}
		used, wait := b.Used(d, q.Now)
		text := fmt.Sprintf("%s: %.0f %% of the burst used", strings.ReplaceAll(d.String(), "_", " "), 100*used)
		switch wait = wait.Round(time.Millisecond); {
		case d != limit.Connections && (d != limit.Requests || q.Kafka != nil):
			if wait > 0 {
				text += fmt.Sprintf(", held back for %v", wait)
			}
		case !b.Would(d, q.Now):
			refused = true
			text += ", refused"
		case wait > 0:
			text += fmt.Sprintf(", waits for %v", wait)
		}
		parts = append(parts, text)
	}
	if most := r.spec.Concurrent; most != nil && !q.Requests && q.Kafka == nil {
		text := fmt.Sprintf("concurrent: %d of %d", b.Concurrent(), *most)
		if b.Concurrent() >= int64(*most) {
			refused = true
			text += ", refused"
		}
		parts = append(parts, text)
	}
	s.Result = strings.Join(parts, "; ")
	return s, refused
}

// dimensions lists what is counted of what the query asks for.
func (q *LimitQuery) dimensions() []limit.Dimension {
	switch {
	case q.Kafka != nil:
		return []limit.Dimension{limit.Requests, limit.Produce, limit.Fetch}
	case q.Requests:
		return []limit.Dimension{limit.Requests}
	}
	return []limit.Dimension{limit.Connections, limit.BytesIn, limit.BytesOut}
}

// limits adds the steps of the limits that apply to a connection, or to a request of it.
func (tr *trace) limits(t *Table, in *Input, service string, requests bool) Reason {
	steps, reason := t.LimitSteps(&LimitQuery{Input: in, Service: service, Requests: requests, Now: LimitClock()}, "")
	for _, s := range steps {
		tr.add(s)
	}
	return reason
}

// PermissionStep explains whether a client may connect to a virtual cluster of Kafka.
func (t *Table) PermissionStep(in *Input, cluster string) (s Step, reason Reason) {
	v := t.ClusterPermission(in, cluster)
	if !v.Allowed() {
		reason = PermissionDenied
	}
	return Step{Name: "permission", Looked: "connections to " + cluster, Result: verdictText(&v)}, reason
}
