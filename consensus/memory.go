package consensus

import (
	"context"
	"fmt"
	"strings"
	"sync"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Limits bound a store, in bytes. Zero fields take the defaults.
type Limits struct {
	Entry int // one entry with its key: 8 MiB
	Total int // all entries with their keys: 256 MiB
}

// maxKey bounds a kind and a name, in bytes each.
const maxKey = 512

func (l Limits) withDefaults() Limits {
	if l.Entry == 0 {
		l.Entry = 8 << 20
	}
	if l.Total == 0 {
		l.Total = 256 << 20
	}
	return l
}

// Memory is the store of a single node: it forgets everything when the
// process ends. All methods may be called from anywhere.
type Memory struct {
	limits Limits

	mu      sync.Mutex
	view    View
	changed chan struct{} // closed by the next change, then replaced
}

// NewMemory makes an empty store.
func NewMemory(limits Limits) *Memory {
	return &Memory{
		limits:  limits.withDefaults(),
		view:    View{tree: iradix.New[Entry]()},
		changed: make(chan struct{}),
	}
}

// View is the store's content now.
func (m *Memory) View() View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view
}

// Commit applies a batch, all of it or nothing, and returns its index. The
// operations act in order, so a later one sees what an earlier one did. A
// delete of what does not exist is no error. A batch that changes nothing
// gets an index all the same. The store keeps the values; the caller must
// not change them afterwards.
func (m *Memory) Commit(ctx context.Context, ops []Op) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := View{index: m.view.index + 1, bytes: m.view.bytes}
	txn := m.view.tree.Txn()
	touched := make([]Key, 0, len(ops))
	for _, op := range ops {
		if err := m.check(op); err != nil {
			return 0, err
		}
		path := op.path()
		old, exists := txn.Get(path)
		if exists {
			op.Key = old.Key
		} else { // it may be a part of the document that it came with
			op.Key = Key{strings.Clone(op.Kind), strings.Clone(op.Name)}
		}
		touched = append(touched, op.Key)
		if op.IfVersion != nil && *op.IfVersion != old.Version {
			return 0, fmt.Errorf("%s/%s: %w: it is at version %d, not %d",
				op.Kind, op.Name, ErrVersion, old.Version, *op.IfVersion)
		}
		if exists {
			next.bytes -= old.size()
		}
		if op.Value == nil {
			txn.Delete(path)
			continue
		}
		e := Entry{Key: op.Key, Version: next.index, Value: op.Value}
		next.bytes += e.size()
		txn.Insert(path, e)
	}
	if next.bytes > m.limits.Total {
		return 0, fmt.Errorf("store: %w: %d bytes, the limit is %d", ErrTooLarge, next.bytes, m.limits.Total)
	}
	next.tree = txn.CommitOnly()
	next.log = remember(m.view.log, batch{next.index, touched})
	m.view = next
	close(m.changed)
	m.changed = make(chan struct{})
	return next.index, nil
}

// check refuses an operation that no store content could allow.
func (m *Memory) check(op Op) error {
	for _, s := range []string{op.Kind, op.Name} {
		if s == "" || len(s) > maxKey || strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("%w: kind %.80q, name %.80q", ErrKey, op.Kind, op.Name)
		}
	}
	if n := (Entry{Key: op.Key, Value: op.Value}).size(); n > m.limits.Entry {
		return fmt.Errorf("%s/%s: %w: %d bytes, the limit is %d", op.Kind, op.Name, ErrTooLarge, n, m.limits.Entry)
	}
	return nil
}

// Wait returns the first view it sees whose index is above after. Changes
// that came between two calls are seen as one.
func (m *Memory) Wait(ctx context.Context, after uint64) (View, error) {
	for {
		m.mu.Lock()
		view, changed := m.view, m.changed
		m.mu.Unlock()
		if view.index > after {
			return view, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return View{}, ctx.Err()
		}
	}
}
