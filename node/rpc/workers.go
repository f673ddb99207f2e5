package rpc

import (
	"context"
	"sync"
)

// workers runs requests. Goroutines are reused, since their stacks have already
// grown, which is much of the cost of a small request.
type workers struct {
	ctx  context.Context // ends with the server
	next chan func()     // to idle workers
	idle chan struct{}   // holds one token per idle worker
	all  sync.WaitGroup
}

// maxIdleWorkers bounds the idle goroutines.
const maxIdleWorkers = 32

func newWorkers(ctx context.Context) *workers {
	return &workers{ctx: ctx, next: make(chan func()), idle: make(chan struct{}, maxIdleWorkers)}
}

// run runs a request in an idle or a new goroutine.
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
		case w.idle <- struct{}{}:
		default:
			return
		}
		select {
		case request = <-w.next:
			<-w.idle
		case <-w.ctx.Done():
			return
		}
	}
}
