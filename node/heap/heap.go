// Package heap sets the pace of Go's collector for a process that is a proxy:
// busy for a while, then calm with many idle connections. It concerns the
// whole process, so the command uses it and no library does.
//
//	go heap.Keep(ctx)
//
// Go's own rule is to collect when the heap has doubled, but from 4 MB on.
// Handshakes allocate 50 KB each, so a small node would collect after every
// hundred of them: a twentieth of its time. Here the heap may always grow by
// 32 MB before it is collected. Only small heaps are concerned; from 32 MB on
// the rule is Go's.
//
// In return, memory goes back to the system when the work is over. Go's own
// rule keeps twice of what is in use, for minutes at least; here, once a
// process allocates almost nothing any more, it is collected, and what is not
// in use is given back. What is idle then costs what it holds and no more.
//
// Whoever sets GOGC has chosen otherwise, and is left alone. GOMEMLIMIT goes
// well with it: the runtime collects earlier when it comes near the limit. It
// does not do the same. 1,500 TLS handshakes and then nothing, with 4 and 60 MB
// of other content, on two busy cores; automemlimit sets the limit that
// GOMEMLIMIT sets, from the cgroup's, and sets none where that has none:
//
//	                      collections   resident 5 s later
//	Keep                    5,  3        17 MB,  73 MB
//	Go's defaults          31,  3        25 MB, 129 MB
//	GOMEMLIMIT=128MiB      30,  4        25 MB, 121 MB
//	the same, GOGC=off      1,  3       118 MB, 122 MB
//
// A trim takes some 10 to 20 ms of CPU, once after the work.
package heap

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// room is by how much the heap may grow between two collections, at
	// least; Go's minimum of 4 MB becomes the same at maxPercent.
	room       = 32 << 20
	maxPercent = 800
	minPercent = 100 // Go's default

	// tick is how often the work is looked at; a tick is calm with
	// allocations below calm.
	tick = 500 * time.Millisecond
	calm = 512 << 10
	// worthwhile is how much must be unused for a trim, besides a share of
	// the live heap.
	worthwhile = 512 << 10
	// rest is how long the next trim waits, times what the last one took:
	// they take up to four percent of the time of a process that is busy and
	// calm by turns.
	rest    = 25
	maxRest = 10 * time.Second
)

// Keep sets the pace until ctx ends.
func Keep(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	collected := make(chan struct{}, 1)
	watch(ctx, collected)
	before := debug.SetGCPercent(maxPercent)
	defer debug.SetGCPercent(before)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	set, pace := maxPercent, pace{}
	for {
		select {
		case <-collected:
			if want := percent(read().live); want != set {
				set = want
				debug.SetGCPercent(want)
			}
		case now := <-ticker.C:
			if pace.trims(read(), now) {
				debug.FreeOSMemory()
				pace.trimmed(now, time.Since(now))
			}
		case <-ctx.Done():
			return
		}
	}
}

// percent is the collector's setting for a live heap of that size, in steps of
// 20, because a change stops the world for a moment.
func percent(live uint64) int {
	p := int(room * 100 / max(live, 1<<20))
	return min(max(p-p%20, minPercent), maxPercent)
}

// usage is the state of the heap, in bytes.
type usage struct {
	live      uint64 // found by the last collection
	resident  uint64 // objects, dead ones too, and free memory not given back
	allocated uint64 // since the start
}

func read() usage {
	s := [...]metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(s[:])
	value := func(i int) uint64 {
		if s[i].Value.Kind() != metrics.KindUint64 {
			return 0 // another version of Go
		}
		return s[i].Value.Uint64()
	}
	return usage{live: value(0), resident: value(1) + value(2), allocated: value(3)}
}

// pace decides when memory is given back.
type pace struct {
	last  usage     // a tick ago
	calm  int       // ticks in a row that were
	next  time.Time // no trim before
	since uint64    // allocated when the last trim was decided
}

// trims tells whether now is the moment, a tick after the last time: there is
// much that is not in use, or may be. What the last collection found alive in
// the middle of the work may have ended with it, and nothing is allocated
// that would lead to another. One calm tick alone may be that of a process that
// waits for a busy machine.
func (p *pace) trims(u usage, now time.Time) bool {
	p.calm++
	if u.allocated-p.last.allocated >= calm {
		p.calm = 0
	}
	p.last = u
	unused := u.resident > u.live+max(worthwhile, u.live/8)
	worked := u.allocated-p.since > max(room/2, u.live/16)
	if p.calm < 2 || now.Before(p.next) || !unused && !worked {
		return false
	}
	p.since = u.allocated
	return true
}

// trimmed notes that one began then and took that long.
func (p *pace) trimmed(began time.Time, took time.Duration) {
	p.next = began.Add(min(rest*took, maxRest))
}

// watch tells of each collection, until ctx ends: an object that nobody holds
// is found dead by each, and makes the next one.
func watch(ctx context.Context, collected chan<- struct{}) {
	type sentinel struct{ _ [16]byte } // too large to share its block with others
	runtime.AddCleanup(new(sentinel), func(struct{}) {
		if ctx.Err() != nil {
			return
		}
		watch(ctx, collected) // first: whoever is told may collect at once
		select {
		case collected <- struct{}{}:
		default:
		}
	}, struct{}{})
}
