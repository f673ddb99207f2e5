package web

import (
	"sync"
	"time"
)

var _ Request = (*request)(nil)

// End implements Request.
func (q *request) End(why error) { q.finish(why) }

// Idle implements Request.
func (q *request) Idle() (rank int, d time.Duration) {
	switch {
	case q.replied.Load():
		return 0, time.Since(q.begun)
	case q.body.idle() > 0:
		return 2, q.body.idle()
	}
	return 1, time.Since(q.begun)
}

// idle is how long the client has been waited for; 0: it is not. b may be nil.
func (b *clientBody) idle() time.Duration {
	if b == nil {
		return 0
	}
	since := b.waits.Load()
	if since == 0 {
		return 0
	}
	return time.Since(b.request.begun) - time.Duration(since)
}

// watch ends the request when its client keeps it waiting for that long, until
// an answer has begun or the result is called. A stream of which both sides may
// be silent, such as gRPC's, has an answer that begins. What waits for the
// endpoint to take more is not the client's fault.
func (b *clientBody) watch(limit time.Duration) (stop func()) {
	if limit <= 0 {
		return func() {}
	}
	var mu sync.Mutex
	over := false
	var timer *time.Timer
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		if over || b.request.replied.Load() {
			return
		}
		left := limit - b.idle()
		if left > 0 {
			timer.Reset(left)
			return
		}
		b.request.finish(ErrBodyIdle)
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(limit, look)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}
