package replica

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// heartbeatBatcher sends a leader's heartbeats to all servers at the same time,
// and less often. Raft sends each server five to ten in Config.Heartbeat, each
// at a time of its own. That is more often than any follower checks, and nearly
// all that an idle cluster does; and waking up for each costs more than sending
// it. A heartbeat here waits for the common time, unless a read waits for its
// response.
//
// After a response, the next heartbeat enters the batcher at once, not after a
// timer in Raft: see Replica.requestHeartbeats.
type heartbeatBatcher struct {
	period     time.Duration
	began      time.Time     // start of the first period
	timeToSend chan struct{} // capacity 1; receives when heartbeats go out

	mu            sync.Mutex
	last          map[raft.ServerID]time.Time // when a server's last heartbeat was sent
	releasedUntil time.Time                   // heartbeats do not wait until then
	released      chan struct{}               // closed to release waiting heartbeats
}

// newHeartbeatBatcher returns a batcher that sends every half lease, so that
// one late heartbeat costs neither the leader its lease nor the followers their
// leader.
func newHeartbeatBatcher(lease time.Duration) *heartbeatBatcher {
	return &heartbeatBatcher{
		period: lease / 2, began: time.Now(), timeToSend: make(chan struct{}, 1),
		last: make(map[raft.ServerID]time.Time), released: make(chan struct{}),
	}
}

// isHeartbeat detects heartbeats as Raft's own transport does.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}

// wait blocks until a heartbeat to the server is due.
func (p *heartbeatBatcher) wait(id raft.ServerID) {
	p.mu.Lock()
	now := time.Now()
	wait := p.due(p.last[id], now)
	released, release := now.Before(p.releasedUntil), p.released
	if released {
		wait = 0
	}
	p.recordSent(id, now.Add(wait))
	p.mu.Unlock()
	if wait == 0 {
		if !released {
			p.signal()
		}
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		p.signal()
	case <-release:
		p.mu.Lock()
		p.recordSent(id, time.Now())
		p.mu.Unlock()
	}
}

func (p *heartbeatBatcher) signal() {
	select {
	case p.timeToSend <- struct{}{}:
	default:
	}
}

// due returns how long a heartbeat waits: until the next period begins, or 0 if
// that is more than a period after last.
func (p *heartbeatBatcher) due(last, now time.Time) time.Duration {
	if p.period <= 0 {
		return 0
	}
	wait := p.period - now.Sub(p.began)%p.period
	if now.Add(wait).After(last.Add(p.period + p.period/100)) { // 1% tolerance for late timers
		return 0
	}
	return wait
}

// recordSent records when a heartbeat is sent. The caller holds mu.
func (p *heartbeatBatcher) recordSent(id raft.ServerID, at time.Time) {
	if _, ok := p.last[id]; !ok {
		for id, last := range p.last { // servers that are no longer followers
			if at.Sub(last) > heartbeatIdle {
				delete(p.last, id)
			}
		}
	}
	p.last[id] = at
}

// release releases the waiting heartbeats and those of the next half period.
func (p *heartbeatBatcher) release() { p.releaseFor(p.period / 2) }

// stop releases all heartbeats: Raft waits for them when it shuts down.
func (p *heartbeatBatcher) stop() { p.releaseFor(time.Hour) }

func (p *heartbeatBatcher) releaseFor(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releasedUntil = time.Now().Add(d)
	close(p.released)
	p.released = make(chan struct{})
}
