package consensus

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/hashicorp/raft"
)

// rebuild makes the state machine as it was when the server ended: from the
// newest snapshot that can be read, and the log up to what had been applied.
// Entries behind that may never have been agreed.
func rebuild(s *logStore, snapshots *snapshots, applied *appliedFile, l Limits, log *slog.Logger) (*machine, error) {
	v, base, err := snapshots.newest(l, log)
	if err != nil {
		return nil, err
	}
	if base != nil {
		s.remember(base.ConfigurationIndex, base.Configuration)
	}
	last, err := s.LastIndex()
	if err != nil {
		return nil, err
	}
	from := uint64(1)
	if base != nil {
		from = base.Index + 1
	}
	if last == 0 && len(applied.old) > 0 && applied.old[0].index >= from {
		// After the leader's snapshot a log may be empty, and then that has all.
		return nil, fmt.Errorf("%w: entry %d has acted, and neither a snapshot nor the log has it", ErrDamaged, applied.old[0].index)
	}
	upTo := agreed(s, applied.old, last)
	a := newApplier(v, l)
	for index := from; index <= last; index++ {
		var entry raft.Log
		if err := s.GetLog(index, &entry); err != nil {
			if errors.Is(err, raft.ErrLogNotFound) {
				err = fmt.Errorf("%w: the log has no entry %d, which the last snapshot that can be read needs", ErrDamaged, index)
			}
			return nil, err
		}
		if entry.Type == raft.LogConfiguration {
			s.remember(index, raft.DecodeConfiguration(entry.Data))
		}
		if index > upTo || index <= a.view.Index() || entry.Type != raft.LogCommand && entry.Type != raft.LogConfiguration {
			continue
		}
		if _, err = a.step(&entry); err != nil {
			return nil, err
		}
	}
	return newMachine(a.commit(), l, applied), nil
}

// agreed is the newest record whose entry the log has, term and all: then all
// before it is what was agreed, too. A log that was put back from elsewhere
// may hold what never was.
func agreed(s *logStore, records []record, last uint64) uint64 {
	for _, r := range records {
		var entry raft.Log
		if r.index <= last && s.GetLog(r.index, &entry) == nil && entry.Term == r.term {
			return r.index
		}
	}
	return 0
}
