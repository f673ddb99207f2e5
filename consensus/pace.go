package consensus

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// pace keeps a leader's heartbeats apart. Raft sends one to each server ten
// times in Config.Heartbeat, twice as often as anybody looks, and nearly all
// that an idle cluster does and sends is that. Here each waits a while more
// before it goes, but for when somebody waits for its answer: reads do.
type pace struct {
	gap time.Duration

	mu      sync.Mutex
	until   time.Time     // heartbeats do not wait before that
	hurried chan struct{} // closed when those that wait shall go
}

// newPace takes the times of Raft. A heartbeat goes out after a tenth to a
// fifth of heartbeat and the gap; that is three fifths of the lease at most,
// so that a leader keeps its lease, and the others their leader, when one is
// late.
func newPace(heartbeat, lease time.Duration) *pace {
	return &pace{gap: max(0, lease*3/5-heartbeat/5), hurried: make(chan struct{})}
}

// isHeartbeat tells heartbeats as Raft's own transport does.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}

// wait lets a heartbeat wait for its time.
func (p *pace) wait() {
	p.mu.Lock()
	hurry, hurried := time.Now().Before(p.until), p.hurried
	p.mu.Unlock()
	if hurry || p.gap == 0 {
		return
	}
	timer := time.NewTimer(p.gap)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hurried:
	}
}

// hurry lets the heartbeats go that wait, and those that come next.
func (p *pace) hurry() { p.hurryFor(p.gap) }

// end lets all heartbeats go: Raft, when it ends, waits for them.
func (p *pace) end() { p.hurryFor(time.Hour) }

func (p *pace) hurryFor(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(d)
	close(p.hurried)
	p.hurried = make(chan struct{})
}
