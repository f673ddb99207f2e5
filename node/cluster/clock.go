package cluster

import (
	"sync/atomic"
	"time"
)

// clocks tracks the offset between this node's clock and the leader's. Tokens
// expire by the leader's clock, which also sets their expiry: by each node's
// own clock, a token could be expired on one node and valid on another.
type clocks struct {
	ahead  atomic.Int64 // how far the leader's clock is ahead, as last measured; ns
	logged atomic.Int64 // the value of ahead that was logged last
}

const (
	// clockGrain is the offset below which two clocks count as equal: an answer
	// may take as long.
	clockGrain = 2 * time.Second
	// clockLogStep is the change of the offset that is logged.
	clockLogStep = time.Minute
)

// now returns the time by which tokens expire: the leader's, as last measured,
// or this node's own.
func (c *Cluster) now() time.Time {
	now := time.Now()
	if c.leaderID() == c.ID() {
		return now
	}
	return now.Add(time.Duration(c.clocks.ahead.Load()))
}

// noteClock measures the offset from the leader's time in the answer to a
// request that was sent at asked. millis is 0 if the answer is not from the
// leader, or from a version that does not send it.
func (c *Cluster) noteClock(millis int64, asked time.Time) {
	if millis == 0 {
		return
	}
	ahead := time.UnixMilli(millis).Sub(asked.Add(time.Since(asked) / 2).Round(0))
	if ahead.Abs() < clockGrain {
		ahead = 0
	}
	c.clocks.ahead.Store(int64(ahead))
	told := time.Duration(c.clocks.logged.Load())
	if (ahead - told).Abs() < clockLogStep {
		return
	}
	c.clocks.logged.Store(int64(ahead))
	switch {
	case ahead.Abs() >= clockLogStep:
		c.log.Warn("this node's clock and the leader's are apart: set them; tokens expire by the leader's",
			"leader_is_ahead_by", ahead.Round(time.Second))
	case told.Abs() >= clockLogStep:
		c.log.Info("this node's clock and the leader's agree again", "leader_is_ahead_by", ahead.Round(time.Second))
	}
}
