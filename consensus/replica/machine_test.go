package replica

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"penstock/consensus/snapshot"
	"penstock/consensus/store"
)

// A server that received a snapshot takes none of its own before a new entry
// arrives: Raft requests one repeatedly, since its log is behind.
func TestInstalledSnapshotIsNotTakenAgain(t *testing.T) {
	var file bytes.Buffer
	if err := snapshot.Write(&file, store.Snapshot{}.Skip(100)); err != nil {
		t.Fatal(err)
	}
	applied, err := openApplied(filepath.Join(t.TempDir(), "applied"))
	if err != nil {
		t.Fatal(err)
	}
	defer applied.Close()
	m := newMachine(store.Snapshot{}, store.Limits{}, applied)
	m.committed, m.configured = func(uint64, uint64) {}, func() {}
	if err := m.Restore(&snapshot.File{ReadCloser: io.NopCloser(&file), Meta: &raft.SnapshotMeta{Index: 100, Term: 2}}); err != nil {
		t.Fatal(err)
	}
	if m.current().Index() != 100 {
		t.Fatalf("after the restore the index is %d", m.current().Index())
	}
	if _, err := m.Snapshot(); !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		t.Errorf("a snapshot of restored content: %v, want %v", err, raft.ErrNothingNewToSnapshot)
	}
	m.Apply(&raft.Log{Index: 101, Term: 2, Type: raft.LogNoop})
	if _, err := m.Snapshot(); err != nil {
		t.Errorf("a snapshot after another entry: %v", err)
	}
}
