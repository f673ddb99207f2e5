package admin

import (
	"context"
	"sync"
)

// workers runs requests. Goroutines are reused, since their stacks have already
// grown, which is much of the cost of a small request.
type workers struct {
	ctx  context.Context // ends with the server
	next chan func()     // to idle workers
	rest chan struct{}   // holds one token per idle worker
	all  sync.WaitGroup
}

// maxResting bounds the idle goroutines.
const maxResting = 32

func newWorkers(ctx context.Context) *workers {
	return &workers{ctx: ctx, next: make(chan func()), rest: make(chan struct{}, maxResting)}
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
