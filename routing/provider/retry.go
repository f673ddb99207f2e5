package provider

import (
	"context"
	"math/rand/v2"
	"time"
)

// The pause after a failure is firstRetry, then twice as long each time, up to
// maxRetry, each with jitter.
const (
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
)

// Backoff returns how long to wait before the next attempt, after a failure that
// follows that many others in a row: 1s, 2s, 4s and so on up to 30s, each from
// half to one and a half times.
func Backoff(before int) time.Duration {
	d := min(firstRetry<<min(before, 10), maxRetry)
	return d/2 + rand.N(d)
}

// Sleep waits for a time. It returns false if ctx ended before.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
