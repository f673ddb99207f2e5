package replica

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/consensus/snapshot"
	"penstock/consensus/store"
)

// world is a cluster under test.
type world struct {
	t       testing.TB
	dir     string
	network *network
	tune    func(*Config)
	servers map[string]*Replica // running servers
	ids     []string            // all servers ever started
	journal journal
}

// newWorld returns a cluster without servers. It is connected in memory, for
// synctest bubbles with virtual time and for tests that need no TCP; benchmarks
// use TCP.
func newWorld(t testing.TB, tune func(*Config)) *world {
	w := &world{t: t, dir: t.TempDir(), network: newNetwork(), tune: tune, servers: map[string]*Replica{}}
	_, w.network.tcp = t.(*testing.B)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last log lines of the servers:\n%s", w.journal.all())
		}
		for _, r := range w.servers {
			r.Close()
		}
	})
	return w
}

// config returns the configuration of a server, with short timeouts.
func (w *world) config(id string) Config {
	streams, err := w.network.listen(id)
	if err != nil {
		w.t.Fatal(err)
	}
	c := Config{
		ID: id, Dir: filepath.Join(w.dir, id), Streams: streams, Addr: streams.Addr().String(),
		Heartbeat: 400 * time.Millisecond, Election: 400 * time.Millisecond,
		Timeout: 2 * time.Second,
		NoSync:  true, // no test simulates a power failure
		Log:     w.logOf(id),
	}
	if w.tune != nil {
		w.tune(&c)
	}
	return c
}

// longTimeouts sets long timeouts that keep leadership stable on a busy
// machine, for tests in which no server must detect the loss of a leader.
func longTimeouts(c *Config) { c.Heartbeat, c.Election = 2*time.Second, 2*time.Second }

func (w *world) open(id string) *Replica {
	w.t.Helper()
	r, err := Open(w.config(id))
	if err != nil {
		w.t.Fatalf("open %s: %v", id, err)
	}
	w.servers[id] = r
	if !slices.Contains(w.ids, id) {
		w.ids = append(w.ids, id)
	}
	return r
}

func (w *world) close(id string) {
	w.t.Helper()
	if err := w.servers[id].Close(); err != nil {
		w.t.Fatalf("close %s: %v", id, err)
	}
	delete(w.servers, id)
}

// cluster starts n voters a, b, c ...; a leads.
func (w *world) cluster(n int) *Replica {
	w.t.Helper()
	a := w.open("a")
	if err := a.Bootstrap(); err != nil {
		w.t.Fatal(err)
	}
	leader := w.leader()
	for i := 1; i < n; i++ {
		id := string(rune('a' + i))
		w.open(id)
		w.mustChange(leader, (*Replica).AddVoter, id)
	}
	return w.mustLead("a")
}

// mustLead makes a server the leader. On a busy machine leadership may move at
// any time; a test that depends on the leader uses lead and steady.
func (w *world) mustLead(id string) *Replica {
	w.t.Helper()
	r := w.servers[id]
	until(w.t, id+" to lead", func() bool {
		if s := r.Leadership(); s.Role == RoleLeader && s.Ready {
			return true
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		_ = w.leader().Transfer(ctx, id)
		return false
	})
	return r
}

// within bounds the wait for a condition.
const within = 5 * time.Minute

// until polls for a condition, and fails the test if it does not hold within
// that time.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(within)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("waited %v for: %s", within, what)
		}
		<-tick.C
	}
}

// leader waits until a running server is the leader, one of ids if given.
func (w *world) leader(ids ...string) (leader *Replica) {
	w.t.Helper()
	until(w.t, "a leader", func() bool {
		for id, r := range w.servers {
			if s := r.Leadership(); s.Role == RoleLeader && s.Ready && (len(ids) == 0 || slices.Contains(ids, id)) {
				leader = r
				return true
			}
		}
		return false
	})
	return leader
}

// mustTransfer transfers leadership to a server, or to any other than the
// current leader. It retries while the target is too busy.
func (w *world) mustTransfer(to string) {
	w.t.Helper()
	from := w.leader()
	until(w.t, "leadership to move from "+from.cfg.ID, func() bool {
		now := w.leader()
		if to == now.cfg.ID || to == "" && now != from {
			return true
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), within/5)
		defer cancel()
		err := now.Transfer(ctx, to)
		if err != nil {
			w.t.Logf("leadership stays with %s: %v", now.cfg.ID, err)
		}
		return false
	})
}

// mustChange changes the servers through that leader, or its successor if
// leadership has moved.
func (w *world) mustChange(
	leader *Replica,
	change func(*Replica, context.Context, string, string, uint64) (uint64, error),
	id string,
) {
	w.t.Helper()
	until(w.t, "a change of the servers", func() bool {
		_, at := leader.Servers()
		_, err := change(leader, w.t.Context(), id, "somewhere:1", at)
		if err != nil && !errors.Is(err, store.ErrNotLeader) && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, ErrServers) {
			w.t.Fatal(err)
		}
		if err != nil {
			leader = w.leader()
		}
		return err == nil
	})
}

func put(kind, name, value string) store.Op {
	return store.Op{Key: store.Key{Kind: kind, Name: name}, Value: []byte(value)}
}

func del(kind, name string) store.Op { return store.Op{Key: store.Key{Kind: kind, Name: name}} }

// at returns an operation that requires that version of its entry.
func at(version uint64, o store.Op) store.Op { o.IfVersion = &version; return o }

// fileOf returns the snapshot's file; equal snapshots have equal files.
func fileOf(t testing.TB, v store.Snapshot) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := snapshot.Write(&file, v); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

var batchIDs atomic.Uint64

// batch returns a batch with a unique ID, also among processes that write to
// the same directory: a reused ID would make it a repeated batch.
func batch(ops ...store.Op) *store.Batch {
	b := &store.Batch{Ops: ops}
	rand.Read(b.ID[:8])
	binary.BigEndian.PutUint64(b.ID[8:], batchIDs.Add(1))
	return b
}

// mustCommit commits a batch through that leader, or its successor if
// leadership has moved.
func (w *world) mustCommit(r *Replica, ops ...store.Op) uint64 {
	w.t.Helper()
	b := batch(ops...)
	result, err := r.Commit(w.t.Context(), b)
	switch {
	case errors.Is(err, store.ErrNotLeader), errors.Is(err, store.ErrUnknown):
		return w.persist(b).Index
	case err != nil:
		w.t.Fatal(err)
	}
	return result.Index
}

// persist retries a batch on all servers until it is applied.
func (w *world) persist(b *store.Batch) store.Result {
	w.t.Helper()
	var result store.Result
	until(w.t, "a batch to be committed", func() bool {
		for _, r := range w.servers {
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
			var err error
			result, err = r.Commit(ctx, b)
			cancel()
			if err == nil {
				return true
			}
			if !errors.Is(err, store.ErrNotLeader) && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, context.DeadlineExceeded) {
				w.t.Fatal(err)
			}
		}
		return false
	})
	return result
}

// waitContent waits until a server has that content.
func (w *world) waitContent(r *Replica, want string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	for v := r.Snapshot(); ; {
		got := values(v)
		if got == want {
			return
		}
		var err error
		if v, err = r.Wait(ctx, v.Index()); err != nil {
			w.t.Fatalf("%s shows %q, not %q: %v", r.cfg.ID, got, want, err)
		}
	}
}

// values formats a snapshot as "name=value" words.
func values(v store.Snapshot) string {
	var words []string
	for e := range v.All() {
		words = append(words, fmt.Sprintf("%s=%s", e.Name, e.Value))
	}
	return strings.Join(words, " ")
}
