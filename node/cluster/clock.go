package cluster

import (
	"sync/atomic"
	"time"
)

// clocks is how this node's clock stands to the leader's. Tokens end by the
// leader's clock alone, which also says until when one is to live: by each
// node's own, one would have ended here and live on there.
type clocks struct {
	ahead atomic.Int64 // how far the leader's is ahead, as last heard; ns
	told  atomic.Int64 // what of that the log has
}

const (
	// clockGrain is up to where two clocks count as the same: the way of an
	// answer takes as long.
	clockGrain = 2 * time.Second
	// clockTold is how far apart clocks are when the log says so.
	clockTold = time.Minute
)

// now is the time by which tokens end: the leader's, as far as this node has
// ever heard it, and else its own.
func (c *Cluster) now() time.Time {
	now := time.Now()
	if c.leads() == c.ID() {
		return now
	}
	return now.Add(time.Duration(c.clocks.ahead.Load()))
}

// noteClock takes the leader's time of an answer to a question that was asked
// then; 0: it was not the leader that answered, or one that does not say.
func (c *Cluster) noteClock(millis int64, asked time.Time) {
	if millis == 0 {
		return
	}
	ahead := time.UnixMilli(millis).Sub(asked.Add(time.Since(asked) / 2).Round(0))
	if ahead.Abs() < clockGrain {
		ahead = 0
	}
	c.clocks.ahead.Store(int64(ahead))
	if told := time.Duration(c.clocks.told.Load()); (ahead - told).Abs() >= clockTold {
		c.clocks.told.Store(int64(ahead))
		c.log.Warn("this node's clock and the leader's are apart: set them; tokens end by the leader's", "leader_is_ahead_by", ahead.Round(time.Second))
	}
}
