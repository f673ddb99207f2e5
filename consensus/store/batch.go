package store

import (
	"encoding/binary"
	"fmt"
)

const (
	// maxBatch bounds Batch.size: 64 MiB.
	maxBatch = 64 << 20
	// maxPacked bounds the packed form, which exceeds size by a few bytes at most.
	maxPacked = maxBatch + 1024
	// opOverhead approximates the memory of an operation beside its strings and
	// value.
	opOverhead = 64

	// batchFormat is the first byte of a log entry: the format of its batches.
	batchFormat = 1
	// The second byte has at most one flag. Without one, the packed batch follows;
	// with batchCompressed, its packed size (uvarint) and the zstd data; with
	// batchGrouped, an array of packed batches, see group.go.
	batchCompressed = 1
	batchGrouped    = 2
)

// size returns the bytes that the batch counts against its limit.
func (b *Batch) size() int {
	n := len(b.Note.Who) + len(b.Note.What)
	for i := range b.Ops {
		op := &b.Ops[i]
		n += opOverhead + len(op.Kind) + len(op.Name) + len(op.Value)
	}
	return n
}

// EncodeBatch returns the log encoding of a batch, with its note cut to the
// limit.
func EncodeBatch(b *Batch) ([]byte, error) {
	size := b.size()
	if size > maxBatch {
		return nil, fmt.Errorf("batch: %w: %d bytes, the limit is %d", ErrTooLarge, size, maxBatch)
	}
	head := []byte{batchFormat, 0}
	p := newPacker(size + 128)
	p.Write(head)
	p.batch(b)
	plain := p.Bytes()
	packed := plain[len(head):]
	head = binary.AppendUvarint([]byte{batchFormat, batchCompressed}, uint64(len(packed)))
	if data, ok := Compress(head, packed); ok {
		return data, nil
	}
	return plain, nil
}

func (p *packer) batch(b *Batch) {
	p.array(5)
	p.bytes(b.ID[:])
	p.note(b.Note.bounded())
	p.optionalUint(b.IfSequence)
	p.uint(b.Sequence)
	p.array(len(b.Ops))
	for i := range b.Ops {
		op := &b.Ops[i]
		p.array(4)
		p.text(op.Kind)
		p.text(op.Name)
		p.bytes(op.Value)
		p.optionalUint(op.IfVersion)
	}
}

// DecodeBatch decodes the output of EncodeBatch. Values may share data's
// memory. Allocations are bounded by a constant times the size of data, and by
// maxBatch. Errors are ErrFormat or ErrDamaged. They are not refusals, since
// another build may be able to apply the batch.
func DecodeBatch(data []byte) (*Batch, error) {
	if len(data) < 2 {
		return nil, fmt.Errorf("batch: %w: %d bytes", ErrDamaged, len(data))
	}
	format, flags, packed := data[0], data[1], data[2:]
	if format != batchFormat {
		return nil, fmt.Errorf("batch: %w: format %d, this build supports %d", ErrFormat, format, batchFormat)
	}
	if flags&^batchCompressed != 0 {
		return nil, fmt.Errorf("batch: %w: format %d with flags %#x, this build supports %#x", ErrFormat, format, flags, batchCompressed)
	}
	if flags&batchCompressed != 0 {
		size, n := binary.Uvarint(packed)
		if n <= 0 {
			return nil, fmt.Errorf("batch: %w: no size", ErrDamaged)
		}
		var err error
		if packed, err = Expand(nil, packed[n:], size, maxPacked); err != nil {
			return nil, fmt.Errorf("batch: %w", err)
		}
	}
	if len(packed) > maxPacked {
		return nil, fmt.Errorf("batch: %w: %d bytes, the limit is %d", ErrDamaged, len(packed), maxPacked)
	}
	b, err := unpackBatch(packed)
	if err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	return b, nil
}

func unpackBatch(packed []byte) (*Batch, error) {
	u := newUnpacker(packed)
	b := u.batch()
	u.expectEnd()
	return b, u.err
}

// batch reads the next batch; u.err reports a failure.
func (u *unpacker) batch() *Batch {
	u.tuple(5)
	b := &Batch{ID: u.id(), Note: u.note(Note{}), IfSequence: u.optionalUint(), Sequence: u.uint()}
	n := u.array(5) // the minimum size of an operation
	if n > maxBatch/opOverhead {
		u.fail("%d operations, the limit is %d", n, maxBatch/opOverhead)
		return b
	}
	b.Ops = make([]Op, n)
	kind := ""
	for i := range b.Ops {
		u.tuple(4)
		kind = u.internedText(kind)
		b.Ops[i] = Op{Key: Key{Kind: kind, Name: string(u.text())}, Value: u.bytes(), IfVersion: u.optionalUint()}
		if u.err != nil {
			break
		}
	}
	return b
}
