package limit

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func perSecond(n, burst int64) Rate { return Rate{N: n, Per: time.Second, Burst: burst} }

func connections(r Rate, change ...func(*Config)) Config {
	c := Config{MaxKeys: 1000}
	c.Rates[Connections] = r
	for _, f := range change {
		f(&c)
	}
	return c
}

// In no window does a bucket admit more than its burst and what the rate brings, and
// a client that always asks gets all of it but the rounding of one unit.
func TestBucketAdmitsBurstAndRate(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		rate := Rate{N: r.Int64N(1000) + 1, Per: time.Duration(r.Int64N(int64(10*time.Second))) + time.Millisecond, Burst: r.Int64N(50) + 1}
		b := New("l", connections(rate), 0).Bucket(Key{}, 0)
		var admitted []int64
		end := int64(0)
		for range 2000 {
			end += r.Int64N(int64(rate.Per)/rate.N + 2)
			if wait, ok := b.Take(Connections, 1, end); ok {
				if wait != 0 {
					t.Fatalf("seed %d: waits %v, and nothing may wait", seed, wait)
				}
				admitted = append(admitted, end)
			}
		}
		for from := range admitted {
			for to := from; to < len(admitted); to++ {
				window := float64(admitted[to]-admitted[from]) / float64(rate.Per) * float64(rate.N)
				if got := float64(to - from + 1); got > float64(rate.Burst)+window+1e-6 {
					t.Fatalf("seed %d: %v: %v admitted in a window that brings %v", seed, rate, got, window)
				}
			}
		}
		if least := min(float64(rate.Burst)+float64(end)/float64(rate.Per)*float64(rate.N)-2, 2000) / 2; float64(len(admitted)) < least {
			t.Errorf("seed %d: %v: %d admitted, want at least %v", seed, rate, len(admitted), least)
		}
	}
}

// Those that wait come one after the other at the rate, up to the bounds.
func TestQueueIsOrderedAndBounded(t *testing.T) {
	b := New("l", connections(perSecond(10, 1), func(c *Config) { c.MaxWait, c.MaxQueue = time.Minute, 3 }), 0).Bucket(Key{}, 0)
	for i := range 4 {
		if wait, ok := b.Take(Connections, 1, 0); !ok || wait != time.Duration(i)*100*time.Millisecond {
			t.Errorf("the %d. waits %v, %v", i, wait, ok)
		}
	}
	if wait, ok := b.Take(Connections, 1, 0); ok || wait != 400*time.Millisecond {
		t.Errorf("beyond the queue: %v, %v", wait, ok)
	}
	if wait, ok := b.Take(Connections, 1, int64(100*time.Millisecond)); !ok || wait != 300*time.Millisecond {
		t.Errorf("when one has gone: %v, %v", wait, ok)
	}
}

// Bytes are charged after they came; the debt is paid before more may come.
func TestChargedBytesHoldTheRate(t *testing.T) {
	c := Config{MaxKeys: 1}
	c.Rates[BytesIn] = perSecond(1000, 500)
	b := New("l", c, 0).Bucket(Key{}, 0)
	now, total := int64(0), int64(0)
	for range 1000 {
		n := rand.Int64N(2000)
		total += n
		now += int64(b.Charge(BytesIn, n, now))
		if most := 500 + now/1e6 + 1; total > most {
			t.Fatalf("%d bytes by %v, want at most %d", total, time.Duration(now), most)
		}
	}
	if room := b.Room(BytesIn, now+int64(time.Hour)); room != 500 {
		t.Errorf("room for %d after an hour, want the burst", room)
	}
}

// A changed rate does not fill a bucket, whichever way it changes.
func TestChangedRateKeepsWhatWasUsed(t *testing.T) {
	for _, next := range []Rate{perSecond(1, 10), perSecond(1000, 10), {N: 1, Per: time.Hour, Burst: 10}} {
		l := New("l", connections(perSecond(100, 10)), 0)
		b := l.Bucket(Key{}, 0)
		for range 10 {
			if _, ok := b.Take(Connections, 1, 0); !ok {
				t.Fatal("refused within the burst")
			}
		}
		l.Configure(connections(next), 0)
		if _, ok := b.Take(Connections, 1, 0); ok {
			t.Errorf("%v filled the bucket", next)
		}
		unit := int64(next.Per) / next.N
		if _, ok := b.Take(Connections, 1, unit+1); !ok {
			t.Errorf("%v: nothing came back after one unit's time", next)
		}
	}
}

// A flood of a million keys takes bounded memory; a key that is at its limit stays
// there, and the keys without room share one budget.
func TestFloodOfKeysEvictsNoBusyKey(t *testing.T) {
	l := New("l", connections(Rate{N: 2, Per: time.Hour, Burst: 2}), 0)
	take := func(k Key, now int64) bool {
		b := l.Bucket(k, now)
		defer b.Release()
		_, ok := b.Take(Connections, 1, now)
		return ok
	}
	busy := Key{Text: "busy"}
	take(busy, 0)
	take(busy, 0)
	admitted := 0
	for i := range 1_000_000 {
		network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		if take(Key{Network: network}, int64(i)) {
			admitted++
		}
		if i%1000 == 0 && take(busy, int64(i)) {
			t.Fatal("a key at its limit got more")
		}
	}
	if keys := l.Counts().Keys; keys > 1000 {
		t.Errorf("%d keys, want at most 1000", keys)
	}
	if admitted > 1000+2 {
		t.Errorf("%d admitted, want at most one for each key and the shared budget", admitted)
	}
	if l.Counts().Overflows == 0 {
		t.Error("no key shared the budget")
	}
	later := int64(2 * time.Hour)
	if !take(Key{Text: "new"}, later) {
		t.Error("refused after all became idle")
	}
	if keys := l.Counts().Keys; keys > 1000 {
		t.Errorf("%d keys", keys)
	}
}

// A bucket that a connection holds stays, though it is full.
func TestHeldBucketIsNotEvicted(t *testing.T) {
	l := New("l", connections(perSecond(1000, 1), func(c *Config) { c.MaxKeys, c.Concurrent = 1, 1 }), 0)
	held := l.Bucket(Key{Text: "a"}, 0)
	if !held.Enter() {
		t.Fatal("the first is refused")
	}
	other := l.Bucket(Key{Text: "b"}, int64(time.Hour))
	again := l.Bucket(Key{Text: "a"}, int64(time.Hour))
	if other == held || again != held || again.Enter() {
		t.Error("the bucket was given away")
	}
	held.Leave()
	held.Release()
	again.Release()
	if b := l.Bucket(Key{Text: "b"}, int64(time.Hour)); b == other || b.Key().Text != "b" {
		t.Error("the bucket was kept although it was idle")
	}
}

// Goroutines together get no more than one would.
func TestConcurrentTakersShareTheBudget(t *testing.T) {
	l := New("l", connections(Rate{N: 1, Per: time.Hour, Burst: 1000}), 0)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				b := l.Bucket(Key{Text: "k"}, 0)
				if _, ok := b.Take(Connections, 1, 0); ok {
					admitted.Add(1)
				}
				b.Release()
			}
		})
	}
	all.Wait()
	if admitted.Load() != 1000 {
		t.Errorf("%d admitted, want 1000", admitted.Load())
	}
}

// BenchmarkLimit measures one limit of one connection or request: finding the bucket
// among 10,000, taking a unit, giving the bucket back.
func BenchmarkLimit(b *testing.B) {
	keys := make([]Key, 10_000)
	for i := range keys {
		keys[i].Text = fmt.Sprint("client-", i)
	}
	l := New("l", Config{MaxKeys: 1 << 20, Rates: [dimensions]Rate{Connections: perSecond(1_000_000, 1_000_000)}}, 0)
	run := func(pick func(i int) Key) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.IntN(len(keys)); pb.Next(); i++ {
					bucket := l.Bucket(pick(i), int64(i)*1000)
					bucket.Take(Connections, 1, int64(i)*1000)
					bucket.Release()
				}
			})
		}
	}
	b.Run("one loop", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			bucket := l.Bucket(keys[i%len(keys)], int64(i)*1000)
			bucket.Take(Connections, 1, int64(i)*1000)
			bucket.Release()
		}
	})
	b.Run("keys", run(func(i int) Key { return keys[i%len(keys)] }))
	b.Run("one key", run(func(int) Key { return keys[0] }))
}
