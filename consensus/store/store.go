// Package store is the state machine of the cluster's replicated state: named
// entries with opaque values, changed by atomic batches. Each batch has an
// index. The package does not interpret values, and knows neither Raft nor the
// disk.
//
// Memory is the store of a single node; package replica has the replicated one,
// with the same methods. Callers declare the interface they need.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of a refused batch. The store is unchanged. Each is wrapped with the
// key it concerns.
var (
	// ErrVersion: the entry's version differs from the one that the batch expects.
	ErrVersion = errors.New("version conflict")
	// ErrTooLarge: an entry or the store would exceed its limit.
	ErrTooLarge = errors.New("too large")
	// ErrKey: the kind or the name is empty, longer than 512 bytes or contains a
	// zero byte.
	ErrKey = errors.New("invalid key")
	// ErrStale: the batch was checked against content other than the current one.
	ErrStale = errors.New("the content has changed since the batch was checked")
)

// ErrIndex reports a batch whose index is not above the snapshot's. It is not a
// refusal but a fault of the code that numbers the batches.
var ErrIndex = errors.New("index out of order")

// Errors of a replicated store that cannot accept a batch.
var (
	// ErrNotLeader: another node leads, or none does. Nothing has changed.
	ErrNotLeader = errors.New("not the leader")
	// ErrUnknown: the batch may or may not be applied. Retried under the same ID,
	// it is applied once.
	ErrUnknown = errors.New("outcome unknown")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("store is closed")
	// ErrFormat: data on disk or in the log has a format that this build does not
	// support. The error names both formats.
	ErrFormat = errors.New("unknown format")
	// ErrDamaged: data on disk or in the log differs from what was written.
	ErrDamaged = errors.New("damaged")
	// ErrChecksum is the ErrDamaged of a checksum mismatch.
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

// Note describes a batch in the history. It has no effect.
type Note struct {
	Who  string    // the user's name
	What string    // the command: "apply", "rollback to 12"
	At   time.Time // by the clock of the node that proposed it, UTC
}

// Op is one operation of a batch: a put, or a delete where Value is nil.
type Op struct {
	Key
	Value []byte
	// IfVersion, if not nil, is the version that the entry must have; 0 requires
	// that the entry does not exist.
	IfVersion *uint64
}

// ID identifies a batch. The zero ID identifies none.
type ID [16]byte

// Batch is an atomic change: all of its operations are applied, in order, or
// none. An operation sees the effects of those before it. Deleting an entry
// that does not exist is not an error.
type Batch struct {
	// ID makes retries safe: while the store remembers the ID (it keeps the last
	// 10,000), another batch with that ID changes nothing and returns the first
	// one's result.
	ID   ID
	Ops  []Op
	Note Note
	// IfSequence, if not nil, is the Snapshot.Sequence that the store must have
	// when the batch is applied, else the batch fails with ErrStale. The store
	// then takes the batch's Sequence. A writer can thus check a batch against the
	// result of batches that are still in flight, and be sure that it is applied
	// to exactly that.
	IfSequence *uint64
	// Sequence becomes the store's Snapshot.Sequence if IfSequence is set. 0
	// selects IfSequence+1, for a single writer. Each of several writers must use
	// numbers of its own: a random one first, then its successors. If all counted
	// on from the number they found, a batch whose predecessor was refused could
	// follow another writer's batch of the same number, and be applied to content
	// that it was never checked against.
	Sequence uint64
}

// Result is the outcome of a batch.
type Result struct {
	Index uint64 // of the batch: a Snapshot with that index or a higher one includes it
	// Repeated: the batch was applied before, with this Index.
	Repeated bool
}

// Pending is a batch in flight.
type Pending interface {
	// Wait waits until the batch is applied here or fails. If ctx ends first, Wait
	// returns ctx's error and the outcome is unknown.
	Wait(ctx context.Context) (Result, error)
}

// Revision is one version of an entry, or its deletion where Value is nil.
type Revision struct {
	Version uint64 // the index of the batch that made it
	Value   []byte
	Note
}
