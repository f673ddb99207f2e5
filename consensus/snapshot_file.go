package consensus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc64"
	"io"
)

// A view file is
//
//	magic (8 bytes), format (2)
//	blocks: stored size (4), packed size (4), the stored bytes
//	an empty block: 8 zero bytes
//	CRC-64 (ECMA) of everything before (8)
//
// with all numbers big-endian. A block is compressed where its sizes differ.
// Together the blocks are records, none of which is in two blocks: a header,
// and as many entries, revisions and IDs as it says, each in order. Equal
// views make equal files.
const (
	viewMagic  = "PSTKVIEW"
	viewFormat = 1
	// blockSize is the packed size at which a block is full. One record may exceed it.
	blockSize = 1 << 20
	// recordOverhead bounds what a record takes beside its key and value.
	recordOverhead = 2*maxNote + 128
)

var viewTable = crc64.MakeTable(crc64.ECMA)

// snapshotHeader is the first record.
type snapshotHeader struct {
	index, sequence uint64
	entries         uint64
	revisions       uint64 // that are no longer in force
	ids             uint64 // that are remembered
	idsEver         uint64
}

// WriteSnapshot writes the view. It needs a few MiB of memory, whatever the size
// of the view, and may run while later views are made.
func WriteSnapshot(w io.Writer, v Snapshot) error {
	b := blockWriter{w: w, sum: crc64.New(viewTable)}
	ids := v.seen.inOrder()
	h := snapshotHeader{v.index, v.sequence, uint64(v.Len()), 0, uint64(len(ids)), v.seen.count}
	for _, revisions := range v.past.all() {
		h.revisions += uint64(len(revisions))
	}
	b.write(binary.BigEndian.AppendUint16([]byte(viewMagic), viewFormat))
	b.record(packHeader(b.packed, h))
	for e := range v.All() {
		b.record(packRevision(packKey(packArray(b.packed, 5), e.Key), e.revision()))
	}
	for path, revisions := range v.past.all() {
		k := keyOf(path, bytes.IndexByte(path, 0))
		for i := range revisions {
			r := &revisions[i]
			b.record(packUint(packRevision(packKey(packArray(b.packed, 6), k), r.Revision), r.until))
		}
	}
	for _, id := range ids {
		b.record(packUint(packBytes(packArray(b.packed, 2), id.id[:]), id.index))
	}
	b.flush()
	b.write(make([]byte, 8))
	b.write(binary.BigEndian.AppendUint64(nil, b.sum.Sum64()))
	if b.err != nil {
		return fmt.Errorf("view: %w", b.err)
	}
	return nil
}

func packHeader(dst []byte, h snapshotHeader) []byte {
	dst = packArray(dst, 6)
	for _, n := range []uint64{h.index, h.sequence, h.entries, h.revisions, h.ids, h.idsEver} {
		dst = packUint(dst, n)
	}
	return dst
}

func packKey(dst []byte, k Key) []byte { return packString(packString(dst, k.Kind), k.Name) }

func packRevision(dst []byte, r Revision) []byte {
	return packNote(packBytes(packUint(dst, r.Version), r.Value), r.Note)
}

// blockWriter writes blocks, and keeps its first error.
type blockWriter struct {
	w      io.Writer
	sum    hash.Hash64
	packed []byte // the block to be
	stored []byte // the last block written, for its memory
	err    error
}

// record takes the block with a record appended.
func (b *blockWriter) record(packed []byte) {
	if b.packed = packed; len(packed) >= blockSize {
		b.flush()
	}
}

func (b *blockWriter) flush() {
	if len(b.packed) == 0 || b.err != nil {
		b.packed = b.packed[:0]
		return
	}
	const head = 8
	var small bool
	b.stored = append(b.stored[:0], make([]byte, head)...)
	if len(b.packed) > compressAbove {
		b.stored, small = compress(b.stored, b.packed)
	}
	if !small {
		b.stored = append(b.stored[:head], b.packed...)
	}
	binary.BigEndian.PutUint32(b.stored, uint32(len(b.stored)-head))
	binary.BigEndian.PutUint32(b.stored[4:], uint32(len(b.packed)))
	b.write(b.stored)
	b.packed = b.packed[:0]
	if cap(b.packed) > 4*blockSize { // one large record must not stay
		b.packed, b.stored = make([]byte, 0, blockSize), nil
	}
}

func (b *blockWriter) write(p []byte) {
	if b.err == nil {
		_, _ = b.sum.Write(p) // a hash has no errors
		_, b.err = b.w.Write(p)
	}
}
