package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/hashicorp/raft"

	"penstock/consensus/store"
)

func TestReadsSeeCommittedWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		w.cluster(3)
		read := func() string {
			t.Helper()
			leader := w.leader()
			index, err := leader.ReadIndex(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, id := range w.ids { // on all servers, although Raft's internal entries are last
				ctx, cancel := context.WithTimeout(t.Context(), within)
				v, err := w.servers[id].Wait(ctx, index-1)
				cancel()
				if err != nil {
					t.Fatalf("%s waits for index %d, and is at %d: %v", id, index, w.servers[id].Snapshot().Index(), err)
				}
				got = values(v)
			}
			return got
		}
		for i := range 3 {
			w.mustCommit(w.leader(), put("A", "x", fmt.Sprint(i)))
			for range 2 {
				if got, want := read(), fmt.Sprint("x=", i); got != want {
					t.Errorf("read %q, want %q", got, want)
				}
				w.mustTransfer("")
			}
		}
		for _, r := range w.servers {
			if r != w.leader() {
				if _, err := r.ReadIndex(t.Context()); !errors.Is(err, store.ErrNotLeader) {
					t.Errorf("a read at a follower: %v, want %v", err, store.ErrNotLeader)
				}
			}
		}
	})
}

// Raft itself counts a non-voter's response like a voter's.
func TestLeaderWithoutVotersServesNoReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) {
			c.Heartbeat, c.Election, c.Lease = time.Second, time.Second, time.Second
		})
		a := w.cluster(3)
		w.open("d")
		w.mustChange(a, (*Replica).AddNonvoter, "d")
		w.mustCommit(a, put("A", "x", "1"))
		w.waitContent(w.servers["d"], "x=1")
		w.mustLead("a")
		w.network.isolate("a", true, "b", "c")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := a.verifyLeadership(ctx); err != nil {
			t.Logf("Raft seems to count only voters: %v", err)
		}
		if _, err := a.ReadIndex(ctx); err == nil {
			t.Error("it served a read that no voter has confirmed")
		}
	})
}

func TestStaleLeaderServesNoReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a := w.cluster(3)
		w.mustCommit(a, put("A", "x", "1"))
		w.network.isolate("a", true, "b", "c")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		bad := make(chan string, 1)
		var wg sync.WaitGroup
		agreed := make(chan uint64, 1)
		wg.Go(func() { // reads continuously, and must never miss what b and c commit
			after := uint64(0)
			for ctx.Err() == nil {
				<-time.After(time.Millisecond) // virtual time advances only while all goroutines are blocked
				select {
				case after = <-agreed:
				default:
				}
				wanted := after
				index, err := a.ReadIndex(ctx)
				if err == nil && index < wanted {
					bad <- fmt.Sprintf("index %d, but %d was committed before", index, wanted)
					return
				}
			}
		})
		agreed <- w.persist(batch(put("A", "x", "2"))).Index
		w.network.isolate("a", false, "b", "c")
		w.waitContent(a, "x=2")
		cancel()
		wg.Wait()
		select {
		case b := <-bad:
			t.Error(b)
		default:
		}
	})
}

// withoutVoter begins a wait for acknowledgements of a leader with one other
// voter, which gives none, and then removes that voter. It returns the leader
// and the outcome of the wait.
func withoutVoter(t *testing.T, w *world, begin func(context.Context, *Replica) error) (*Replica, <-chan error) {
	a := w.cluster(2)
	w.network.isolate("a", true, "b")
	synctest.Wait() // no acknowledgement is on its way
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	go func() {
		defer cancel()
		ended <- begin(ctx, a)
	}()
	synctest.Wait() // Raft and the replica now wait for b
	select {
	case err := <-ended:
		t.Fatalf("the wait ended before b was removed: %v", err)
	default:
	}
	_, at := a.Servers()
	if _, err := a.Remove(t.Context(), "b", at); err != nil {
		t.Fatal(err)
	}
	return a, ended
}

// Raft verifies its leadership with the voters of the time when it is asked,
// also if they are removed before they respond.
func TestReadOutlastsRemovalOfVoter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a, ended := withoutVoter(t, w, func(ctx context.Context, a *Replica) error {
			_, err := a.ReadIndex(ctx)
			return err
		})
		if err := <-ended; err != nil {
			t.Errorf("the read that waited for the removed voter: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.ReadIndex(ctx); err != nil {
			t.Errorf("a read after the removal: %v", err)
		}
	})
}

// The same for the second part of a read, which waits for acknowledgements that
// Raft does not ask for.
func TestConfirmationOutlastsRemovalOfVoter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		_, ended := withoutVoter(t, w, func(ctx context.Context, a *Replica) error {
			return a.confirmLeadership(ctx, a.raft.CurrentTerm(), a.transport.notifier.mark())
		})
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Close waits for what Raft will answer, which a verification with a removed
// voter is not. Its goroutine must end nevertheless: synctest checks that.
func TestCloseAfterRemovalOfVoter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a, ended := withoutVoter(t, w, func(ctx context.Context, a *Replica) error {
			_, err := a.ReadIndex(ctx)
			return err
		})
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		<-ended // with or without an error: the read may have been served
		if strings.Contains(string(w.journal.all()), "raft has left requests unanswered") {
			t.Error("Close gave up waiting for Raft")
		}
	})
}

// Until an entry of its own term is committed, a leader's commit index may be
// behind.
func TestNewLeaderReadsEarlierCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a := w.cluster(1)
		a.reads.ready.Store(0) // as if it had just been elected
		if _, err := a.ReadIndex(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := a.reads.ready.Load(), a.Leadership().Term; got != want {
			t.Errorf("it served a read when ready in term %d, but leads in %d", got, want)
		}
	})
}

// register is a client's operation on one key.
type register struct {
	key   string
	write bool
	value string // "" if the key does not exist
	// unknown: the write may take effect at any time after it began, or never.
	unknown bool
}

var registers = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, o := range h {
			key := o.Input.(register).key
			parts[key] = append(parts[key], o)
		}
		var all [][]porcupine.Operation
		for _, p := range parts {
			all = append(all, p)
		}
		return all
	},
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		if in := in.(register); in.write {
			return true, in.value
		}
		return out.(register).value == state, state
	},
}

// TestHistoriesAreLinearizable runs clients that put, delete and read while
// leaders change and links break.
func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.cluster(3)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	start := time.Now()
	const duration, enough = 3 * time.Second, 100
	var mu sync.Mutex
	var history []porcupine.Operation
	good := 0 // successful operations
	// A write of unknown outcome may take effect at any later time, and each one
	// of a key makes the check much slower: after a few, the clients use a new
	// key.
	const mayBeUnknown = 8
	var keys, unknown [3]int
	var wg sync.WaitGroup
	servers := []*Replica{w.servers["a"], w.servers["b"], w.servers["c"]}
	for client := range 6 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				which := rand.N(len(keys))
				mu.Lock()
				in := register{key: fmt.Sprint(which, ".", keys[which]), write: rand.N(2) == 0}
				mu.Unlock()
				if in.write && rand.N(4) > 0 {
					in.value = fmt.Sprint(client, ".", i)
				}
				op := porcupine.Operation{ClientId: client, Input: in, Call: int64(time.Since(start))}
				out, ok := runOperation(ctx, servers, in)
				op.Output, op.Return = out, int64(time.Since(start))
				if out.unknown {
					op.Return = int64(time.Hour) // it may take effect at any time
				}
				if ok || out.unknown {
					mu.Lock()
					history = append(history, op)
					if !out.unknown {
						good++
					} else if unknown[which]++; unknown[which] >= mayBeUnknown {
						keys[which], unknown[which] = keys[which]+1, 0
					}
					if good >= enough && time.Since(start) >= duration { // a busy machine takes longer
						cancel()
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Go(func() { disturb(ctx, w, servers) })
	wg.Wait()
	w.network.isolate("a", false, "b", "c")
	w.network.isolate("b", false, "c")
	if good < enough {
		t.Errorf("only %d steps succeeded", good)
	}
	if result := porcupine.CheckOperationsTimeout(registers, history, time.Minute); result != porcupine.Ok {
		t.Errorf("the history of %d steps is %v", len(history), result)
	}
}

// runOperation tries an operation on one server after the other. A batch of
// unknown outcome is not retried: it stays unknown.
func runOperation(ctx context.Context, servers []*Replica, in register) (out register, ok bool) {
	b := batch(put("A", in.key, in.value))
	if in.value == "" {
		b = batch(del("A", in.key))
	}
	for _, i := range rand.Perm(len(servers)) {
		leader := servers[i]
		step, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
		if !in.write {
			out, ok = read(step, leader, servers[rand.N(len(servers))], in.key)
			cancel()
			if ok {
				return out, true
			}
			continue
		}
		_, err := leader.Commit(step, b)
		cancel()
		switch {
		case err == nil:
			return register{}, true
		case !errors.Is(err, store.ErrNotLeader):
			return register{unknown: true}, false
		}
	}
	return register{}, false
}

// read gets a read index from the leader, and reads on another server.
func read(ctx context.Context, leader, at *Replica, key string) (register, bool) {
	index, err := leader.ReadIndex(ctx)
	if err != nil {
		return register{}, false
	}
	v, err := at.Wait(ctx, index-1)
	if err != nil {
		return register{}, false
	}
	e, _ := v.Get(store.Key{Kind: "A", Name: key})
	return register{value: string(e.Value)}, true
}

// disturb transfers leadership, and breaks and restores links.
func disturb(ctx context.Context, w *world, servers []*Replica) {
	ids := []string{"a", "b", "c"}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for i, r := range servers {
			if r.raft.State() != raft.Leader {
				continue
			}
			others := []string{ids[(i+1)%3], ids[(i+2)%3]}
			if n%2 == 0 {
				step, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				_ = r.Transfer(step, "")
				cancel()
				continue
			}
			w.network.isolate(ids[i], true, others...)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
			w.network.isolate(ids[i], false, others...)
		}
	}
}
