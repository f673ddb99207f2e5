package quota

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"penstock/routing/limit"
	"penstock/routing/resource"
)

// office is a cluster in virtual time whose nodes have Drivers; the first one leads.
type office struct {
	mu      sync.Mutex // of late
	began   time.Time
	ids     []string
	leader  *Leader
	limits  []atomic.Pointer[limit.Limit] // of each node; nil: there is none yet
	drivers []*Driver
	late    atomic.Pointer[func() time.Duration] // delay of a message; nil: 1 ms
}

// message takes as long as a message.
func (o *office) message() {
	d := time.Millisecond
	if late := o.late.Load(); late != nil {
		o.mu.Lock()
		d = (*late)()
		o.mu.Unlock()
	}
	<-time.After(d)
}

func (o *office) clock() int64 { return int64(time.Since(o.began)) }

func newOffice(t *testing.T, nodes int) *office {
	o := &office{began: time.Now(), limits: make([]atomic.Pointer[limit.Limit], nodes)}
	ctx, cancel := context.WithCancel(t.Context())
	for i := range nodes {
		o.ids = append(o.ids, fmt.Sprint("n", i))
	}
	never := make(chan struct{})
	o.leader = NewLeader(LeaderConfig{
		Limits: o.of(0), Members: func() []string { return o.ids }, Term: func() (uint64, bool) { return 7, true },
		Changes: func() <-chan struct{} { return never }, Verify: func(context.Context) error { o.message(); return nil },
	})
	go o.leader.Run(ctx)
	for i, id := range o.ids {
		d := New(Config{
			Self: id, Limits: o.of(i), Clock: o.clock, Members: func() []string { return o.ids }, Log: slog.New(slog.DiscardHandler),
			Ask: func(ctx context.Context, r *Report) (*Answer, error) {
				o.message()
				ans, err := o.leader.Report(ctx, id, r)
				o.message()
				return ans, err
			},
		})
		o.drivers = append(o.drivers, d)
		go d.Run(ctx)
	}
	t.Cleanup(func() {
		cancel()
		<-time.After(time.Second) // what goes on ends
	})
	return o
}

// of returns the limits of a node.
func (o *office) of(i int) func() iter.Seq2[*limit.Limit, *resource.RateLimit] {
	spec := new(resource.RateLimit)
	return func() iter.Seq2[*limit.Limit, *resource.RateLimit] {
		return func(yield func(*limit.Limit, *resource.RateLimit) bool) {
			if l := o.limits[i].Load(); l != nil {
				yield(l, spec)
			}
		}
	}
}

// apply makes the limit on all nodes, as the router does.
func (o *office) apply(d limit.Dimension, r limit.Rate) {
	for i, id := range o.ids {
		c := limit.Config{MaxKeys: 100, Divided: true, Place: Place(id, o.ids)}
		c.Rates[d] = r
		o.limits[i].Store(limit.New("api", c, o.clock()))
	}
}

// take has a client of a node take units one after the other, and returns how many it got.
func (o *office) take(node, units int) (got int) {
	b := o.limits[node].Load().Bucket(limit.Key{Text: "tenant"}, o.clock())
	defer b.Release()
	for range units {
		if _, ok := b.Take(limit.Connections, 1, o.clock()); ok {
			got++
		}
	}
	return got
}

// A limit of the cluster that is new admits its whole burst at once, each node its part,
// before anybody has asked for shares; and no more when it has them.
func TestANewLimitOfTheClusterAdmitsItsBurstAtOnce(t *testing.T) {
	for _, nodes := range []int{1, 2, 3, 7, 10} {
		synctest.Test(t, func(t *testing.T) {
			o := newOffice(t, nodes)
			<-time.After(10 * time.Second) // the leader has led for some time
			const burst = 17
			o.apply(limit.Connections, limit.Rate{N: 17, Per: time.Hour, Burst: burst})
			got := 0
			for i := range nodes {
				one := o.take(i, burst)
				if one < burst/nodes {
					t.Errorf("%d nodes: node %d admits %d of a burst of %d at once", nodes, i, one, burst)
				}
				got += one
			}
			if got != burst {
				t.Errorf("%d nodes admit %d at once, want the burst of %d", nodes, got, burst)
			}
			for range 100 {
				<-time.After(100 * time.Millisecond)
				for i := range nodes {
					got += o.take(i, 1)
				}
			}
			if got > burst+1 {
				t.Errorf("%d nodes admit %d in 10 s, the budget is a burst of %d and 17 in an hour", nodes, got, burst)
			}
		})
	}
}

// The first limit of a cluster leases shares as soon as there is demand: what may have
// been leased before ended long ago.
func TestTheFirstLimitOfAClusterLeasesAtOnce(t *testing.T) {
	for _, nodes := range []int{1, 3, 10} {
		synctest.Test(t, func(t *testing.T) {
			o := newOffice(t, nodes)
			<-time.After(10 * time.Second)
			o.apply(limit.Connections, limit.Rate{N: 1000, Per: time.Second, Burst: 100})
			got, began := 0, time.Now()
			for time.Since(began) < time.Second {
				<-time.After(time.Millisecond)
				got += o.take(nodes-1, 2)
			}
			// Other nodes have their floor until the leader knows that they have contact.
			if got < 700 {
				t.Errorf("%d nodes: a node with all demand got %d of 1000 in its first second", nodes, got)
			}
		})
	}
}

// Who exceeds a budget for which its node has had no demand until now waits for as long as
// the node's first lease makes it, not for as long as it would without one.
func TestDebtFromBeforeTheFirstLeaseShrinksWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 3)
		<-time.After(10 * time.Second)
		o.apply(limit.Produce, limit.Rate{N: 1_000_000, Per: time.Second, Burst: 30_000})
		b := o.limits[1].Load().Bucket(limit.Key{Text: "tenant"}, o.clock())
		defer b.Release()
		b.Charge(limit.Produce, 1_010_000, o.clock())
		if told := b.EqualDebt(limit.Produce, o.clock()).Round(time.Second); told != 3*time.Second {
			t.Errorf("at an equal share it would be in debt for %v, want 3s", told)
		}
		<-time.After(1500 * time.Millisecond)
		if debt := b.Debt(limit.Produce, o.clock()); debt > 0 {
			t.Errorf("a second's worth is not paid back after 1.5 s, but after %v more", debt)
		}
	})
}
