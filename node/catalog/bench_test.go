package catalog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"penstock/consensus/store"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// service returns the object of a small service.
func service(b testing.TB, i, port int) resource.Object {
	b.Helper()
	list, faults := codec.Decode("",
		fmt.Appendf(nil, `{"kind":"Service","name":"s%d","spec":{"endpoints":[{"address":"127.0.0.1:%d"}]}}`, i, port),
		resource.RoutingKinds())
	if len(faults) > 0 {
		b.Fatal(faults)
	}
	return list[0]
}

// newFilled returns a catalog with that many services.
func newFilled(b *testing.B, services int) *Catalog {
	b.Helper()
	c := New(Config{Store: store.NewMemory(store.Limits{}), Kinds: resource.RoutingKinds()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Follow(ctx, func(*validate.Set, []resource.Change) error { return nil })
	}()
	b.Cleanup(func() { cancel(); <-done })
	all := make([]resource.Object, services)
	for i := range all {
		all[i] = service(b, i, 1)
	}
	if _, err := c.Apply(ctx, Change{Objects: all}); err != nil {
		b.Fatal(err)
	}
	return c
}

func BenchmarkChangeOneOf100000(b *testing.B) {
	c := newFilled(b, 100_000)
	for i := 0; b.Loop(); i++ {
		if _, err := c.Apply(b.Context(), Change{Objects: []resource.Object{service(b, i%100_000, 2+i%60_000)}}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChangesOf32Writers measures one change, with 32 concurrent writers.
func BenchmarkChangesOf32Writers(b *testing.B) {
	c := newFilled(b, 100_000)
	var next atomic.Int64
	var writers sync.WaitGroup
	b.ResetTimer()
	for range 32 {
		writers.Go(func() {
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				if _, err := c.Apply(b.Context(), Change{Objects: []resource.Object{service(b, i%100_000, 2+i%60_000)}}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}

func BenchmarkReplace100000(b *testing.B) {
	c := newFilled(b, 100_000)
	var entries [2][]store.Entry
	for j := range entries {
		for i := range 100_000 {
			o := service(b, i+50_000*j, 10+j)
			entries[j] = append(entries[j], store.Entry{Key: store.Key(o.Key), Value: codec.EncodeWithSecrets(o)})
		}
	}
	for i := 0; b.Loop(); i++ {
		if _, err := c.Replace(b.Context(), Replacement{Entries: entries[i%2]}); err != nil {
			b.Fatal(err)
		}
	}
}
