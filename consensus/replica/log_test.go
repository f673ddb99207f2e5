package replica

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"penstock/consensus/snapshot"
	"penstock/consensus/store"
)

func newLog(t *testing.T) (s *logStore, closing chan struct{}) {
	t.Helper()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	snapshots, err := snapshot.OpenDir(dir, newRaftLogger(log))
	if err != nil {
		t.Fatal(err)
	}
	closing = make(chan struct{})
	if s, err = openLog(filepath.Join(dir, "raft.db"), true, snapshots, closing, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, closing
}

// Raft would end the process.
func TestTermWriteIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, closing := newLog(t)
		s.bolt.Close() // has the effect of a full disk
		if err := s.SetUint64([]byte("LastVoteTerm"), 7); err == nil {
			t.Error("a vote that was not written is reported as written")
		}
		done := make(chan error, 1)
		go func() { done <- s.SetUint64([]byte("CurrentTerm"), 7) }()
		select {
		case err := <-done:
			t.Fatalf("a term that cannot be written: %v", err)
		case <-time.After(2 * retryWrite):
		}
		if s.lastFault() == nil {
			t.Error("no error is logged")
		}
		close(closing)
		if err := <-done; err != nil {
			t.Errorf("when it is closed: %v", err)
		}
	})
}

func TestLogStoreKeepsEntriesAndConfigurations(t *testing.T) {
	s, _ := newLog(t)
	conf := func(id string) raft.Configuration {
		return raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(id), Address: "x"}}}
	}
	for i := uint64(1); i <= 2000; i++ {
		l := &raft.Log{Index: i, Term: 1, Data: bytes.Repeat([]byte{byte(i)}, 10)}
		if i%500 == 0 {
			l.Type, l.Data = raft.LogConfiguration, raft.EncodeConfiguration(conf(strings.Repeat("s", int(i/500))))
		}
		if err := s.StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	mustHave := func(first, last uint64) {
		t.Helper()
		for i := uint64(1); i <= 2000; i++ {
			var l raft.Log
			err := s.GetLog(i, &l)
			if i < first || i > last {
				if !errors.Is(err, raft.ErrLogNotFound) {
					t.Fatalf("entry %d is there: %v", i, err)
				}
			} else if err != nil || l.Index != i {
				t.Fatalf("entry %d: %d, %v", i, l.Index, err)
			}
		}
	}
	if got := s.configurationIndex(conf("ssss")); got != 2000 {
		t.Errorf("the last configuration is at %d, want 2000", got)
	}
	if err := s.DeleteRange(1900, 2000); err != nil { // entries of another leader follow
		t.Fatal(err)
	}
	if got := s.configurationIndex(conf("ssss")); got != 0 {
		t.Errorf("an uncommitted configuration is at %d", got)
	}
	mustHave(1, 1899)
	if err := s.compact(1, 1700); err != nil {
		t.Fatal(err)
	}
	mustHave(1701, 1899)
	if got := s.configurationIndex(conf("sss")); got != 1500 {
		t.Errorf("the configuration in force is at %d, want 1500", got)
	}
}

func TestTornAppliedRecordFallsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "applied")
	reopen := func() []record {
		t.Helper()
		a, err := openApplied(path)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		return a.recovered
	}
	for n := uint64(1); n < 10; n++ {
		a, err := openApplied(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			a.write(100*n+i, n)
		}
		a.Close()
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := reopen(); len(got) == 0 || got[0] != (record{100*n + n - 1, n}) {
			t.Fatalf("after %d records: %v", n, got)
		}
		for slot := range 2 { // whichever is torn, the other is valid
			torn := bytes.Clone(whole)
			if at := slot*appliedSlot + 12; at < len(torn) {
				torn[at] ^= 0xff
			}
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := reopen(); n > 1 && (len(got) != 1 || got[0].index < 100*n-50) {
				t.Errorf("after %d records, slot %d torn: %v", n, slot, got)
			}
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRaftLogIsFiltered(t *testing.T) {
	var out bytes.Buffer
	l := newRaftLogger(slog.New(slog.NewTextHandler(&out, nil)))
	l.Info("entering leader state")
	l.Warn("heartbeat timeout reached")
	l.Error("failed to heartbeat to", "peer", "x")
	if out.Len() > 0 {
		t.Errorf("it logged %q", out.String())
	}
	for range 3 {
		l.With("id", 7).Named("x").Error("failed to commit logs", "msg", hclog.Fmt("%d of %d", 1, 2))
	}
	if got := out.String(); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, `level=WARN msg="raft.x: failed to commit logs" id=7 raft-msg="1 of 2"`) {
		t.Errorf("it logged %q", got)
	}
}

// boltFile returns a log file with that many entries.
func boltFile(t testing.TB, entries uint64) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "good")
	s, err := openLog(path, true, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		if err := s.StoreLog(&raft.Log{Index: i + 1, Data: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// TestDamagedPagesAreFoundBeforeBboltReadsThem changes the fields of each page,
// one at a time, and opens the files that pass the check. Damage that only
// bbolt finds ends this process, since bbolt checks in a goroutine of its own.
func TestDamagedPagesAreFoundBeforeBboltReadsThem(t *testing.T) {
	t.Parallel()
	whole, pageSize := boltFile(t, 300), os.Getpagesize()
	path := filepath.Join(t.TempDir(), "damaged")
	found := 0
	for page := 0; page*pageSize < len(whole); page++ {
		for field := 0; field < 64; field += 2 {
			b := bytes.Clone(whole)
			b[page*pageSize+field] ^= 0xff
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := openLog(path, true, nil, nil, slog.New(slog.DiscardHandler))
			switch {
			case errors.Is(err, store.ErrDamaged):
				found++
			case err != nil:
				t.Fatalf("page %d, byte %d: %v", page, field, err)
			default:
				s.Close()
			}
		}
	}
	if found < 100 {
		t.Errorf("%d damaged files were found, of %d pages", found, len(whole)/pageSize)
	}
}

// FuzzBoltFiles: for any file content, the check and opening end without a
// panic.
func FuzzBoltFiles(f *testing.F) {
	whole := boltFile(f, 100)
	f.Add(uint32(0), []byte{}, uint32(0))
	f.Add(uint32(4096+8), []byte{1, 0, 255, 255}, uint32(0))
	f.Add(uint32(5*4096), []byte{1}, uint32(100))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		b := bytes.Clone(whole)
		copy(b[int(at)%len(b):], patch)
		b = b[:len(b)-int(cut)%len(b)]
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkBolt(path); err != nil && !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%v is not %v", err, store.ErrDamaged)
		}
		if s, err := openLog(path, true, nil, nil, slog.New(slog.DiscardHandler)); err == nil {
			s.Close()
		}
	})
}
