package leader

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Clock tracks the offset between this node's clock and the leader's. Tokens
// expire by the leader's clock, which also sets their expiry: by each node's
// own clock, a token could be expired on one node and valid on another.
type Clock struct {
	Tracker *Tracker
	Log     *slog.Logger

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

// Now returns the time by which tokens expire: the leader's, as last measured,
// or this node's own.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if c.Tracker.Self() {
		return now
	}
	return now.Add(time.Duration(c.ahead.Load()))
}

// Note measures the offset from the leader's time in the answer to a
// request that was sent at asked. millis is 0 if the answer is not from the
// leader, or from a version that does not send it.
func (c *Clock) Note(millis int64, asked time.Time) {
	if millis == 0 {
		return
	}
	ahead := time.UnixMilli(millis).Sub(asked.Add(time.Since(asked) / 2).Round(0))
	if ahead.Abs() < clockGrain {
		ahead = 0
	}
	c.ahead.Store(int64(ahead))
	told := time.Duration(c.logged.Load())
	if (ahead - told).Abs() < clockLogStep {
		return
	}
	c.logged.Store(int64(ahead))
	switch {
	case ahead.Abs() >= clockLogStep:
		c.Log.Warn("this node's clock and the leader's are apart: set them; tokens expire by the leader's",
			"leader_is_ahead_by", ahead.Round(time.Second))
	case told.Abs() >= clockLogStep:
		c.Log.Info("this node's clock and the leader's agree again", "leader_is_ahead_by", ahead.Round(time.Second))
	}
}
