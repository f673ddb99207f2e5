package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"penstock/consensus/snapshot"
	"penstock/consensus/store"
)

// logStore is Raft's log store and stable store, in one bbolt file. It adds to
// raft-boltdb:
//
//   - Recent entries are cached in memory, for replication.
//   - The index of each configuration is available, which Raft does not expose.
//   - Entries that the last snapshot but one needs are kept, in case the last one
//     is damaged.
//   - A term that cannot be written does not end the process: Raft waits.
type logStore struct {
	bolt      *raftboltdb.BoltStore
	snapshots *snapshot.Dir
	closing   <-chan struct{}
	log       *slog.Logger

	mu             sync.RWMutex
	recent         [recentEntries]*raft.Log // by index modulo recentEntries
	configurations []configurationAt        // the last ones, oldest first
	fault          error                    // of the last write; nil if it succeeded
}

var (
	_ raft.LogStore    = (*logStore)(nil)
	_ raft.StableStore = (*logStore)(nil)
)

// configurationAt is a configuration and the index of its log entry.
type configurationAt struct {
	index         uint64
	configuration raft.Configuration
}

const (
	// recentEntries and recentSize bound the cache: the number of entries, and the
	// bytes of one. 16 MiB in total.
	recentEntries = 512
	recentSize    = 32 << 10
	// keptConfigurations bounds the configurations kept.
	keptConfigurations = 16
	// lockTimeout bounds the wait for another process to release the file.
	lockTimeout = time.Second
	// deleteChunk is the number of entries deleted in one transaction, during
	// which writes wait.
	deleteChunk = 512
)

// openLog opens the file. It validates the file first: damaged pages would
// crash the process later.
func openLog(path string, noSync bool, s *snapshot.Dir, closing <-chan struct{}, log *slog.Logger) (_ *logStore, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %w: %v", path, store.ErrDamaged, p)
		}
	}()
	if err := checkBolt(path); err != nil {
		return nil, err
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path:   path,
		NoSync: noSync,
		BoltOptions: &bbolt.Options{
			Timeout:        lockTimeout,
			NoFreelistSync: true, // otherwise each write also writes the whole list of free pages
			FreelistType:   bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s: another process has it open", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch),
		errors.Is(err, bolterrors.ErrIncompatibleValue): // a key that should be a bucket
		return nil, fmt.Errorf("%s: %w: %w", path, store.ErrDamaged, err)
	case err != nil:
		return nil, err
	}
	return &logStore{bolt: bolt, snapshots: s, closing: closing, log: log}, os.Chmod(path, 0o600)
}

// checkExists returns ErrNoLog if an earlier log is missing. A server records a
// term before anything else; it may have voted based on the missing log, and
// must not vote again for a candidate that it had rejected.
func (s *logStore) checkExists(applied *appliedFile) error {
	term, err := s.GetUint64([]byte(raftTerm))
	if err == nil && term > 0 || err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	all, err := s.snapshots.List()
	switch {
	case err != nil:
		return err
	case len(all) > 0:
		return fmt.Errorf("%w: there is a snapshot of entry %d, but the log was never written", ErrNoLog, all[0].Index)
	case len(applied.recovered) > 0:
		return fmt.Errorf("%w: entry %d was applied, but the log was never written", ErrNoLog, applied.recovered[0].index)
	}
	return nil
}

// raftTerm is Raft's key for its term.
const raftTerm = "CurrentTerm"

// Close closes the file.
func (s *logStore) Close() error { return s.bolt.Close() }

// FirstIndex implements raft.LogStore.
func (s *logStore) FirstIndex() (uint64, error) { return s.bolt.FirstIndex() }

// LastIndex implements raft.LogStore.
func (s *logStore) LastIndex() (uint64, error) { return s.bolt.LastIndex() }

// GetLog implements raft.LogStore.
func (s *logStore) GetLog(index uint64, l *raft.Log) error {
	s.mu.RLock()
	r := s.recent[index%recentEntries]
	s.mu.RUnlock()
	if r != nil && r.Index == index {
		*l = *r
		return nil
	}
	return s.bolt.GetLog(index, l)
}

// StoreLog implements raft.LogStore.
func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	if err := s.recordWrite(s.bolt.StoreLogs(logs)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			s.rememberConfiguration(l.Index, raft.DecodeConfiguration(l.Data))
		}
		if len(l.Data) <= recentSize {
			s.recent[l.Index%recentEntries] = l
		}
	}
	return nil
}

// rememberConfiguration records a configuration. The caller holds mu or is the
// only user.
func (s *logStore) rememberConfiguration(index uint64, c raft.Configuration) {
	s.configurations = slices.DeleteFunc(s.configurations, func(o configurationAt) bool { return o.index >= index })
	s.configurations = append(s.configurations, configurationAt{index, c})
	if n := len(s.configurations) - keptConfigurations; n > 0 {
		s.configurations = slices.Delete(s.configurations, 0, n)
	}
}

// configurationIndex returns the index of a configuration, or 0.
func (s *logStore) configurationIndex(c raft.Configuration) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, o := range slices.Backward(s.configurations) {
		if slices.Equal(o.configuration.Servers, c.Servers) {
			return o.index
		}
	}
	return 0
}

// DeleteRange implements raft.LogStore. Raft deletes the start of the log,
// which snapshots include, or its end, which another leader has replaced.
func (s *logStore) DeleteRange(from, to uint64) error {
	last, err := s.bolt.LastIndex()
	if err != nil {
		return err
	}
	if to < last {
		return s.compact(from, min(to, s.snapshots.CompactableIndex()))
	}
	s.mu.Lock()
	for i, l := range s.recent {
		if l != nil && l.Index >= from {
			s.recent[i] = nil
		}
	}
	s.configurations = slices.DeleteFunc(s.configurations, func(o configurationAt) bool { return o.index >= from })
	s.mu.Unlock()
	return s.recordWrite(s.bolt.DeleteRange(from, to))
}

// compact deletes the start of the log in chunks: writes wait for each.
func (s *logStore) compact(from, to uint64) error {
	s.mu.Lock()
	for i, l := range s.recent {
		if l != nil && l.Index <= to {
			s.recent[i] = nil
		}
	}
	s.mu.Unlock()
	for from <= to {
		end := min(to, from+deleteChunk-1)
		if err := s.recordWrite(s.bolt.DeleteRange(from, end)); err != nil {
			return err
		}
		from = end + 1
	}
	return nil
}

// Set implements raft.StableStore.
func (s *logStore) Set(key, value []byte) error { return s.recordWrite(s.bolt.Set(key, value)) }

// Get implements raft.StableStore.
func (s *logStore) Get(key []byte) ([]byte, error) { return s.bolt.Get(key) }

// GetUint64 implements raft.StableStore.
func (s *logStore) GetUint64(key []byte) (uint64, error) { return s.bolt.GetUint64(key) }

// SetUint64 implements raft.StableStore. Raft panics if a term cannot be
// written, since it must not continue with one that it could forget. SetUint64
// therefore retries, while this server keeps serving, until there is disk space
// again or the replica is closed and has no connections left to use the term
// on.
func (s *logStore) SetUint64(key []byte, value uint64) error {
	for {
		err := s.recordWrite(s.bolt.SetUint64(key, value))
		if err == nil || string(key) != raftTerm {
			return err
		}
		retry := time.NewTimer(retryWrite)
		select {
		case <-retry.C:
		case <-s.closing:
			retry.Stop()
			return nil
		}
	}
}

// retryWrite is the pause before a term is written again.
const retryWrite = 500 * time.Millisecond

// recordWrite records the outcome of a write and returns its error.
func (s *logStore) recordWrite(err error) error {
	s.mu.Lock()
	before := s.fault
	s.fault = err
	s.mu.Unlock()
	switch {
	case err != nil && before == nil:
		s.log.Error("cannot write the cluster's log; this node keeps serving, but accepts no changes", "err", err)
	case err == nil && before != nil:
		s.log.Info("the cluster's log can be written again")
	}
	return err
}

// lastFault returns the error of the last write; nil if it succeeded.
func (s *logStore) lastFault() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.fault
}
