package integration

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"penstock/internal/testkit"
)

// snapshots returns the folders of a node's snapshots, oldest first.
func (m *member) snapshots() []string {
	m.t.Helper()
	list, err := filepath.Glob(filepath.Join(m.dir, "raft", "snapshots", "*-*-*[0-9]"))
	if err != nil {
		m.t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b string) int { // term, index and time have no leading zeros
		return strings.Compare(zeroPad(filepath.Base(a)), zeroPad(filepath.Base(b)))
	})
	return list
}

func zeroPad(name string) (s string) {
	for _, part := range strings.Split(name, "-") {
		s += strings.Repeat("0", 20-len(part)) + part
	}
	return s
}

// tearLastWrite reproduces a power failure during the last write to a log: the
// newer of bbolt's two meta pages is invalid, so the older one applies.
func tearLastWrite(t *testing.T, path string) {
	t.Helper()
	const page, meta, txid = 4096, 16, 48
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	newest, at := uint64(0), int64(0)
	for i := range int64(2) {
		var b [8]byte
		if _, err := f.ReadAt(b[:], i*page+meta+txid); err != nil {
			t.Fatal(err)
		}
		if n := binary.NativeEndian.Uint64(b[:]); n > newest {
			newest, at = n, i*page+meta
		}
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xff}, 40), at); err != nil {
		t.Fatal(err)
	}
}

// canLoseNewestSnapshot reports whether a stopped node could start without its
// newest snapshot, because it has an older one and the log from there on. That
// is not so if the leader sent the newest because the node was behind.
func (m *member) canLoseNewestSnapshot() bool {
	m.t.Helper()
	list := m.snapshots()
	if len(list) < 2 {
		return false
	}
	index, err := strconv.ParseUint(strings.Split(filepath.Base(list[len(list)-2]), "-")[1], 10, 64)
	if err != nil {
		m.t.Fatal(err)
	}
	db, err := raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(m.dir, "raft", "raft.db"), BoltOptions: &bbolt.Options{ReadOnly: true},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	defer db.Close()
	first, err := db.FirstIndex()
	if err != nil {
		m.t.Fatal(err)
	}
	return first > 0 && first <= index+1
}

// A crash or a bad disk damages a node's log or snapshots. The node repairs
// what it can with the help of the others, and otherwise reports the damage and
// does not vote. The traffic of other nodes is not affected.
func TestDamagedLogsAndSnapshots(t *testing.T) {
	t.Parallel()
	f := startClusterOf(t, shortLog.program(t), 3)
	one := f.members[0]
	a := &generations{t: t}
	one.apply(serviceOnAll("svc", "9100", testkit.Serve(t, echo)))
	a.apply(one, true)
	f.mustAgree()
	tr := startTraffic(f, "9100", 100)
	victim := f.members[2]
	if victim == f.waitLeader() {
		victim = f.members[1]
	}
	tr.excuseNode(victim)
	raft := filepath.Join(victim.dir, "raft")
	aside := func(name string) (back func()) {
		t.Helper()
		if err := os.Rename(filepath.Join(raft, name), filepath.Join(victim.dir, name)); err != nil {
			t.Fatal(err)
		}
		return func() {
			_ = os.RemoveAll(filepath.Join(raft, name))
			if err := os.Rename(filepath.Join(victim.dir, name), filepath.Join(raft, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	has := func(what string) {
		t.Helper()
		a.apply(f.waitLeader(), false)
		testkit.WaitFor(t, what+": the node to have everything", func() bool {
			left, right, err := generationsAt(t.Context(), victim)
			return err == nil && left == a.generation && right == a.generation
		})
	}
	a.applyUntil("snapshots", f.waitLeader(), false, func() bool {
		return len(victim.snapshots()) >= 2 && victim.compactedBefore() > 0
	})

	// An unfinished write may overwrite pages that the previous meta refers to.
	has("nothing under way")
	victim.kill()
	tearLastWrite(t, filepath.Join(raft, "raft.db"))
	victim.launch()
	has("a torn last record")

	victim.kill()
	for !victim.canLoseNewestSnapshot() {
		victim.launch()
		before := victim.snapshots()
		a.applyUntil("two newer snapshots", f.waitLeader(), false, func() bool {
			list := victim.snapshots()
			return len(list) >= 2 && !slices.Contains(before, list[len(list)-2])
		})
		victim.kill()
	}
	last := victim.snapshots()[len(victim.snapshots())-1]
	if err := os.WriteFile(filepath.Join(last, "state.bin"), []byte("no state"), 0o600); err != nil {
		t.Fatal(err)
	}
	victim.launch()
	if !strings.Contains(victim.log(), "trying the one before it") {
		t.Error("nothing is said of a snapshot that cannot be read")
	}
	has("a damaged snapshot")

	victim.kill()
	back := aside("snapshots")
	victim.mustNotStart([]string{"damaged", "entry"})
	back()
	back = aside("raft.db")
	victim.mustNotStart([]string{"the log is gone", "penstock remove"})
	if err := os.WriteFile(filepath.Join(raft, "raft.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	victim.mustNotStart([]string{"the log is gone"})
	back()
	victim.launch()
	has("everything put back")
	f.waitSettled(3)
	tr.mustBeUnbroken()
}

// A node that lost its log but kept its snapshots must not vote, even if the
// others need its vote. Committed changes survive, and the node comes back by
// the steps in its error message.
func TestNodeWithoutItsLogDoesNotVote(t *testing.T) {
	t.Parallel()
	f := startClusterOf(t, shortLog.program(t), 3)
	a := &generations{t: t}
	f.members[0].apply(serviceOnAll("svc", "9100", testkit.Serve(t, echo)))
	a.apply(f.members[0], true)
	tr := startTraffic(f, "9100", 100)
	lead := f.waitLeader()
	rest := slices.DeleteFunc(slices.Clone(f.members), func(m *member) bool { return m == lead })
	lost, other := rest[0], rest[1]
	a.applyUntil("a snapshot", lead, false, func() bool { return len(lost.snapshots()) > 0 })
	tr.excuseNode(lost)
	lost.kill()
	a.apply(lead, true) // only the two other nodes have this change
	if err := os.Remove(filepath.Join(lost.dir, "raft", "raft.db")); err != nil {
		t.Fatal(err)
	}
	lost.mustNotStart([]string{"the log is gone", "penstock remove"})

	tr.excuseNode(other)
	other.kill()
	testkit.WaitFor(t, "the last one to be alone", func() bool { return lead.status().Alone != "" })
	lost.mustNotStart([]string{"the log is gone"})
	if r := lead.pipe(serviceOnAll("never", "9300", "127.0.0.1:1"), "apply", "-f", "-", "--timeout", "1s"); r.code == 0 {
		t.Error("a change was taken with one voter of three")
	}
	other.launch()
	tr.endExcuse(other)
	f.waitLeader()
	testkit.WaitFor(t, "the node to be removed", func() bool { return other.run("remove", lost.name).code == 0 })
	if err := os.RemoveAll(lost.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(lost.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lost.launch(f.join...)
	tr.endExcuse(lost)
	f.waitSettled(3)
	for _, m := range f.members {
		testkit.WaitFor(t, m.name+" to have what was agreed", func() bool {
			left, right, err := generationsAt(t.Context(), m)
			return err == nil && left == a.generation && right == a.generation
		})
	}
	tr.mustBeUnbroken()
}
