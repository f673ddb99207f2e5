package admin

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// A response may be a million times as large as its request. So that a caller
// that requests many and reads none cannot fill the node's memory, few are
// built at once, and the bytes of unread ones are bounded. Readers have limits
// of their own, so that they do not delay admins.

const (
	// largeAtOnce bounds the responses being built, per share.
	largeAtOnce = 2
	// maxUntaken bounds the bytes of built responses that are not written yet. A
	// larger response counts as this many and is sent alone.
	maxUntaken = 64 << 20
)

// share limits the large responses of one group of callers.
type share struct {
	making  chan struct{}
	untaken *semaphore.Weighted
}

func newShare() *share {
	return &share{make(chan struct{}, largeAtOnce), semaphore.NewWeighted(maxUntaken)}
}

// LargeResponse waits until the caller may build a large response. A handler
// calls it after everything else that it waits for; a stream calls it before
// each large item.
func LargeResponse(ctx context.Context) error {
	r := requestOf(ctx)
	if r == nil || r.share == nil || r.made != nil {
		return nil
	}
	select {
	case r.share.making <- struct{}{}:
		r.made = sync.OnceFunc(func() { <-r.share.making })
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendLarge sends a response whose handler has called LargeResponse. It lets
// the next handler build once the response is encoded and fits within
// maxUntaken.
func (c *serverConn) sendLarge(ctx context.Context, r *request, kind frameType, id uint64, body any) error {
	b, err := encode(body)
	if err != nil {
		return c.sendError(id, Errorf(Internal, "%v", err))
	}
	n := min(int64(len(b)), maxUntaken)
	if err := r.share.untaken.Acquire(ctx, n); err != nil {
		return c.sendError(id, asError(err))
	}
	defer r.share.untaken.Release(n)
	r.made()
	r.made = nil
	return c.send(kind, id, raw(b))
}
