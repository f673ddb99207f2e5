package replica

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/hashicorp/raft"

	"penstock/consensus/snapshot"
	"penstock/consensus/store"
)

// rebuild restores the state machine as of the server's last stop: from the
// newest readable snapshot and the log up to the last entry recorded as
// applied. Later entries may never have been committed.
func rebuild(s *logStore, snapshots *snapshot.Dir, applied *appliedFile, l store.Limits, log *slog.Logger) (*machine, error) {
	v, base, err := snapshots.Newest(l, log)
	if err != nil {
		return nil, err
	}
	if base != nil {
		s.rememberConfiguration(base.ConfigurationIndex, base.Configuration)
	}
	last, err := s.LastIndex()
	if err != nil {
		return nil, err
	}
	from := uint64(1)
	if base != nil {
		from = base.Index + 1
	}
	if last == 0 && len(applied.recovered) > 0 && applied.recovered[0].index >= from {
		// A log may be empty after a leader's snapshot, which then contains
		// everything.
		return nil, fmt.Errorf("%w: entry %d was applied, but neither a snapshot nor the log has it", store.ErrDamaged, applied.recovered[0].index)
	}
	upTo := verifiedApplied(s, applied.recovered, last)
	a := store.NewApplier(v, l)
	for index := from; index <= last; index++ {
		var entry raft.Log
		if err := s.GetLog(index, &entry); err != nil {
			if errors.Is(err, raft.ErrLogNotFound) {
				err = fmt.Errorf("%w: the log has no entry %d, which is needed after the newest readable snapshot", store.ErrDamaged, index)
			}
			return nil, err
		}
		if entry.Type == raft.LogConfiguration {
			s.rememberConfiguration(index, raft.DecodeConfiguration(entry.Data))
		}
		if index > upTo || index <= a.Index() || entry.Type != raft.LogCommand && entry.Type != raft.LogConfiguration {
			continue
		}
		if _, err = applyEntry(a, &entry); err != nil {
			return nil, err
		}
	}
	return newMachine(a.Snapshot(), l, applied), nil
}

// verifiedApplied returns the index of the newest record whose entry is in the
// log with the same term: then all entries up to it are the committed ones. A
// log restored from elsewhere may contain others.
func verifiedApplied(s *logStore, records []record, last uint64) uint64 {
	for _, r := range records {
		var entry raft.Log
		if r.index <= last && s.GetLog(r.index, &entry) == nil && entry.Term == r.term {
			return r.index
		}
	}
	return 0
}
