package catalog

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/internal/testkit"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// loneStream is the network of a single server.
type loneStream struct{ net.Listener }

func (loneStream) Dial(string, time.Duration) (net.Conn, error) {
	return nil, errors.New("there are no others")
}

// TestCatalogOnTheReplicatedStore: each change of many concurrent writers
// applies once, and the content survives a restart.
func TestCatalogOnTheReplicatedStore(t *testing.T) {
	dir := t.TempDir()
	open := func() *replica.Replica {
		l := testkit.Listen(t)
		r, err := replica.Open(replica.Config{ID: "a", Dir: dir, Streams: loneStream{l}, Heartbeat: 50 * time.Millisecond, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	run := func(r *replica.Replica, do func(c *Catalog)) {
		defer func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}()
		c := New(Config{Store: r, Kinds: resource.RoutingKinds(), Sealer: newXOR(7), Barrier: func(ctx context.Context) error {
			index, err := r.ReadIndex(ctx)
			if err == nil && index > 0 {
				_, err = r.Wait(ctx, index-1)
			}
			return err
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.Follow(ctx, func(*validate.Set, []resource.Change) error { return nil })
		}()
		do(c)
		cancel()
		<-done
	}
	// lead retries a change until the server leads.
	lead := func(c *Catalog) {
		for {
			_, err := c.Apply(t.Context(), Change{Objects: append(objects(t, terminating), certificate(t, "a", "a"))})
			if err == nil {
				return
			}
			if !errors.Is(err, store.ErrNotLeader) {
				t.Fatal(err)
			}
		}
	}
	first := open()
	if err := first.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	run(first, func(c *Catalog) {
		lead(c)
		var writers sync.WaitGroup
		for i := range 32 {
			writers.Go(func() {
				for n := range 5 {
					r, err := c.Apply(t.Context(), Change{Objects: []resource.Object{service(t, i, 1+n)}, ID: store.ID{byte(i), byte(n), 1}})
					if err != nil || r.Changes[0].Action == "unchanged" {
						t.Errorf("%+v, %v", r, err)
					}
				}
			})
		}
		writers.Wait()
		checkAgrees(t, c, first)
	})
	second := open()
	run(second, func(c *Catalog) {
		lead(c)
		checkAgrees(t, c, second)
		if set, _ := c.InForce(); set.Len() != 3+32 {
			t.Errorf("%d objects after a restart", set.Len())
		}
	})
}
