package replica

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"

	"penstock/consensus/snapshot"
	"penstock/consensus/store"
)

// machine is the state machine that Raft drives: it holds the current Snapshot.
type machine struct {
	limits  store.Limits
	applied *appliedFile
	// fail is called with the error that stops the machine, perhaps more than
	// once. After that the machine applies nothing.
	fail func(error)
	// committed is called with the last entry applied.
	committed func(index, term uint64)
	// configured is called when the servers have changed.
	configured func()

	fault         error // the error passed to fail; used by Raft's FSM goroutine only
	delivered     uint64
	restoredIndex uint64 // index of the snapshot that Raft restored last

	mu       sync.Mutex
	snapshot store.Snapshot
	changed  chan struct{} // closed by the next change, then replaced
}

var (
	_ raft.BatchingFSM = (*machine)(nil)
)

func newMachine(v store.Snapshot, l store.Limits, applied *appliedFile) *machine {
	return &machine{limits: l, applied: applied, snapshot: v, changed: make(chan struct{})}
}

// current returns the current snapshot.
func (m *machine) current() store.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot
}

// watch returns the current snapshot and a channel that is closed by the next
// one.
func (m *machine) watch() (store.Snapshot, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot, m.changed
}

// publish makes v the current snapshot, unless it is not newer.
func (m *machine) publish(v store.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v.Index() > m.snapshot.Index() {
		m.snapshot = v
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// Apply implements raft.FSM.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. A response is a Result or an error,
// for a group a []Reply.
//
// After a start Raft delivers entries again that rebuild has already applied;
// nothing waits for their responses.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	responses := make([]any, len(logs))
	a := store.NewApplier(m.current(), m.limits)
	for i, l := range logs {
		if m.fault != nil {
			responses[i] = m.fault
			continue
		}
		m.delivered = l.Index
		if l.Index <= a.Index() {
			continue
		}
		replies, err := applyEntry(a, l)
		switch {
		case err != nil:
			m.fault = err
			responses[i] = err
			continue
		case len(replies) > 1:
			responses[i] = replies
		case replies[0].Err != nil:
			responses[i] = replies[0].Err
		default:
			responses[i] = replies[0].Result
		}
		if l.Type == raft.LogConfiguration {
			m.configured()
		}
	}
	v := a.Snapshot()
	if last := logs[len(logs)-1]; m.fault == nil && last.Index == v.Index() {
		m.applied.write(last.Index, last.Term)
		m.committed(last.Index, last.Term)
	}
	m.publish(v)
	if m.fault != nil {
		m.fail(m.fault)
	}
	return responses
}

// applyEntry applies an entry of Raft's log. Only commands have batches.
func applyEntry(a *store.Applier, l *raft.Log) ([]store.Reply, error) {
	if l.Type != raft.LogCommand {
		a.Skip(l.Index)
		return []store.Reply{{}}, nil
	}
	return a.Apply(l.Index, l.Data)
}

// Snapshot implements raft.FSM. Raft stores it under the index of the last
// entry delivered, which may be behind the current snapshot for a while after a
// start.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.fault != nil {
		return nil, m.fault
	}
	v := m.current()
	// A server that installed a leader's snapshot keeps a log that ends before it.
	// Raft computes the distance from there to the snapshot, which underflows, and
	// would take snapshot after snapshot of the same content.
	if m.restoredIndex > 0 && m.delivered == m.restoredIndex {
		return nil, raft.ErrNothingNewToSnapshot
	}
	if m.delivered < v.Index() {
		return nil, fmt.Errorf("raft has redelivered entries up to %d, but the content is at %d", m.delivered, v.Index())
	}
	return fsmSnapshot{v}, nil
}

// Restore implements raft.FSM. The current snapshot never goes back: a restored
// one was committed before a newer current one.
func (m *machine) Restore(source io.ReadCloser) error {
	defer source.Close()
	if m.fault != nil {
		return m.fault
	}
	meta, err := snapshot.MetaOf(source)
	if err != nil {
		return err
	}
	m.delivered, m.restoredIndex = max(m.delivered, meta.Index), meta.Index
	if m.current().Index() >= meta.Index {
		return nil
	}
	v, err := snapshot.Read(source, m.limits)
	if err != nil {
		err = fmt.Errorf("snapshot %s: %w", meta.ID, err)
		if errors.Is(err, store.ErrFormat) || errors.Is(err, store.ErrTooLarge) {
			m.fault = err
			m.fail(err)
		}
		return err
	}
	m.applied.write(meta.Index, meta.Term)
	m.publish(v.Skip(meta.Index))
	m.configured()
	return nil
}

// fsmSnapshot writes a snapshot while newer ones are made.
type fsmSnapshot struct{ snapshot store.Snapshot }

// Persist implements raft.FSMSnapshot.
func (s fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := snapshot.Write(sink, s.snapshot); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (fsmSnapshot) Release() {}
