package rpc

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"penstock/node/api"
)

// A response may be a million times as large as its request. So that a caller
// that requests many and reads none cannot fill the node's memory, few are
// built at once, and the bytes of unread ones are bounded. Readers have limits
// of their own, so that they do not delay admins.

const (
	// maxBuilding bounds the responses being built, per limiter.
	maxBuilding = 2
	// maxUnwritten bounds the bytes of built responses that are not written yet. A
	// larger response counts as this many and is sent alone.
	maxUnwritten = 64 << 20
)

// responseLimiter limits the large responses of one group of callers.
type responseLimiter struct {
	building  chan struct{}
	unwritten *semaphore.Weighted
}

func newResponseLimiter() *responseLimiter {
	return &responseLimiter{make(chan struct{}, maxBuilding), semaphore.NewWeighted(maxUnwritten)}
}

// LargeResponse waits until the caller may build a large response. A handler
// calls it after everything else that it waits for; a stream calls it before
// each large item.
func LargeResponse(ctx context.Context) error {
	r := requestOf(ctx)
	if r == nil || r.limiter == nil || r.releaseBuild != nil {
		return nil
	}
	select {
	case r.limiter.building <- struct{}{}:
		r.releaseBuild = sync.OnceFunc(func() { <-r.limiter.building })
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendLarge sends a response whose handler has called LargeResponse. It lets
// the next handler build once the response is encoded and fits within
// maxUnwritten.
func (c *serverConn) sendLarge(ctx context.Context, r *request, kind frameType, id uint64, body any) error {
	b, err := encode(body)
	if err != nil {
		return c.sendError(id, api.Errorf(api.Internal, "%v", err))
	}
	n := min(int64(len(b)), maxUnwritten)
	if err := r.limiter.unwritten.Acquire(ctx, n); err != nil {
		return c.sendError(id, asError(err))
	}
	defer r.limiter.unwritten.Release(n)
	r.releaseBuild()
	r.releaseBuild = nil
	return c.send(kind, id, raw(b))
}
