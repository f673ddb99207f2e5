package discovery

import (
	"context"
	"slices"
	"sync"
	"time"
)

// debouncer collects names for a settle time and reports them together.
type debouncer struct {
	tell   func(hosts []string)
	settle time.Duration
	kick   chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	hosts map[string]struct{}
}

// newDebouncer starts a goroutine that calls tell, unless tell is nil.
func newDebouncer(tell func(hosts []string), settle time.Duration) *debouncer {
	n := &debouncer{tell: tell, settle: settle, kick: make(chan struct{}, 1), hosts: map[string]struct{}{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if tell != nil {
		n.done.Go(n.run)
	}
	return n
}

func (n *debouncer) close() {
	n.cancel()
	n.done.Wait()
}

// add schedules a name for the next report.
func (n *debouncer) add(host string) {
	if n.tell == nil {
		return
	}
	n.mu.Lock()
	n.hosts[host] = struct{}{}
	n.mu.Unlock()
	select {
	case n.kick <- struct{}{}:
	default: // a report is already scheduled
	}
}

func (n *debouncer) run() {
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.kick:
		}
		select {
		case <-n.ctx.Done():
			return
		case <-time.After(n.settle):
		}
		n.mu.Lock()
		hosts := make([]string, 0, len(n.hosts))
		for h := range n.hosts {
			hosts = append(hosts, h)
		}
		clear(n.hosts)
		n.mu.Unlock()
		if len(hosts) > 0 {
			slices.Sort(hosts)
			n.tell(hosts)
		}
	}
}
