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
	queued  *turns           // while it waits; nil: it need not
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
	turns, wait, ok := takeAll(l.buckets, limit.Connections, q.Now)
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
	l.queued = turns
	c.SetPacer(l, wait)
	return netio.OK
}

// takeAll takes one unit from each bucket, or none from any. wait is the longest
// wait of them, for which there are turns; without ok it is that of the one which refused.
func takeAll(buckets []*limit.Bucket, d limit.Dimension, now int64) (t *turns, wait time.Duration, ok bool) {
	for i, b := range buckets {
		w, ok := b.Take(d, 1, now)
		if !ok {
			for _, taken := range buckets[:i] {
				taken.Return(d, 1, now)
			}
			return nil, w, false
		}
		if wait = max(wait, w); w > 0 {
			if t == nil {
				t = &turns{last: now}
			}
			t.last = max(t.last, now+int64(b.MaxWait()))
			t.of = append(t.of, turn{b, now + int64(w), b.Rate(d)})
		}
	}
	return t, wait, true
}

// turns are what a connection or request waits for. By the rate at which it began to wait
// that may take longer than it may: a node's part of a limit of the cluster grows.
type turns struct {
	of   []turn
	last int64 // routing.LimitClock when it gives up
}

// turn is a place in the queue of a bucket: that of a unit which has been taken.
type turn struct {
	*limit.Bucket
	at   int64   // by the highest rate since
	rate float64 // that rate
}

// wait returns for how long the turns are still to be waited for. A rate may have risen: they
// come earlier then, and at the latest when the bucket owes nothing. Without ok the time to
// wait is over, and the units of all buckets are returned.
func (t *turns) wait(d limit.Dimension, buckets []*limit.Bucket) (wait time.Duration, ok bool) {
	if t == nil {
		return 0, true
	}
	now := routing.LimitClock()
	for i := range t.of {
		b := &t.of[i]
		if rate := b.Rate(d); rate > b.rate {
			b.at, b.rate = now+int64(float64(b.at-now)*b.rate/rate), rate
		}
		wait = max(wait, min(time.Duration(b.at-now), b.Debt(d, now)))
	}
	if wait <= 0 || now < t.last {
		return wait, true
	}
	for _, b := range buckets {
		b.GiveUp(d, 1, now)
	}
	return wait, false
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
func (l *connLimits) Delay() (time.Duration, netio.Reason) {
	wait, ok := l.queued.wait(limit.Connections, l.buckets)
	if !ok {
		return wait, RateLimited
	}
	return wait, netio.OK
}

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
	turns, wait, ok := takeAll(buckets, limit.Requests, now)
	if !ok {
		return wait, false
	}
	for ; wait > 0; wait, ok = turns.wait(limit.Requests, buckets) {
		if !ok {
			return wait, false
		}
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
