package store

import (
	"fmt"
)

// Batches that wait for Raft at the same time form one log entry, a group,
// which costs Raft and the disk no more than a single batch. All batches of a
// group have the entry's index; each is applied or refused separately, in
// order.
//
// Only small batches that put user entries are grouped, and no two of a group
// touch the same key: a version still identifies one state of an entry, and a
// deletion at an index belongs to one batch.
const (
	// MaxGroup bounds the batches of a group.
	MaxGroup = 64
	// groupBelow is the encoded size below which a batch may be in a group.
	groupBelow = 4 << 10
	// minPackedBatch is the minimum size of a packed batch, in bytes.
	minPackedBatch = 35
)

// Groupable reports whether the batch, encoded as data, may be part of a group.
func (b *Batch) Groupable(data []byte) bool {
	if len(data) > groupBelow || data[1] != 0 {
		return false
	}
	for i := range b.Ops {
		if op := &b.Ops[i]; op.Value == nil || op.Internal() {
			return false
		}
	}
	return true
}

// EncodeGroup returns the log entry for uncompressed batches encoded by
// EncodeBatch.
func EncodeGroup(batches [][]byte) []byte {
	size := 2 + 5
	for _, b := range batches {
		size += len(b) - 2
	}
	p := newPacker(size)
	p.Write([]byte{batchFormat, batchGrouped})
	p.array(len(batches))
	for _, b := range batches {
		p.Write(b[2:])
	}
	return p.Bytes()
}

// decodeEntry decodes the batches of a log entry: one, or those of a group.
// Errors and bounds are the same as for DecodeBatch.
func decodeEntry(data []byte) ([]*Batch, error) {
	if len(data) < 2 || data[0] != batchFormat || data[1]&batchGrouped == 0 {
		b, err := DecodeBatch(data)
		if err != nil {
			return nil, err
		}
		return []*Batch{b}, nil
	}
	if data[1] != batchGrouped {
		return nil, fmt.Errorf("group: %w: format %d with flags %#x, this build supports %#x", ErrFormat, data[0], data[1], batchGrouped)
	}
	u := newUnpacker(data[2:])
	n := u.array(minPackedBatch)
	if u.err == nil && (n == 0 || n > MaxGroup) {
		u.fail("%d batches, the limit is %d", n, MaxGroup)
	}
	batches := make([]*Batch, 0, n)
	for u.err == nil && len(batches) < n {
		batches = append(batches, u.batch())
	}
	u.expectEnd()
	if u.err != nil {
		return nil, fmt.Errorf("group: %w", u.err)
	}
	return batches, nil
}
