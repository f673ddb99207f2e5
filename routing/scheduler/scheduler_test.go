package scheduler

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log records what jobs did and when. In a bubble all other goroutines are idle
// when the test reads it.
type log struct {
	start time.Time
	lines chan string
}

func newLog() *log { return &log{time.Now(), make(chan string, 1000)} }

func (l *log) add(what string) { l.lines <- fmt.Sprint(what, " at ", time.Since(l.start)) }

func (l *log) take() []string {
	var all []string
	for {
		select {
		case s := <-l.lines:
			all = append(all, s)
		default:
			return all
		}
	}
}

func TestJobRunsAtOnceAndThenWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := New(4), newLog()
		defer a.Close()
		a.Add(func(context.Context) (time.Duration, bool) { l.add("two"); return 2 * time.Second, true })
		a.Add(func(context.Context) (time.Duration, bool) { l.add("five"); return 5 * time.Second, true })
		after(6*time.Second + time.Millisecond)
		got := l.take()
		slices.Sort(got)
		want := []string{"five at 0s", "five at 5s", "two at 0s", "two at 2s", "two at 4s", "two at 6s"}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// after advances the bubble's time.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestJobNeverOverlapsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := New(4), newLog()
		defer a.Close()
		a.Add(func(context.Context) (time.Duration, bool) {
			l.add("began")
			<-time.After(3 * time.Second)
			return time.Second, true
		})
		after(7 * time.Second)
		want := []string{"began at 0s", "began at 3s", "began at 6s"}
		if got := l.take(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		after(3 * time.Second)
	})
}

func TestLimitHoldsAndLongestDueRunsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := New(2), newLog()
		defer a.Close()
		for i := range 5 {
			a.Add(func(context.Context) (time.Duration, bool) {
				l.add(fmt.Sprint("job ", i))
				<-time.After(time.Second)
				return time.Hour, true
			})
			synctest.Wait() // so that their order is fixed
			<-time.After(time.Millisecond)
		}
		after(10 * time.Second)
		want := []string{"job 0 at 0s", "job 1 at 1ms", "job 2 at 1s", "job 3 at 1.001s", "job 4 at 2s"}
		if got := l.take(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestFailingJobsLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(4)
		defer a.Close()
		for range 50 { // each uses up its timeout, like an endpoint that is down
			a.Add(func(ctx context.Context) (time.Duration, bool) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
				return time.Second, false
			})
		}
		after(20 * time.Second) // all have failed once
		l := newLog()
		a.Add(func(context.Context) (time.Duration, bool) { l.add("well"); return time.Second, true })
		after(3*time.Second + time.Millisecond)
		want := []string{"well at 0s", "well at 1s", "well at 2s", "well at 3s"}
		if got := l.take(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestRemovedJobNeverRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := New(1), newLog()
		defer a.Close()
		running := a.Add(func(ctx context.Context) (time.Duration, bool) {
			l.add("running")
			<-ctx.Done()
			l.add("ended")
			return 0, false
		})
		synctest.Wait()
		inQueue := a.Add(func(context.Context) (time.Duration, bool) { l.add("queued"); return 0, true })
		next := a.Add(func(context.Context) (time.Duration, bool) { l.add("next"); return time.Minute, true })
		after(time.Second)
		a.Remove(inQueue)
		a.Remove(running)
		a.Remove(running)
		after(time.Second)
		a.Remove(next)
		after(time.Hour)
		want := []string{"running at 0s", "ended at 1s", "next at 1s"}
		if got := l.take(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestCloseCancelsRunningJobsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := New(2), newLog()
		for range 3 {
			a.Add(func(ctx context.Context) (time.Duration, bool) {
				<-ctx.Done()
				<-time.After(time.Second)
				l.add("ended")
				return 0, true
			})
		}
		synctest.Wait()
		a.Close()
		a.Add(func(context.Context) (time.Duration, bool) { l.add("too late"); return 0, true })
		after(time.Minute)
		want := []string{"ended at 1s", "ended at 1s"}
		if got := l.take(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestJitterIsTenPercentEitherWay(t *testing.T) {
	for x, want := range map[float64]time.Duration{0: 900, 0.5: 1000, 1: 1100} {
		if got := spread(1000, x); got != want {
			t.Errorf("spread(1000, %v) = %d, want %d", x, got, want)
		}
	}
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := Jitter(time.Second)
		if d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Fatalf("%v is off by more than 10 %%", d)
		}
		seen[d] = true
	}
	if len(seen) < 900 {
		t.Errorf("only %d different values of 1000: that is no chance", len(seen))
	}
}

// TestTenThousandJobs runs them with no more goroutines than the limit.
func TestTenThousandJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, limit = 10_000, 64
		a := New(limit)
		defer a.Close()
		now, most, runs := make(chan int, 1), make(chan int, 1), make(chan int, 1)
		now <- 0
		most <- 0
		runs <- 0
		for range n {
			a.Add(func(context.Context) (time.Duration, bool) {
				k := <-now + 1
				now <- k
				most <- max(<-most, k)
				runs <- <-runs + 1
				<-time.After(time.Millisecond)
				now <- <-now - 1
				return 2 * time.Second, true
			})
		}
		after(5900 * time.Millisecond)
		if k, r := <-most, <-runs; k > limit || r != 3*n {
			t.Errorf("%d ran at once, %d runs in all; want at most %d, and %d", k, r, limit, 3*n)
		}
		most <- 0
		runs <- 0
	})
}

func BenchmarkScheduler(b *testing.B) {
	a := New(64)
	defer a.Close()
	done := make(chan struct{}, 1024)
	b.ReportAllocs()
	for range 100 {
		a.Add(func(ctx context.Context) (time.Duration, bool) {
			select {
			case done <- struct{}{}:
			case <-ctx.Done():
			}
			return 0, true
		})
	}
	for b.Loop() {
		<-done
	}
}
