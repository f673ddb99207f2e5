// Package snapshot reads and writes snapshots of a store as files, and keeps the
// directory in which Raft stores its own.
package snapshot

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc64"
	"io"

	"penstock/consensus/store"
)

// A snapshot file is
//
//	magic (8 bytes), format (2)
//	blocks: stored size (4), packed size (4), the stored bytes
//	an empty block: 8 zero bytes
//	CRC-64 (ECMA) of everything before (8)
//
// with all numbers big-endian. A block is compressed if its sizes differ. Equal
// snapshots have equal files.
const (
	magic  = "PSTKVIEW"
	format = 1
)

var crc = crc64.MakeTable(crc64.ECMA)

// Write writes a snapshot. It needs a few MiB of memory, whatever the size of
// the snapshot, and may run while later snapshots are made.
func Write(w io.Writer, v store.Snapshot) error {
	f := writer{w: w, sum: crc64.New(crc)}
	f.write(binary.BigEndian.AppendUint16([]byte(magic), format))
	_ = v.WriteBlocks(f.block) // f.err has the error
	f.write(make([]byte, 8))
	f.write(binary.BigEndian.AppendUint64(nil, f.sum.Sum64()))
	if f.err != nil {
		return fmt.Errorf("snapshot file: %w", f.err)
	}
	return nil
}

// writer writes the parts of a file. Its first error is sticky.
type writer struct {
	w      io.Writer
	sum    hash.Hash64
	stored []byte // the last block written, kept as a buffer
	err    error
}

func (f *writer) block(packed []byte) error {
	const head = 8
	var small bool
	f.stored = append(f.stored[:0], make([]byte, head)...)
	if f.stored, small = store.Compress(f.stored, packed); !small {
		f.stored = append(f.stored[:head], packed...)
	}
	binary.BigEndian.PutUint32(f.stored, uint32(len(f.stored)-head))
	binary.BigEndian.PutUint32(f.stored[4:], uint32(len(packed)))
	f.write(f.stored)
	if cap(f.stored) > 4*store.BlockSize { // drop the buffer of one large record
		f.stored = nil
	}
	return f.err
}

func (f *writer) write(p []byte) {
	if f.err == nil {
		_, _ = f.sum.Write(p) // a hash has no errors
		_, f.err = f.w.Write(p)
	}
}
