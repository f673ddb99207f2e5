package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"penstock/consensus/store"
)

// clients is the number of concurrent writers in benchmarks.
const clients = 32

// runClients spreads b.N calls over the clients.
func runClients(b *testing.B, do func(client, i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for client := range clients {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				do(client, i)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// benchValue is the value that benchmarks store.
var benchValue = make([]byte, 256)

func benchBatch(client, i int) *store.Batch {
	return batch(store.Op{Key: store.Key{Kind: "Bench", Name: fmt.Sprint(client, i%100)}, Value: benchValue})
}

// slow selects the default timeouts and synced writes.
func slow(c *Config) {
	c.Heartbeat, c.Election, c.Lease, c.Timeout, c.NoSync = 0, 0, 0, 0, false
}

// BenchmarkCommit measures 32 clients that write to three servers, and plain
// Raft for comparison.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct {
		name string
		tune func(*Config)
	}{
		{"replica", func(*Config) {}},
		{"replica-plainReplication", func(c *Config) { c.plainReplication = true }},
		{"replica-noNotices", func(c *Config) { c.noNotices = true }},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, func(cfg *Config) { slow(cfg); c.tune(cfg) })
			leader := w.cluster(3)
			runClients(b, func(client, i int) {
				if _, err := leader.Commit(b.Context(), benchBatch(client, i)); err != nil {
					b.Error(err)
				}
			})
		})
	}
	for _, empty := range []bool{false, true} { // with the same content, and without
		b.Run(fmt.Sprint("plain-empty=", empty), func(b *testing.B) {
			leader := plainCluster(b, 3, empty)
			runClients(b, func(client, i int) {
				data, err := store.EncodeBatch(benchBatch(client, i))
				if err != nil {
					b.Error(err)
				}
				if err := leader.Apply(data, 0).Error(); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

// BenchmarkVisible measures the time from a proposal until all three servers
// have applied it, without other load.
func BenchmarkVisible(b *testing.B) {
	for _, c := range []struct {
		name string
		tune func(*Config)
	}{
		{"notices", func(*Config) {}},
		{"noNotices-50ms", func(c *Config) { c.noNotices, c.CommitInterval = true, 50*time.Millisecond }},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, func(cfg *Config) { slow(cfg); c.tune(cfg) })
			leader := w.cluster(3)
			var committed, visible []time.Duration
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				result, err := leader.Commit(b.Context(), benchBatch(0, i))
				if err != nil {
					b.Fatal(err)
				}
				committed = append(committed, time.Since(start))
				for _, r := range w.servers {
					if _, err := r.Wait(b.Context(), result.Index-1); err != nil {
						b.Fatal(err)
					}
				}
				visible = append(visible, time.Since(start))
			}
			for name, all := range map[string][]time.Duration{"commit": committed, "visible": visible} {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), name+"-p50-µs")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), name+"-p99-µs")
			}
		})
	}
}

// BenchmarkIdle measures the CPU time that three idle servers use per second.
func BenchmarkIdle(b *testing.B) {
	for _, interval := range []time.Duration{50 * time.Millisecond, 0, time.Second} {
		b.Run(fmt.Sprint("CommitInterval=", interval), func(b *testing.B) {
			w := newWorld(b, func(c *Config) { slow(c); c.CommitInterval = interval })
			w.cluster(3)
			cpu := func() time.Duration {
				var u unix.Rusage
				if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
					b.Fatal(err)
				}
				return time.Duration(u.Utime.Nano() + u.Stime.Nano())
			}
			before, n := cpu(), 0
			second := time.NewTicker(time.Second)
			defer second.Stop()
			for b.Loop() {
				<-second.C
				n++
			}
			b.ReportMetric(float64((cpu()-before).Microseconds())/float64(n), "cpu-µs/s")
		})
	}
}

// plainFSM is a minimal state machine, or one with the same content as a
// replica.
type plainFSM struct {
	n        int
	snapshot store.Snapshot
	empty    bool
}

func (f *plainFSM) Apply(l *raft.Log) any {
	if f.empty {
		f.n++
		return f.n
	}
	a := store.NewApplier(f.snapshot, store.Limits{})
	replies, err := applyEntry(a, l)
	if err != nil || replies[0].Err != nil {
		return errors.Join(err, replies[0].Err)
	}
	f.snapshot = a.Snapshot()
	return replies[0].Result
}
func (f *plainFSM) Snapshot() (raft.FSMSnapshot, error) { return f, nil }
func (f *plainFSM) Restore(io.ReadCloser) error         { return nil }
func (f *plainFSM) Persist(s raft.SnapshotSink) error   { return s.Close() }
func (f *plainFSM) Release()                            {}

// plainCluster returns the leader of plain Raft servers, with hashicorp/raft's
// own transport, cache and default settings.
func plainCluster(b *testing.B, n int, empty bool) *raft.Raft {
	var c raft.Configuration
	transports := make([]*raft.NetworkTransport, n)
	for i := range n {
		t, err := raft.NewTCPTransport("127.0.0.1:0", nil, 3, 10*time.Second, io.Discard)
		if err != nil {
			b.Fatal(err)
		}
		transports[i] = t
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(fmt.Sprint(i)), Address: t.LocalAddr()})
	}
	servers := make([]*raft.Raft, n)
	for i, t := range transports {
		dir := b.TempDir()
		bolt, err := raftboltdb.New(raftboltdb.Options{
			Path:        filepath.Join(dir, "raft.db"),
			BoltOptions: &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
		})
		if err != nil {
			b.Fatal(err)
		}
		cache, err := raft.NewLogCache(recentEntries, bolt)
		if err != nil {
			b.Fatal(err)
		}
		snapshots, err := raft.NewFileSnapshotStore(dir, 3, io.Discard)
		if err != nil {
			b.Fatal(err)
		}
		conf := raft.DefaultConfig()
		conf.LocalID, conf.LogOutput, conf.LogLevel = raft.ServerID(fmt.Sprint(i)), io.Discard, "ERROR"
		conf.BatchApplyCh, conf.NoLegacyTelemetry = true, true
		if i == 0 {
			if err := raft.BootstrapCluster(conf, cache, bolt, snapshots, t, c); err != nil {
				b.Fatal(err)
			}
		}
		if servers[i], err = raft.NewRaft(conf, &plainFSM{empty: empty}, cache, bolt, snapshots, t); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			t.CloseStreams()
			servers[i].Shutdown().Error()
			bolt.Close()
		})
	}
	until(b, "a leader", func() bool { return servers[0].State() == raft.Leader })
	ctx, cancel := context.WithTimeout(b.Context(), within)
	defer cancel()
	for ctx.Err() == nil && servers[0].Barrier(0).Error() != nil {
	}
	return servers[0]
}
