// Package heap tunes Go's garbage collector for a proxy process: busy for a while,
// then calm with many idle connections. It affects the whole process, so only the
// command uses it, not a library.
//
//	go heap.Tune(ctx)
//
// By default Go collects when the heap has doubled, but at 4 MB at the earliest.
// Handshakes allocate 50 KB each, so a small node would collect after every
// hundred of them: a twentieth of its time. With this package the heap grows by at
// least 32 MB between collections. This changes small heaps only; from 32 MB on
// Go's default applies.
//
// In return, memory is returned to the system when the work is over. By default Go
// keeps twice the memory in use, for minutes at least; this package collects and
// returns unused memory once the process allocates almost nothing any more. Idle
// connections then cost no more memory than they hold.
//
// Tune does nothing if GOGC is set. GOMEMLIMIT can be combined with it: the runtime
// collects earlier near the limit. It does not replace this package. The table
// shows 1,500 TLS handshakes and then nothing, with 4 and 60 MB of other content,
// on two busy cores. (automemlimit sets the same limit as GOMEMLIMIT from the
// cgroup's limit, and none if the cgroup has none.)
//
//	                      collections   resident 5 s later
//	Tune                    5,  3        17 MB,  73 MB
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
	// minGrowth is the minimum growth of the heap between two collections, in bytes.
	// maxPercent raises Go's minimum heap of 4 MB to the same size.
	minGrowth  = 32 << 20
	maxPercent = 800
	minPercent = 100 // Go's default

	// tick is the sampling interval. A tick with fewer than calm allocated bytes
	// is calm.
	tick      = 500 * time.Millisecond
	calmBytes = 512 << 10
	// minTrim is the minimum of unused memory for a trim, in bytes; with a
	// large live heap it is an eighth of that.
	minTrim = 512 << 10
	// restFactor is the pause after a trim, as a multiple of its duration: so trims
	// take at most four percent of the time of a process that alternates between
	// busy and calm. maxRest bounds the pause.
	restFactor = 25
	maxRest    = 10 * time.Second
)

// Tune tunes the collector until ctx ends.
func Tune(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	collected := make(chan struct{}, 1)
	signalCollections(ctx, collected)
	before := debug.SetGCPercent(maxPercent)
	defer debug.SetGCPercent(before)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	set, trim := maxPercent, trimmer{}
	for {
		select {
		case <-collected:
			if want := percentFor(read().live); want != set {
				set = want
				debug.SetGCPercent(want)
			}
		case now := <-ticker.C:
			if trim.shouldTrim(read(), now) {
				debug.FreeOSMemory()
				trim.recordTrim(now, time.Since(now))
			}
		case <-ctx.Done():
			return
		}
	}
}

// percentFor returns the GC percentage for a live heap of that size, in steps of 20:
// each change of the setting stops the world for a moment.
func percentFor(live uint64) int {
	p := int(minGrowth * 100 / max(live, 1<<20))
	return min(max(p-p%20, minPercent), maxPercent)
}

// usage is the state of the heap, in bytes.
type usage struct {
	live      uint64 // live at the last collection
	resident  uint64 // objects, dead ones too, and free memory not returned to the system
	allocated uint64 // total since the start
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

// trimmer decides when memory is returned to the system (a trim).
type trimmer struct {
	last  usage     // at the last tick
	calm  int       // consecutive calm ticks
	next  time.Time // no trim before
	since uint64    // usage.allocated at the last trim
}

// shouldTrim reports, once per tick, whether to trim now: much memory is unused, or may
// be. Memory that was live at the last collection may be dead after the work, and
// too little is allocated to start another collection. It takes two calm ticks,
// because a process that waits for a busy machine may have one.
func (p *trimmer) shouldTrim(u usage, now time.Time) bool {
	p.calm++
	if u.allocated-p.last.allocated >= calmBytes {
		p.calm = 0
	}
	p.last = u
	unused := u.resident > u.live+max(minTrim, u.live/8)
	worked := u.allocated-p.since > max(minGrowth/2, u.live/16)
	if p.calm < 2 || now.Before(p.next) || !unused && !worked {
		return false
	}
	p.since = u.allocated
	return true
}

// recordTrim records when a trim began and how long it took.
func (p *trimmer) recordTrim(began time.Time, took time.Duration) {
	p.next = began.Add(min(restFactor*took, maxRest))
}

// signalCollections signals each collection on collected until ctx ends. It allocates an
// unreachable object, whose cleanup runs after the next collection and allocates
// the next one.
func signalCollections(ctx context.Context, collected chan<- struct{}) {
	type sentinel struct{ _ [16]byte } // too large to share its block with others
	runtime.AddCleanup(new(sentinel), func(struct{}) {
		if ctx.Err() != nil {
			return
		}
		signalCollections(ctx, collected) // before the signal, whose receiver may start a collection
		select {
		case collected <- struct{}{}:
		default:
		}
	}, struct{}{})
}
