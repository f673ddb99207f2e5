package discovery

import (
	"context"
	"slices"
	"sync"
	"time"
)

// debouncer collects names for a settle time and reports them together.
type debouncer struct {
	report func(hosts []string)
	settle time.Duration
	wake   chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	hosts map[string]struct{}
}

// newDebouncer starts a goroutine that calls tell, unless tell is nil.
func newDebouncer(tell func(hosts []string), settle time.Duration) *debouncer {
	d := &debouncer{report: tell, settle: settle, wake: make(chan struct{}, 1), hosts: map[string]struct{}{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if tell != nil {
		d.done.Go(d.run)
	}
	return d
}

func (d *debouncer) close() {
	d.cancel()
	d.done.Wait()
}

// add schedules a name for the next report.
func (d *debouncer) add(host string) {
	if d.report == nil {
		return
	}
	d.mu.Lock()
	d.hosts[host] = struct{}{}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default: // a report is already scheduled
	}
}

func (d *debouncer) run() {
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-d.wake:
		}
		select {
		case <-d.ctx.Done():
			return
		case <-time.After(d.settle):
		}
		d.mu.Lock()
		hosts := make([]string, 0, len(d.hosts))
		for h := range d.hosts {
			hosts = append(hosts, h)
		}
		clear(d.hosts)
		d.mu.Unlock()
		if len(hosts) > 0 {
			slices.Sort(hosts)
			d.report(hosts)
		}
	}
}
