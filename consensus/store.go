// Package consensus keeps what the nodes agree on: named entries whose content
// it does not understand, changed by atomic batches, each of which has an
// index. It knows nothing of routes.
//
// Memory is the store of a single node. The replicated one has the same
// methods; callers declare the interface they need.
package consensus

import "errors"

// Errors of Commit, wrapped with the key they concern.
var (
	// ErrVersion: the entry has another version than the batch expects.
	ErrVersion = errors.New("version conflict")
	// ErrTooLarge: an entry or the store would exceed its bound.
	ErrTooLarge = errors.New("too large")
	// ErrKey: the kind or the name is empty, longer than 512 bytes or holds a zero byte.
	ErrKey = errors.New("not a key")
)

// Key names an entry.
type Key struct{ Kind, Name string }

// Entry is one entry with the index of the batch that last changed it.
type Entry struct {
	Key
	Version uint64
	Value   []byte // never changed once stored
}

// Op is one step of a batch: a put, or a delete where Value is nil.
type Op struct {
	Key
	Value []byte
	// IfVersion, when not nil, is the version that the entry must have; 0
	// means that it must not exist.
	IfVersion *uint64
}
