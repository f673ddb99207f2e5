package admin

import (
	"context"
	"sync"
)

// workers run requests. A goroutine that has run one is kept for the next, for
// a while: its stack has grown already, which for a small request is much of
// what it costs.
type workers struct {
	ctx  context.Context // ends with the server
	next chan func()     // to those who have nothing to do
	rest chan struct{}   // has one for each of them
	all  sync.WaitGroup
}

// maxResting bounds the goroutines that are kept.
const maxResting = 32

func newWorkers(ctx context.Context) *workers {
	return &workers{ctx: ctx, next: make(chan func()), rest: make(chan struct{}, maxResting)}
}

// run runs a request in a goroutine of its own.
func (w *workers) run(request func()) {
	select {
	case w.next <- request:
	default:
		w.all.Go(func() { w.work(request) })
	}
}

func (w *workers) work(request func()) {
	for {
		request()
		select {
		case w.rest <- struct{}{}:
		default:
			return
		}
		select {
		case request = <-w.next:
			<-w.rest
		case <-w.ctx.Done():
			return
		}
	}
}
