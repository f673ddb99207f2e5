package admin

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// An answer may be a million times as large as its request. Whoever asks for
// many and reads none must not fill the node's memory: few are made at once,
// those that wait to be taken are bounded, and the next is made when there is
// room. Readers have a share of their own, so that they do not hold up admins.

const (
	// largeAtOnce answers are being made at once, of one share.
	largeAtOnce = 2
	// maxUntaken bounds the bytes of those made and not taken; one that is
	// larger has it alone.
	maxUntaken = 64 << 20
)

// share is what bounds the large answers of some callers.
type share struct {
	making  chan struct{}
	untaken *semaphore.Weighted
}

func newShare() *share {
	return &share{make(chan struct{}, largeAtOnce), semaphore.NewWeighted(maxUntaken)}
}

// LargeResponse waits for its turn to make an answer that may be large. A handler calls
// it before it begins to, and after whatever it has to wait for; that of a
// stream before each item that is.
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

// sendLarge sends a frame of a request that has called LargeResponse: its turn is over
// when the bytes are there and have a place.
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
