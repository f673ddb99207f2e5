package dataplane

import (
	"context"
	"iter"
	"math"
	"time"

	"penstock/netio"
	"penstock/netio/relay"
	"penstock/routing"
	"penstock/routing/limit"
	"penstock/routing/resource"
)

// RateLimited is the reason of connections and requests that a RateLimit refused.
const RateLimited netio.Reason = "rate_limited"

// connLimits has the buckets of a connection to which rate limits apply, from its
// admission to its end. It paces the connection's bytes.
type connLimits struct {
	buckets []*limit.Bucket
	few     [4]*limit.Bucket // backs buckets
}

var _ netio.Pacer = (*connLimits)(nil)

// limit admits a connection, at once or after a wait, or returns the reason to
// refuse it.
func (t *traffic) limit(c *netio.Conn, table *routing.Table, q *routing.LimitQuery) netio.Reason {
	if !table.HasLimits() {
		return netio.OK
	}
	q.Now = routing.LimitClock()
	l := new(connLimits)
	if l.buckets = table.Limits(l.few[:0], q); len(l.buckets) == 0 {
		return netio.OK
	}
	wait, ok := takeAll(l.buckets, limit.Connections, q.Now)
	if !ok {
		releaseAll(l.buckets)
		return RateLimited
	}
	for i, b := range l.buckets {
		if b.Enter() {
			continue
		}
		for k, entered := range l.buckets {
			if k < i {
				entered.Leave()
			}
			entered.Return(limit.Connections, 1, q.Now)
		}
		releaseAll(l.buckets)
		return RateLimited
	}
	c.SetPacer(l, wait)
	return netio.OK
}

// takeAll takes one unit from each bucket, or none from any. wait is the longest
// wait of them; without ok it is that of the one which refused.
func takeAll(buckets []*limit.Bucket, d limit.Dimension, now int64) (wait time.Duration, ok bool) {
	for i, b := range buckets {
		w, ok := b.Take(d, 1, now)
		if !ok {
			for _, taken := range buckets[:i] {
				taken.Return(d, 1, now)
			}
			return w, false
		}
		wait = max(wait, w)
	}
	return wait, true
}

func releaseAll(buckets []*limit.Bucket) {
	for _, b := range buckets {
		b.Release()
	}
}

// closeLimits returns what a connection held.
func closeLimits(c *netio.Conn) {
	if l, ok := c.Pacer().(*connLimits); ok {
		for _, b := range l.buckets {
			b.Leave()
			b.Release()
		}
	}
}

// dimensionOf returns what the bytes from a side are.
func dimensionOf(from relay.Side) limit.Dimension {
	if from == relay.Client {
		return limit.BytesIn
	}
	return limit.BytesOut
}

// Paces implements netio.Pacer.
func (l *connLimits) Paces(from relay.Side) bool {
	for _, b := range l.buckets {
		if b.Bounds(dimensionOf(from)) {
			return true
		}
	}
	return false
}

// Charge implements netio.Pacer: every budget is charged, and the slowest decides.
func (l *connLimits) Charge(from relay.Side, n int) time.Duration {
	wait, now := time.Duration(0), routing.LimitClock()
	for _, b := range l.buckets {
		wait = max(wait, b.Charge(dimensionOf(from), int64(n), now))
	}
	return wait
}

// Owed implements netio.Pacer.
func (l *connLimits) Owed(from relay.Side) time.Duration { return debt(l.buckets, dimensionOf(from)) }

// Delay implements netio.Pacer.
func (l *connLimits) Delay() time.Duration { return debt(l.buckets, limit.Connections) }

// debt returns the longest time that any bucket owes.
func debt(buckets []*limit.Bucket, d limit.Dimension) (most time.Duration) {
	now := routing.LimitClock()
	for _, b := range buckets {
		most = max(most, b.Debt(d, now))
	}
	return most
}

// Room implements netio.Pacer.
func (l *connLimits) Room(from relay.Side) int64 {
	room, now := int64(math.MaxInt64), routing.LimitClock()
	for _, b := range l.buckets {
		room = min(room, b.Room(dimensionOf(from), now))
	}
	return room
}

// takeBudget takes a request's units from the rate limits that apply, and waits for
// its turn where they let it. Without ok the request is refused, and retry is when it
// may come again.
func (q *request) takeBudget(ctx context.Context, table *routing.Table) (retry time.Duration, ok bool) {
	if !table.HasLimits() {
		return 0, true
	}
	var few [4]*limit.Bucket
	now := routing.LimitClock()
	buckets := table.Limits(few[:0], &routing.LimitQuery{
		Input: &q.client.in, Service: q.client.destination, Requests: true, Now: now,
	})
	defer releaseAll(buckets)
	wait, ok := takeAll(buckets, limit.Requests, now)
	if !ok {
		return wait, false
	}
	// A rate may rise meanwhile.
	for until := now + int64(wait); wait > 0; wait = min(time.Duration(until-routing.LimitClock()), debt(buckets, limit.Requests)) {
		select {
		case <-time.After(min(wait, turnCheck)):
		case <-ctx.Done(): // the request fails where it is forwarded
			return 0, true
		}
	}
	return 0, true
}

// turnCheck is how often a request that waits for its turn looks whether that has come
// nearer.
const turnCheck = 200 * time.Millisecond

// RateLimits iterates over the rate limits in force, by name.
func (d *Dataplane) RateLimits() iter.Seq2[*limit.Limit, *resource.RateLimit] {
	return d.Router.Table().RateLimits()
}
