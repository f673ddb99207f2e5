package replica

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"

	"penstock/consensus/snapshot"
	"penstock/consensus/store"
	"penstock/internal/testkit"
)

func (w *world) mustSnapshot(r *Replica) {
	w.t.Helper()
	if err := r.raft.Snapshot().Error(); err != nil {
		w.t.Fatal(err)
	}
}

func TestIsolatedServerServesAppliedContent(t *testing.T) {
	t.Parallel()
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprint("snapshot=", snapshot), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				a := w.cluster(3)
				w.mustCommit(a, put("A", "x", "1"))
				b := w.servers["b"]
				w.waitContent(b, "x=1")
				if snapshot {
					w.mustSnapshot(b)
				}
				w.mustCommit(a, put("A", "y", "2"))
				index := w.mustCommit(a, put("A", "z", "3"))
				w.waitContent(b, "x=1 y=2 z=3")
				for _, id := range w.ids {
					w.close(id)
				}
				b = w.open("b")
				if v := b.Snapshot(); values(v) != "x=1 y=2 z=3" || v.Index() != index {
					t.Fatalf("it serves %q of index %d at once, want all of index %d", values(v), v.Index(), index)
				}
				if _, err := b.Commit(t.Context(), batch(put("A", "x", "9"))); !errors.Is(err, store.ErrNotLeader) {
					t.Errorf("a batch: %v, want %v", err, store.ErrNotLeader)
				}
				back := make(chan string, 1)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				done := make(chan struct{})
				go func() { // while Raft delivers the log again
					defer close(done)
					for v := b.Snapshot(); ; {
						next, err := b.Wait(ctx, v.Index())
						if err != nil {
							return
						}
						if next.Index() < v.Index() || next.Len() < 3 {
							back <- fmt.Sprintf("%q of index %d after %d", values(next), next.Index(), v.Index())
							return
						}
						v = next
					}
				}()
				w.open("a")
				w.persist(batch(put("A", "z", "4")))
				w.waitContent(b, "x=1 y=2 z=4")
				w.mustSnapshot(b) // all entries are delivered again by now
				stop()
				<-done
				select {
				case s := <-back:
					t.Errorf("its snapshots went back: %s", s)
				default:
				}
			})
		})
	}
}

func TestUncommittedEntriesAreNotServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		a := w.cluster(3)
		w.mustCommit(a, put("A", "x", "1"))
		w.mustLead("a")
		w.network.isolate("a", true, "b", "c")
		if _, err := a.Commit(t.Context(), batch(put("A", "x", "2"))); !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("a batch at a leader that is cut off: %v", err)
		}
		w.close("a")
		if got := values(w.open("a").Snapshot()); got != "x=1" {
			t.Errorf("it serves %q, want what was committed", got)
		}
		// A record is ignored if its entry is not in the log, or has another term
		// there.
		w.close("a")
		f, err := openApplied(filepath.Join(w.dir, "a", "applied"))
		if err != nil {
			t.Fatal(err)
		}
		f.write(f.recovered[0].index+1, f.recovered[0].term+7)
		f.Close()
		if got := values(w.open("a").Snapshot()); got != "x=1" {
			t.Errorf("it serves %q, want what was committed", got)
		}
	})
}

// childDir is an environment variable of the process that is killed.
const childDir = "CONSENSUS_TEST_CHILD"

// writeUntilKilled is the main function of that process: it prints each
// acknowledged index and value.
func writeUntilKilled(dir string) {
	streams, err := newNetwork().listen("a")
	if err != nil {
		panic(err)
	}
	r, err := Open(Config{
		ID: "a", Dir: dir, Streams: streams,
		Heartbeat: 50 * time.Millisecond, Election: 50 * time.Millisecond, Lease: 50 * time.Millisecond,
		SnapshotThreshold: 50, SnapshotInterval: 20 * time.Millisecond, TrailingLogs: 10,
	})
	if err == nil {
		if has, _ := r.HasState(); !has {
			err = r.Bootstrap()
		}
	}
	if err != nil {
		panic(err)
	}
	e, _ := r.Snapshot().Get(store.Key{Kind: "A", Name: "x"})
	before := 0
	fmt.Sscan(string(e.Value), &before)
	for i := before + 1; ; i++ { // values increase across all rounds
		result, err := r.Commit(context.Background(), batch(put("A", "x", fmt.Sprint(i))))
		if err == nil {
			fmt.Println(result.Index, i)
		} else if !errors.Is(err, store.ErrNotLeader) {
			panic(err)
		}
	}
}

func TestKilledServerServesAcknowledgedWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var index uint64
	var value int
	for round := range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+filepath.Join(w.dir, "a"))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var n int
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			before := index
			if _, err := fmt.Sscan(lines.Text(), &index, &value); err != nil || index <= before {
				t.Fatalf("%q after index %d: %v", lines.Text(), before, err)
			}
			if n++; n == 100+30*round {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		a := w.open("a")
		v := a.Snapshot() // before a leader is elected
		e, _ := v.Get(store.Key{Kind: "A", Name: "x"})
		got := -1
		fmt.Sscan(string(e.Value), &got)
		if n < 100 || v.Index() < index || got < value {
			t.Errorf("killed after %d batches, at index %d and value %d: it serves index %d, value %q", n, index, value, v.Index(), e.Value)
		}
		w.leader()
		w.mustCommit(a, put("A", "y", "1"))
		w.close("a")
	}
}

// TestDamagedLogIsReported: a copy taken while the file was written, or a part
// of one, may be usable or not, but never crashes the process.
func TestDamagedLogIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.cluster(1)
	var copies [][]byte
	for i := range 100 {
		w.mustCommit(a, put("A", fmt.Sprint(i), strings.Repeat("v", 1000)))
		if i%20 == 19 {
			c, err := os.ReadFile(filepath.Join(w.dir, "a", "raft.db"))
			if err != nil {
				t.Fatal(err)
			}
			copies = append(copies, c)
		}
	}
	applied, err := os.ReadFile(filepath.Join(w.dir, "a", "applied"))
	if err != nil {
		t.Fatal(err)
	}
	whole := copies[len(copies)-1]
	used := len(whole)
	for used > 0 && whole[used-1] == 0 { // the file is preallocated
		used--
	}
	for _, n := range []int{used - 5000, used / 2, 3 * os.Getpagesize(), 5000, 100} {
		copies = append(copies, whole[:n])
	}
	scratched := append([]byte(nil), whole...)
	for i := 8192; i < len(scratched); i += 1000 {
		scratched[i] ^= 0xff
	}
	good := 0
	for i, c := range append(copies, scratched) {
		id := fmt.Sprint("copy", i)
		dir := filepath.Join(w.dir, id)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "raft.db"), c, 0o600),
			os.WriteFile(filepath.Join(dir, "applied"), applied, 0o600)); err != nil {
			t.Fatal(err)
		}
		r, err := Open(w.config(id))
		if err != nil {
			t.Logf("copy %d of %d bytes: %v", i, len(c), err)
			continue
		}
		good++
		r.Close()
	}
	if good == 0 {
		t.Error("none of the copies is usable")
	}
}

func TestADamagedSnapshotFallsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.TrailingLogs = 1 })
		a := w.cluster(1)
		for i := range 5 {
			for j := range 20 {
				w.mustCommit(a, put("A", fmt.Sprint(j), fmt.Sprint(i)))
			}
			w.mustSnapshot(a)
		}
		w.mustCommit(a, put("A", "last", "1"))
		want := values(a.Snapshot())
		first, err := a.logStore.FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		all, err := a.snapshots.List()
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != snapshot.Keep || first > all[1].Index+1 || first <= all[2].Index {
			t.Errorf("%d snapshots, the log begins with %d; want %d, and what follows the one before the last", len(all), first, snapshot.Keep)
		}
		w.close("a")
		damage := func(i int) {
			state := filepath.Join(w.dir, "a", "snapshots", all[i].ID, "state.bin")
			b, err := os.ReadFile(state)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			if err := os.WriteFile(state, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		damage(0)
		a = w.open("a")
		if got := values(a.Snapshot()); got != want {
			t.Errorf("it serves %q, want %q", got, want)
		}
		w.mustCommit(w.leader(), put("A", "last", "2"))
		w.close("a")
		damage(1) // now the log does not go back far enough
		if _, err := Open(w.config("a")); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("without snapshots: %v, want %v", err, store.ErrDamaged)
		}
	})
}

// A log may be empty after a snapshot from the leader. Without the snapshot the
// server has lost committed entries and must not vote.
func TestAnEmptyLogNeedsASnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a := w.cluster(1)
		w.mustCommit(a, put("A", "0", "v"))
		w.mustSnapshot(a)
		want := values(a.Snapshot())
		last, err := a.logStore.LastIndex()
		if err == nil {
			err = a.logStore.bolt.DeleteRange(1, last)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.close("a")
		a = w.open("a")
		if got := values(a.Snapshot()); got != want {
			t.Errorf("with the snapshot it serves %q, want %q", got, want)
		}
		if last, err = a.logStore.LastIndex(); err == nil && last > 0 {
			err = a.logStore.bolt.DeleteRange(1, last)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.close("a")
		if err := os.RemoveAll(filepath.Join(w.dir, "a", "snapshots")); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(w.config("a")); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("without it: %v, want %v", err, store.ErrDamaged)
		}
	})
}

func TestANewServerGetsTheSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.TrailingLogs = 1 })
		a := w.cluster(1)
		var want []string
		for i := range 50 {
			w.mustCommit(a, put("A", fmt.Sprintf("%02d", i), "v"))
			want = append(want, fmt.Sprintf("%02d=v", i))
			if i%20 == 19 {
				w.mustSnapshot(a)
			}
		}
		b := w.open("b")
		w.mustChange(a, (*Replica).AddVoter, "b")
		w.waitContent(b, strings.Join(want, " "))
		if all, err := b.snapshots.List(); err != nil || len(all) == 0 {
			t.Errorf("it has %d snapshots, %v: it got the log", len(all), err)
		}
		w.close("a")
		w.close("b")
		if got := values(w.open("b").Snapshot()); got != strings.Join(want, " ") {
			t.Errorf("alone it serves %q", got)
		}
	})
}

func TestDirectoryHasOneServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.cluster(1)
		start := time.Now()
		_, err := Open(w.config("a"))
		if err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("it was opened twice: %v", err)
		}
		if d := time.Since(start); d > within {
			t.Errorf("it took %v to find out", d)
		}
		if err := os.WriteFile(filepath.Join(w.dir, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(w.config("file")); err == nil {
			t.Error("a file was opened as a folder")
		}
	})
}

// randomText returns n incompressible bytes.
func randomText(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return string(b)
}

// tmpfs mounts a file system of its own at dir.
func tmpfs(t *testing.T, dir, options string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		testkit.NotTested(t, "full disks, for none can be mounted here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

func TestALeaderWithAFullDiskStepsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tmpfs(t, filepath.Join(w.dir, "a"), "size=2m,mode=0700")
	a := w.cluster(3)
	w.mustCommit(a, put("A", "x", "1"))
	fill := filepath.Join(w.dir, "a", "fill")
	full := func() {
		f, err := os.Create(fill)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for {
			if _, err := f.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}
	full()
	until(t, "the pages that it has to be used up", func() bool {
		_, err := w.mustLead("a").Commit(t.Context(), batch(put("A", "big", randomText(100_000))))
		used := errors.Is(err, unix.ENOSPC)
		if used && !errors.Is(err, store.ErrUnknown) {
			t.Errorf("a batch for a full disk: %v, want %v", err, store.ErrUnknown)
		}
		return used
	})
	var leader *Replica
	until(t, "another leader", func() bool { // a may win once or twice more, until its log is behind
		_, _ = w.leader().Commit(t.Context(), batch(put("A", "big", randomText(100_000))))
		leader = w.leader()
		return leader != a && a.Leadership().Fault != nil
	})
	w.persist(batch(put("A", "y", "2"), del("A", "big")))
	if e, ok := a.Snapshot().Get(store.Key{Kind: "A", Name: "x"}); !ok || string(e.Value) != "1" {
		t.Errorf("the server with the full disk serves %q", e.Value)
	}
	os.Remove(fill)
	w.waitContent(a, "x=1 y=2")
	until(t, "the server to know that its disk is well", func() bool { return a.Leadership().Fault == nil })
	full()
	w.close("a") // does not hang
}

func TestReadOnlyDirectoryIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	dir := filepath.Join(w.dir, "a")
	tmpfs(t, dir, "size=2m,mode=0700")
	w.cluster(1)
	w.close("a")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=2m,mode=0700"); err != nil {
		testkit.NotTested(t, "read-only disks: %v", err)
	}
	if _, err := Open(w.config("a")); !errors.Is(err, unix.EROFS) {
		t.Errorf("a folder that cannot be written: %v, want %v", err, unix.EROFS)
	}
}

func TestUncommittedLogTailIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		a := w.cluster(3)
		_, before := a.Servers()
		w.network.isolate("a", true, "b", "c")
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		if _, err := a.AddNonvoter(ctx, "d", "host:1", before); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("a server added by a leader that is cut off: %v, want %v", err, store.ErrUnknown)
		}
		leader := w.leader("b", "c")
		w.mustCommit(leader, put("A", "x", "1"))
		w.network.isolate("a", false, "b", "c")
		w.waitContent(a, "x=1")
		until(t, "the configuration that was agreed", func() bool {
			all, at := a.Servers()
			return len(all) == 3 && at == before
		})
		var entry raft.Log
		if err := a.logStore.GetLog(a.Snapshot().Index(), &entry); err != nil {
			t.Error(err)
		}
	})
}
