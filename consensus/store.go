// Package consensus keeps what the nodes agree on: named entries whose content
// it does not understand, changed by atomic batches, each of which has an
// index. It knows nothing of routes.
//
// Memory is the store of a single node. Replica is the replicated one, on
// Raft; it has the same methods. Callers declare the interface they need.
package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of a batch that was understood and not done. Nothing has changed.
// They are wrapped with the key they concern.
var (
	// ErrVersion: the entry has another version than the batch expects.
	ErrVersion = errors.New("version conflict")
	// ErrTooLarge: an entry or the store would exceed its bound.
	ErrTooLarge = errors.New("too large")
	// ErrKey: the kind or the name is empty, longer than 512 bytes or holds a zero byte.
	ErrKey = errors.New("not a key")
	// ErrStale: the batch was checked against other content than it came to.
	ErrStale = errors.New("the content has changed since it was checked")
)

// ErrIndex says that a batch came to a view that already has its index. It is
// no refusal but a fault of whoever numbers the batches.
var ErrIndex = errors.New("index out of order")

// Errors of a replicated store that cannot take a batch.
var (
	// ErrNotLeader: another node decides, or none; nothing has changed.
	ErrNotLeader = errors.New("not the leader")
	// ErrUnknown: the batch may or may not come to act. Repeated under the
	// same ID it acts once.
	ErrUnknown = errors.New("outcome unknown")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("store is closed")
	// ErrFormat: something on disk or in the log is of a format that this
	// build does not understand; the error names both.
	ErrFormat = errors.New("unknown format")
	// ErrDamaged: something on disk or in the log is not what was written.
	ErrDamaged = errors.New("damaged")
	// ErrChecksum: its checksum says so. It is an ErrDamaged.
	ErrChecksum = fmt.Errorf("%w: the checksum differs", ErrDamaged)
)

// Key names an entry.
type Key struct{ Kind, Name string }

// Entry is one entry with the index of the batch that last changed it.
type Entry struct {
	Key
	Version uint64
	Value   []byte // never changed once stored
	Note
}

// Note is what a batch says about itself, for the history. It decides nothing.
type Note struct {
	Who  string    // the name of whoever asked for it
	What string    // the command: "apply", "rollback to 12"
	At   time.Time // by the clock of the node that proposed it, UTC
}

// Op is one step of a batch: a put, or a delete where Value is nil.
type Op struct {
	Key
	Value []byte
	// IfVersion, when not nil, is the version that the entry must have; 0
	// means that it must not exist.
	IfVersion *uint64
}

// ID tells a batch from all others; the zero ID from none.
type ID [16]byte

// Batch is a change: all of its operations act, or none. The operations act in
// order, so a later one sees what an earlier one did. A delete of what does
// not exist is no error.
type Batch struct {
	// ID makes it safe to send the batch again: while the store remembers it
	// (the last 10,000), a batch of the same ID changes nothing and has the
	// result of the first.
	ID   ID
	Ops  []Op
	Note Note
	// IfSequence, when not nil, is the Snapshot.Sequence that the store must have
	// when the batch comes to act, else ErrStale; the store then has the
	// batch's Sequence. So whoever checks a batch against content that is
	// still on its way knows that it acts upon exactly that.
	IfSequence *uint64
	// Sequence is the store's next Snapshot.Sequence, where IfSequence is given;
	// 0: the number after IfSequence, for a writer that is alone. Writers pick
	// numbers that no other writer picks: a random one to begin with, then the
	// ones after it. If all counted on from what they found, a batch whose
	// predecessor was refused could follow another writer's batch of the same
	// number, and act upon what it was never checked against.
	Sequence uint64
}

// Result is what became of a batch.
type Result struct {
	Index uint64 // of the batch: a Snapshot of that index or above has it
	// Repeated: the batch had come before, and Index is that of then.
	Repeated bool
}

// Pending is a batch on its way.
type Pending interface {
	// Wait waits for the batch to act here or to fail. When ctx ends first it
	// returns its error, and the outcome is unknown.
	Wait(ctx context.Context) (Result, error)
}

// Revision is an entry as it was, or its deletion where Value is nil.
type Revision struct {
	Version uint64 // the index of the batch that made it
	Value   []byte
	Note
}
