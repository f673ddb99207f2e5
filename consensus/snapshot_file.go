package consensus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc64"
	"io"
)

// A snapshot file is
//
//	magic (8 bytes), format (2)
//	blocks: stored size (4), packed size (4), the stored bytes
//	an empty block: 8 zero bytes
//	CRC-64 (ECMA) of everything before (8)
//
// with all numbers big-endian. A block is compressed if its sizes differ. The
// blocks contain records, none of which spans two blocks: a header, then the
// numbers of entries, revisions and IDs that it gives, each in order. Equal
// snapshots have equal files.
const (
	snapshotMagic  = "PSTKVIEW"
	snapshotFormat = 1
	// blockSize is the packed size at which a block is full. A single record may
	// exceed it.
	blockSize = 1 << 20
	// recordOverhead bounds the size of a record without its key and value.
	recordOverhead = 2*maxNote + 128
)

var snapshotCRC = crc64.MakeTable(crc64.ECMA)

// snapshotHeader is the first record.
type snapshotHeader struct {
	index, sequence uint64
	entries         uint64
	revisions       uint64 // no longer in force
	ids             uint64 // still remembered
	idsEver         uint64
}

// WriteSnapshot writes a snapshot. It needs a few MiB of memory, whatever the
// size of the snapshot, and may run while later snapshots are made.
func WriteSnapshot(w io.Writer, v Snapshot) error {
	b := blockWriter{w: w, sum: crc64.New(snapshotCRC), packed: newPacker(0)}
	ids := v.seen.inOrder()
	h := snapshotHeader{v.index, v.sequence, uint64(v.Len()), 0, uint64(len(ids)), v.seen.count}
	for _, revisions := range v.past.all() {
		h.revisions += uint64(len(revisions))
	}
	b.write(binary.BigEndian.AppendUint16([]byte(snapshotMagic), snapshotFormat))
	b.packed.header(h)
	b.record()
	for e := range v.All() {
		b.packed.array(5)
		b.packed.revision(e.Key, e.revision())
		b.record()
	}
	for path, revisions := range v.past.all() {
		k := keyOf(path, bytes.IndexByte(path, 0))
		for i := range revisions {
			r := &revisions[i]
			b.packed.array(6)
			b.packed.revision(k, r.Revision)
			b.packed.uint(r.until)
			b.record()
		}
	}
	for _, id := range ids {
		b.packed.array(2)
		b.packed.bytes(id.id[:])
		b.packed.uint(id.index)
		b.record()
	}
	b.flush()
	b.write(make([]byte, 8))
	b.write(binary.BigEndian.AppendUint64(nil, b.sum.Sum64()))
	if b.err != nil {
		return fmt.Errorf("snapshot file: %w", b.err)
	}
	return nil
}

func (p *packer) header(h snapshotHeader) {
	p.array(6)
	for _, n := range []uint64{h.index, h.sequence, h.entries, h.revisions, h.ids, h.idsEver} {
		p.uint(n)
	}
}

func (p *packer) revision(k Key, r Revision) {
	p.text(k.Kind)
	p.text(k.Name)
	p.uint(r.Version)
	p.bytes(r.Value)
	p.note(r.Note)
}

// blockWriter writes blocks. Its first error is sticky.
type blockWriter struct {
	w      io.Writer
	sum    hash.Hash64
	packed *packer // the next block
	stored []byte  // the last block written, kept as a buffer
	err    error
}

// record ends a record, and writes the block if it is full.
func (b *blockWriter) record() {
	if b.packed.Len() >= blockSize {
		b.flush()
	}
}

func (b *blockWriter) flush() {
	packed := b.packed.Bytes()
	defer b.packed.Reset()
	if len(packed) == 0 || b.err != nil {
		return
	}
	const head = 8
	var small bool
	b.stored = append(b.stored[:0], make([]byte, head)...)
	if len(packed) > compressAbove {
		b.stored, small = compress(b.stored, packed)
	}
	if !small {
		b.stored = append(b.stored[:head], packed...)
	}
	binary.BigEndian.PutUint32(b.stored, uint32(len(b.stored)-head))
	binary.BigEndian.PutUint32(b.stored[4:], uint32(len(packed)))
	b.write(b.stored)
	if cap(packed) > 4*blockSize { // drop the buffers of one large record
		b.packed, b.stored = newPacker(blockSize), nil
	}
}

func (b *blockWriter) write(p []byte) {
	if b.err == nil {
		_, _ = b.sum.Write(p) // a hash has no errors
		_, b.err = b.w.Write(p)
	}
}
