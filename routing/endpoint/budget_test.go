package endpoint

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Retries have a budget: rule 17 of integration/rules_test.go.
func TestRetriesAreBoundedByShareOfConnections(t *testing.T) {
	var b Budget
	retries := func(n int, now time.Time) (taken int) {
		for range n {
			if b.Retry(20, 10, now) {
				taken++
			}
		}
		return taken
	}
	if got := retries(30, t0); got != 10 {
		t.Errorf("without a connection %d retries were allowed, want the minimum of 10", got)
	}
	for range 200 {
		b.Connection(t0.Add(time.Second))
	}
	if got := retries(100, t0.Add(time.Second)); got != 30 {
		t.Errorf("after 200 connections and 10 retries %d more were allowed, want 30", got)
	}
	if got := retries(100, t0.Add(5*time.Second)); got != 0 {
		t.Errorf("%d retries were allowed beyond the share", got)
	}
	later := t0.Add(time.Second + BudgetWindow)
	if got := retries(100, later); got != 10 {
		t.Errorf("a window later %d retries were allowed, want 10", got)
	}
	if c, r := b.Counts(later.Add(time.Hour)); c != 0 || r != 0 {
		t.Errorf("an hour later there are %d connections and %d retries", c, r)
	}
}

// TestBudgetMatchesModel compares the ring of slots with a list of all events.
func TestBudgetMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Budget
		var connections, retries []uint32
		now := t0
		recent := func(list []uint32) (n int64) {
			for _, at := range list {
				if slot(now)-at < budgetSlots {
					n++
				}
			}
			return n
		}
		share, minimum := rapid.IntRange(0, 100).Draw(t, "share"), rapid.IntRange(0, 3).Draw(t, "minimum")
		t.Repeat(map[string]func(*rapid.T){
			"connection": func(*rapid.T) {
				b.Connection(now)
				connections = append(connections, slot(now))
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 25_000).Draw(t, "ms")) * time.Millisecond)
			},
			"retry": func(t *rapid.T) {
				want := recent(retries)+1 <= max(recent(connections)*int64(share)/100, int64(minimum))
				if got := b.Retry(share, minimum, now); got != want {
					t.Fatalf("retry: %v, want %v", got, want)
				}
				if want {
					retries = append(retries, slot(now))
				}
			},
			"": func(t *rapid.T) {
				c, r := b.Counts(now)
				if c != recent(connections) || r != recent(retries) {
					t.Fatalf("%d connections and %d retries, want %d and %d", c, r, recent(connections), recent(retries))
				}
			},
		})
	})
}

func TestLateRefundTakesNothingFromOtherRetries(t *testing.T) {
	var w window
	w.add(3, 1)
	w.add(3+budgetSlots, 1) // another loop already uses the slot for its next round
	w.add(3, -1)
	if got := w.sum(3 + budgetSlots); got != 1 {
		t.Errorf("%d are left of 1", got)
	}
}

func TestConcurrentRetriesStayWithinBudget(t *testing.T) {
	var b Budget
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				if b.Retry(0, 50, t0) {
					taken.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := taken.Load(); n > 50 || n == 0 {
		t.Errorf("%d retries were taken of 50", n)
	}
}
