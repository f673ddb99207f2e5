package consensus

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// heartbeatBatcher keeps a leader's heartbeats apart, and brings those to all servers
// together. Raft sends one to each ten times in Config.Heartbeat, each when its
// own time has come. That is more often than anybody looks, and nearly all
// that an idle cluster does; and what costs is to wake up for each, more than
// to send it. Here each waits until it is time for all, but for when somebody
// waits for its answer: reads do.
//
// They come here at once when they have their answers, and not by a timer of
// Raft for each: see drum.
type heartbeatBatcher struct {
	period     time.Duration
	began      time.Time     // a period begins then, and after each period
	timeToSend chan struct{} // has room for one: heartbeats go out

	mu      sync.Mutex
	last    map[raft.ServerID]time.Time // when a server's last heartbeat went
	until   time.Time                   // heartbeats do not wait before that
	hurried chan struct{}               // closed when those that wait shall go
}

// newHeartbeatBatcher takes the lease. A server's heartbeats go out half of it apart, so
// that a leader keeps its lease, and the others their leader, when one is late.
func newHeartbeatBatcher(lease time.Duration) *heartbeatBatcher {
	return &heartbeatBatcher{
		period: lease / 2, began: time.Now(), timeToSend: make(chan struct{}, 1),
		last: make(map[raft.ServerID]time.Time), hurried: make(chan struct{}),
	}
}

// isHeartbeat tells heartbeats as Raft's own transport does.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}

// wait lets a heartbeat wait for its time.
func (p *heartbeatBatcher) wait(id raft.ServerID) {
	p.mu.Lock()
	now := time.Now()
	wait := p.due(p.last[id], now)
	hurry, hurried := now.Before(p.until), p.hurried
	if hurry {
		wait = 0
	}
	p.note(id, now.Add(wait))
	p.mu.Unlock()
	if wait == 0 {
		if !hurry {
			p.tell()
		}
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		p.tell()
	case <-hurried:
		p.mu.Lock()
		p.note(id, time.Now())
		p.mu.Unlock()
	}
}

func (p *heartbeatBatcher) tell() {
	select {
	case p.timeToSend <- struct{}{}:
	default:
	}
}

// due is how long a heartbeat waits: until the next period begins, unless the
// one before would be longer ago than a period then.
func (p *heartbeatBatcher) due(last, now time.Time) time.Duration {
	if p.period <= 0 {
		return 0
	}
	wait := p.period - now.Sub(p.began)%p.period
	if now.Add(wait).After(last.Add(p.period + p.period/100)) { // timers are late
		return 0
	}
	return wait
}

// note notes down when a heartbeat goes. The caller holds mu.
func (p *heartbeatBatcher) note(id raft.ServerID, at time.Time) {
	if _, ok := p.last[id]; !ok {
		for id, last := range p.last { // servers that are not led any more
			if at.Sub(last) > heartbeatIdle {
				delete(p.last, id)
			}
		}
	}
	p.last[id] = at
}

// hurry lets the heartbeats go that wait, and those that come next.
func (p *heartbeatBatcher) hurry() { p.hurryFor(p.period / 2) }

// end lets all heartbeats go: Raft, when it ends, waits for them.
func (p *heartbeatBatcher) end() { p.hurryFor(time.Hour) }

func (p *heartbeatBatcher) hurryFor(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(d)
	close(p.hurried)
	p.hurried = make(chan struct{})
}
