package routing

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"penstock/routing/endpoint"
	"penstock/routing/resource"
)

// breaking returns a service with n endpoints, each bounded to per connections,
// and a queue.
func breaking(n, per, queue int) *resource.Service {
	s := service(n)
	s.CircuitBreaker = &resource.CircuitBreaker{Queue: &queue}
	if per > 0 {
		s.CircuitBreaker.Endpoint.Connections = &per
	}
	return s
}

// client is a connection to the listener front, on a goroutine or in a step of a
// test.
type client struct {
	Decision
	woken atomic.Int32
}

func newClient(t testing.TB, r *Router) *client {
	t.Helper()
	d, reason := r.Decide(&Input{Listener: "front"})
	if reason != OK {
		t.Fatal(reason)
	}
	return &client{Decision: d}
}

// next does what plans do: it asks for an endpoint and joins the queue.
func (c *client) next(now time.Time) (e *endpoint.Endpoint, wait time.Duration, reason Reason) {
	if e, reason = c.Next(now); reason != Overflow {
		return e, 0, reason
	}
	if wait, reason = c.Enqueue(now, func() { c.woken.Add(1) }); reason != OK || wait > 0 {
		return nil, wait, reason
	}
	e, reason = c.Next(now)
	return e, 0, reason
}

func TestEndpointsTakeNoMoreThanTheirBound(t *testing.T) {
	for _, policy := range []string{"roundRobin", "leastConnections", "random", "maglev"} {
		t.Run(policy, func(t *testing.T) {
			r := NewRouter(Config{})
			s := breaking(3, 2, 0)
			s.Balancing.Policy = policy
			mustApply(t, r, put("Service", "apps", s), plainTo("apps"))
			count := map[*endpoint.Endpoint]int{}
			var last *client
			for i := range 6 {
				last = newClient(t, r)
				last.hash = uint64(i)
				e, _, reason := last.next(t0)
				if reason != OK {
					t.Fatalf("connection %d: %s", i, reason)
				}
				last.Connected(t0)
				count[e]++
			}
			for e, n := range count {
				if n != 2 {
					t.Errorf("%s has %d connections", e.Address, n)
				}
			}
			c := newClient(t, r)
			if _, wait, reason := c.next(t0); reason != Overflow || wait != 0 {
				t.Errorf("one too many: %s, to wait %v", reason, wait)
			}
			c.Closed()
			last.Closed()
			if _, _, reason := newClient(t, r).next(t0); reason != OK {
				t.Errorf("after one has gone: %s", reason)
			}
		})
	}
}

func TestTheQueueServesInOrderOfArrival(t *testing.T) {
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "apps", breaking(1, 1, 2)), plainTo("apps"))
	first, second, third, fourth := newClient(t, r), newClient(t, r), newClient(t, r), newClient(t, r)
	first.next(t0)
	for _, c := range []*client{second, third} {
		if _, wait, reason := c.next(t0); wait != 5*time.Second || reason != OK {
			t.Fatalf("to wait %v, %q", wait, reason)
		}
	}
	if _, _, reason := fourth.next(t0); reason != Overflow {
		t.Fatalf("the queue is full: %q", reason)
	}
	first.Closed()
	if second.woken.Load() != 1 || third.woken.Load() != 0 {
		t.Fatalf("woken %d and %d times", second.woken.Load(), third.woken.Load())
	}
	if _, _, reason := newClient(t, r).next(t0); reason != OK {
		t.Fatalf("there is one place again: %q", reason)
	}
	if e, _, reason := second.next(t0); e == nil || reason != OK {
		t.Fatalf("woken, without an endpoint: %q", reason)
	}
	// Too early, as a stale wake-up is, and then too late.
	if _, wait, reason := third.next(t0.Add(time.Second)); wait != 4*time.Second || reason != OK {
		t.Errorf("to wait %v, %q", wait, reason)
	}
	if _, _, reason := third.next(t0.Add(5 * time.Second)); reason != QueueTimeout {
		t.Errorf("after its time: %q", reason)
	}
	s, _ := r.Table().Service("apps")
	if q := s.Queue(); q != (QueueStats{Waiting: 1, Queued: 3, Overflows: 1, Timeouts: 1}) {
		t.Errorf("%+v", q)
	}
}

func TestAPlaceInTheQueueIsGivenUp(t *testing.T) {
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "apps", breaking(1, 1, 10)), plainTo("apps"))
	first, leaver, granted, last := newClient(t, r), newClient(t, r), newClient(t, r), newClient(t, r)
	for _, c := range []*client{first, leaver, granted, last} {
		c.next(t0)
	}
	leaver.Closed()
	first.Closed()
	granted.Closed() // between its wake-up and its Next
	if leaver.woken.Load() != 0 || granted.woken.Load() != 1 || last.woken.Load() != 1 {
		t.Fatal("the slot got lost")
	}
	last.next(t0)
	last.Closed()
	s, _ := r.Table().Service("apps")
	if u := s.Group().Usage(); u != (endpoint.Usage{}) {
		t.Errorf("%+v is left", u)
	}
}

func TestChangesServeTheQueue(t *testing.T) {
	changes := map[string]func(r *Router, s *resource.Service){
		"a new endpoint":  func(_ *Router, s *resource.Service) { s.Endpoints = service(2).Endpoints },
		"a higher bound":  func(_ *Router, s *resource.Service) { s.CircuitBreaker.Endpoint.Connections = new(2) },
		"no breaker":      func(_ *Router, s *resource.Service) { s.CircuitBreaker = nil },
		"a longer queue":  nil,
		"other endpoints": func(_ *Router, s *resource.Service) { s.Endpoints[0].Address = "10.1.1.1:1" },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			r := NewRouter(Config{})
			mustApply(t, r, put("Service", "apps", breaking(1, 1, 10)), plainTo("apps"))
			first, waiting := newClient(t, r), newClient(t, r)
			first.next(t0)
			waiting.next(t0)
			s := breaking(1, 1, 20)
			if change != nil {
				change(r, s)
			}
			mustApply(t, r, put("Service", "apps", s))
			e, wait, reason := waiting.next(t0)
			if change == nil && wait == 0 || change != nil && (e == nil || reason != OK) {
				t.Errorf("%v, to wait %v, %q", e, wait, reason)
			}
		})
	}
}

func TestWhoWaitsIsRefusedOnceNoEndpointIsLeft(t *testing.T) {
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "apps", breaking(1, 1, 10)), plainTo("apps"))
	first, waiting := newClient(t, r), newClient(t, r)
	first.next(t0)
	waiting.next(t0)
	s, _ := r.Table().Service("apps")
	e := s.Members()[0].Endpoint
	e.SetHealth(endpoint.Unhealthy, t0)
	s.Group().Notify(endpoint.Event{Endpoint: e, Change: endpoint.EventUnhealthy, At: t0})
	if _, _, reason := waiting.next(t0); waiting.woken.Load() != 1 || reason != NoHealthyEndpoint {
		t.Errorf("woken %d times, %q", waiting.woken.Load(), reason)
	}
}

func TestPendingOnesAreBoundedUntilTheyHaveAConnection(t *testing.T) {
	r := NewRouter(Config{})
	s := breaking(2, 0, 10)
	s.CircuitBreaker.Service.Pending = new(1)
	mustApply(t, r, put("Service", "apps", s), plainTo("apps"))
	first, second := newClient(t, r), newClient(t, r)
	first.next(t0)
	if _, wait, _ := second.next(t0); wait == 0 {
		t.Fatal("two at once")
	}
	first.Connected(t0)
	if _, _, reason := second.next(t0); second.woken.Load() != 1 || reason != OK {
		t.Errorf("woken %d times, %q", second.woken.Load(), reason)
	}
}

func TestAFullEndpointIsNotReplacedByAFailingOne(t *testing.T) {
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "apps", breaking(2, 1, 10)), plainTo("apps"))
	s, _ := r.Table().Service("apps")
	s.Group().Failed(s.Members()[0].Endpoint, endpoint.ConnectFailed, t0) // paused
	newClient(t, r).next(t0)
	c := newClient(t, r)
	if e, wait, _ := c.next(t0); e != nil || wait == 0 {
		t.Fatalf("went to %v", e)
	}
	s.ServeQueue(t0.Add(2 * time.Second)) // the pause is over
	if e, _, _ := c.next(t0.Add(2 * time.Second)); e != s.Members()[0].Endpoint {
		t.Errorf("got %v after the pause", e)
	}
}

// After any steps there is no waiter whom a free slot would serve, and no bound is
// exceeded.
func TestNobodyWaitsForAFreeSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRouter(Config{})
		n, per := rapid.IntRange(1, 3).Draw(t, "endpoints"), rapid.IntRange(1, 2).Draw(t, "bound")
		total := rapid.IntRange(per, 6).Draw(t, "service")
		s := breaking(n, per, rapid.IntRange(0, 4).Draw(t, "queue"))
		s.CircuitBreaker.Service.Connections = &total
		if _, err := r.Apply([]resource.Change{put("Service", "apps", s), plainTo("apps")}, t0); err != nil {
			t.Fatal(err)
		}
		apps, _ := r.Table().Service("apps")
		var open []*client
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "another") {
				d, _ := r.Decide(&Input{Listener: "front"})
				c := &client{Decision: d}
				if _, wait, reason := c.next(t0); reason == OK {
					if open = append(open, c); wait == 0 {
						c.Connected(t0)
					}
				}
			} else {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				open[i].Closed()
				open = append(open[:i], open[i+1:]...)
			}
			for _, c := range open {
				if c.Waiting() && c.woken.Swap(0) > 0 {
					if e, _, _ := c.next(t0); e == nil {
						t.Fatal("woken for nothing")
					}
					c.Connected(t0)
				}
			}
			used := apps.Group().Usage().Connections
			if most := int64(min(total, n*per)); used > most || apps.Queue().Waiting > 0 && used < most {
				t.Fatalf("%d of %d connections, %d wait", used, most, apps.Queue().Waiting)
			}
		}
	})
}

// Goroutines that connect, wait and leave at once: no bound is exceeded, no wake-up
// is lost, and nothing is left.
func TestBoundsHoldUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, rounds, perEndpoint, inAll = 16, 200, 2, 3
		r := NewRouter(Config{})
		s := breaking(2, perEndpoint, clients)
		s.CircuitBreaker.Service.Connections = new(inAll)
		s.CircuitBreaker.QueueTimeout = resource.Duration(time.Hour)
		mustApply(t, r, put("Service", "apps", s), plainTo("apps"))
		apps, _ := r.Table().Service("apps")
		var atOnce atomic.Int64
		var at [2]atomic.Int64
		var wg sync.WaitGroup
		for n := range clients {
			wg.Go(func() {
				for i := range rounds {
					c := newClient(t, r)
					woken := make(chan struct{}, 1)
					e, reason := c.Next(time.Now())
					for reason == Overflow {
						var wait time.Duration
						if wait, reason = c.Enqueue(time.Now(), func() { woken <- struct{}{} }); reason != OK {
							t.Error(reason)
							return
						}
						if wait > 0 && (i+n)%7 == 0 {
							break // it leaves the queue
						}
						if wait > 0 {
							<-woken // all would block if it were lost, which synctest notices
						}
						e, reason = c.Next(time.Now())
					}
					if e != nil {
						one := &at[0]
						if e == apps.Members()[1].Endpoint {
							one = &at[1]
						}
						if atOnce.Add(1) > inAll || one.Add(1) > perEndpoint {
							t.Error("over the bound")
						}
						c.Connected(time.Now())
						one.Add(-1)
						atOnce.Add(-1)
					}
					c.Closed()
				}
			})
		}
		wg.Wait()
		if u := apps.Group().Usage(); u != (endpoint.Usage{}) || apps.Queue().Waiting != 0 {
			t.Errorf("%+v is left, %d wait", u, apps.Queue().Waiting)
		}
	})
}
