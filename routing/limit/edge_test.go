package limit

import (
	"math"
	"sync"
	"testing"
	"time"
)

const year = int64(365 * 24 * time.Hour)

// The slowest rate and reads of the largest size, again and again: debt adds up and ends,
// rather than pass the end of the numbers and leave the bucket full.
func TestDebtDoesNotOverflow(t *testing.T) {
	for _, n := range []int64{64 << 10, 1 << 40, math.MaxInt64} {
		l := New("l", Config{MaxKeys: 1, Rates: [dimensions]Rate{BytesIn: {N: 1, Per: 24 * time.Hour, Burst: 1}}}, 0)
		b := l.Bucket(Key{}, 0)
		for i := range 100 {
			if wait := b.Charge(BytesIn, n, year); wait < time.Duration(year) {
				t.Fatalf("charge %d of %d waits %v", i, n, wait)
			}
			if b.Debt(BytesIn, year) == 0 || b.Room(BytesIn, year) != 0 {
				t.Fatalf("after charge %d of %d the bucket is full", i, n)
			}
		}
	}
}

// Bursts and rates at the bounds of the validation hold, also after years of idleness.
func TestRatesAtTheirBoundsHold(t *testing.T) {
	for _, r := range []Rate{
		{N: 10_000_000, Per: time.Second, Burst: 1_000_000_000},
		{N: 1_000_000_000, Per: 24 * time.Hour, Burst: 1_000_000_000},
		{N: 10_000, Per: time.Millisecond, Burst: 1},
	} {
		for _, now := range []int64{0, 10 * year} {
			b := New("l", connections(r), 0).Bucket(Key{}, 0)
			if _, ok := b.Take(Connections, r.Burst, now); !ok {
				t.Errorf("%+v after %d years: a burst is refused", r, now/year)
			}
			if _, ok := b.Take(Connections, 1, now); ok {
				t.Errorf("%+v after %d years: more than a burst is admitted", r, now/year)
			}
		}
	}
	// A burst that takes longer to come back than numbers go is cut, never made larger.
	b := New("l", connections(Rate{N: 1, Per: 24 * time.Hour, Burst: 1_000_000_000}), 0).Bucket(Key{}, 0)
	admitted := 0
	for range 20_000 {
		if _, ok := b.Take(Connections, 1, 10*year); ok {
			admitted++
		}
	}
	if admitted < 13_000 || admitted > 14_000 {
		t.Errorf("%d admitted at once, want those of 36 years", admitted)
	}
}

// Whoever takes while the rate changes counts by the one or the other, converted: units
// are as many afterwards as were taken.
func TestUnitsThatRaceAChangeOfRateCountOnce(t *testing.T) {
	slow, fast := connections(Rate{N: 1, Per: time.Second, Burst: 1 << 20}), connections(Rate{N: 100, Per: time.Second, Burst: 1 << 20})
	for range 300 {
		l := New("l", slow, 0)
		b := l.Bucket(Key{}, 0)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 100 {
					b.Take(Connections, 1, 0)
				}
			})
		}
		all.Go(func() {
			for i := range 10 {
				l.Configure([]Config{fast, slow}[i%2], 0)
			}
		})
		all.Wait()
		l.Configure(slow, 0)
		b.config(0)
		if used := float64(b.full[Connections].Load()) / float64(time.Second); math.Abs(used-400) > 1 {
			t.Fatalf("%.2f units are used, want 400", used)
		}
	}
}

// Who has the configuration from before a change counts nothing by it afterwards, whether
// it looked at the bucket before or after.
func TestNobodyCountsByARateThatIsGone(t *testing.T) {
	for _, taken := range []int64{0, 5} {
		l := New("l", connections(Rate{N: 1, Per: time.Second, Burst: 10}), 0)
		b := l.Bucket(Key{}, 0)
		b.Take(Connections, max(taken, 1), 0)
		now := (max(taken, 1) - taken) * int64(2*time.Second) // with 0 all has come back
		was, full := b.config(now), b.full[Connections].Load()
		l.Configure(connections(Rate{N: 100, Per: time.Second, Burst: 10}), now)
		b.config(now)
		for _, seen := range []int64{full, b.full[Connections].Load()} {
			if b.move(Connections, was, seen, now+int64(time.Second)) {
				t.Errorf("with %d taken, a unit counts by the rate from before", taken)
			}
		}
	}
}
