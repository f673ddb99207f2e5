package catalog

import (
	"runtime"
	"sync"
)

// alone is the minimum number of resources per core.
const alone = 256

// inParallel calls do for consecutive ranges of 0 to n-1, on several cores if
// there is enough work.
func inParallel(n int, do func(from, to int)) {
	parts := min(runtime.GOMAXPROCS(0), n/alone)
	if parts < 2 {
		do(0, n)
		return
	}
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() { do(i*n/parts, (i+1)*n/parts) })
	}
	wg.Wait()
}
