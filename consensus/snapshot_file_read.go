package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc64"
	"io"
	"slices"
)

// ReadSnapshot reads the output of WriteSnapshot, to the end of r. The snapshot
// has no record of changes before its index (see Snapshot.Changed). It returns
// ErrDamaged for a truncated or corrupt file, ErrFormat for another format, and
// ErrTooLarge if the content or one part of it exceeds the limits.
func ReadSnapshot(r io.Reader, l Limits) (Snapshot, error) {
	l = l.withDefaults()
	b := blockReader{
		r:     r,
		sum:   crc64.New(snapshotCRC),
		limit: blockSize + l.Entry + recordOverhead,
		rest:  newUnpacker(nil),
	}
	b.rest.texts = map[string]string{}
	v, err := b.snapshot(l)
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot file: %w", err)
	}
	return v, nil
}

// blockReader reads the blocks of a file in order.
type blockReader struct {
	r     io.Reader
	sum   hash.Hash64
	limit int // of a packed block

	rest           *unpacker // of the current block
	stored, packed []byte    // buffers of the current block
	ended          bool      // the empty block has been read
}

func (b *blockReader) snapshot(l Limits) (Snapshot, error) {
	if err := b.start(); err != nil {
		return Snapshot{}, err
	}
	h, err := b.header()
	if err != nil {
		return Snapshot{}, err
	}
	v := Snapshot{index: h.index, sequence: h.sequence, log: batchLog{reach: h.index}}
	if err := b.entries(&v, h.entries, l); err != nil {
		return Snapshot{}, err
	}
	if err := b.revisions(&v, h.revisions, l); err != nil {
		return Snapshot{}, err
	}
	if err := b.ids(&v, h); err != nil {
		return Snapshot{}, err
	}
	return v, b.readTrailer()
}

// start reads the magic and the format.
func (b *blockReader) start() error {
	head := make([]byte, len(snapshotMagic)+2)
	if err := b.read(head); err != nil {
		return err
	}
	if magic := head[:len(snapshotMagic)]; string(magic) != snapshotMagic {
		return fmt.Errorf("%w: it begins with %q, not %q", ErrFormat, magic, snapshotMagic)
	}
	if format := binary.BigEndian.Uint16(head[len(snapshotMagic):]); format != snapshotFormat {
		return fmt.Errorf("%w: format %d, this build supports %d", ErrFormat, format, snapshotFormat)
	}
	return nil
}

// read fills p and adds it to the checksum.
func (b *blockReader) read(p []byte) error {
	n, err := io.ReadFull(b.r, p)
	_, _ = b.sum.Write(p[:n]) // a hash has no errors
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: truncated", ErrDamaged)
	}
	return err
}

// record moves to the next record in b.rest, and returns the error of the
// record before.
func (b *blockReader) record() error {
	for b.rest.left.Len() == 0 && b.rest.err == nil {
		if b.ended {
			return fmt.Errorf("%w: fewer records than its header says", ErrDamaged)
		}
		if err := b.block(); err != nil {
			return err
		}
	}
	return b.rest.err
}

// block reads the next block into b.rest.
func (b *blockReader) block() error {
	var head [8]byte
	if err := b.read(head[:]); err != nil {
		return err
	}
	stored, packed := binary.BigEndian.Uint32(head[:]), binary.BigEndian.Uint32(head[4:])
	switch {
	case stored == 0 && packed == 0:
		b.ended = true
		return nil
	case stored == 0 || stored > packed:
		return fmt.Errorf("%w: a block of %d bytes is stored in %d", ErrDamaged, packed, stored)
	case uint64(packed) > uint64(b.limit):
		return fmt.Errorf("%w: a block of %d bytes, the limit is %d", ErrTooLarge, packed, b.limit)
	}
	b.stored = sized(b.stored, int(stored))
	if err := b.read(b.stored); err != nil {
		return err
	}
	b.rest.reset(b.stored)
	if stored < packed {
		b.packed = sized(b.packed, int(packed))
		raw, err := expand(b.packed, b.stored, uint64(packed), b.limit)
		if err != nil {
			return err
		}
		b.rest.reset(raw)
	}
	return nil
}

// sized returns a slice of n bytes, in buf's array if that is large enough and
// not far too large.
func sized(buf []byte, n int) []byte {
	if cap(buf) < n || cap(buf) > max(2*n, 4*blockSize) {
		return make([]byte, n, max(n, blockSize+blockSize/4))
	}
	return buf[:n]
}

func (b *blockReader) header() (h snapshotHeader, err error) {
	if err := b.record(); err != nil {
		return h, err
	}
	u := b.rest
	u.tuple(6)
	for _, n := range []*uint64{&h.index, &h.sequence, &h.entries, &h.revisions, &h.ids, &h.idsEver} {
		*n = u.uint()
	}
	if h.ids != min(h.idsEver, maxSeen) {
		u.fail("%d IDs remembered, of %d ever seen", h.ids, h.idsEver)
	}
	return h, u.err
}

// entry reads the fields that entries and revisions share. Keys must be in
// order; before is the path of the previous one.
func (b *blockReader) entry(parts int, last Entry, before []byte, s *Snapshot, l Limits) (Entry, []byte, error) {
	if err := b.record(); err != nil {
		return Entry{}, nil, err
	}
	u := b.rest
	u.tuple(parts)
	e := Entry{Key: Key{Kind: u.internedText(last.Kind)}}
	name := u.text()
	e.Version = u.uint()
	e.Value = bytes.Clone(u.bytes())
	e.Note = u.note(last.Note)
	if e.Name = last.Name; string(name) != e.Name {
		e.Name = string(name)
	}
	if u.err == nil && (e.Version == 0 || e.Version > s.index) {
		u.fail("%s/%s has version %d, the snapshot has index %d", e.Kind, e.Name, e.Version, s.index)
	}
	if u.err != nil {
		return e, nil, u.err
	}
	if err := e.check(len(e.Value), l); errors.Is(err, ErrKey) {
		u.fail("%v", err)
	} else if err != nil {
		return e, nil, err
	}
	path := e.path()
	if u.err == nil && bytes.Compare(path, before) < 0 {
		u.fail("%s/%s is out of order", e.Kind, e.Name)
	}
	return e, path, u.err
}

func (b *blockReader) entries(v *Snapshot, n uint64, l Limits) error {
	txn := orEmpty(v.entries).Txn()
	var e Entry
	var path []byte
	for range n {
		before := path
		var err error
		if e, path, err = b.entry(5, e, before, v, l); err != nil {
			return err
		}
		if e.Value == nil || bytes.Equal(path, before) {
			b.rest.fail("%s/%s is a duplicate or has no value", e.Kind, e.Name)
			return b.rest.err
		}
		total, limit := &v.bytes, l.Total
		if e.Internal() {
			total, limit = &v.internal, l.Internal
		}
		if *total += e.size(); *total > limit {
			return fmt.Errorf("%w: more than %d bytes of entries", ErrTooLarge, limit)
		}
		txn.Insert(path, e)
	}
	v.entries = txn.CommitOnly()
	return nil
}

func (b *blockReader) revisions(v *Snapshot, n uint64, l Limits) error {
	if n == 0 {
		return nil
	}
	txn := v.past.txn()
	txn.begin()
	var e Entry
	var path []byte
	var revisions []pastRevision // of that path
	for range n {
		before := path
		var err error
		if e, path, err = b.entry(6, e, before, v, l); err != nil {
			return err
		}
		r := pastRevision{e.revision(), b.rest.uint()}
		if before != nil && !bytes.Equal(path, before) {
			txn.set(before, slices.Clone(revisions))
			revisions = revisions[:0]
		}
		if b.rest.err == nil && !r.mayFollow(revisions, v.index) {
			b.rest.fail("%s/%s of version %d is out of order", e.Kind, e.Name, r.Version)
		}
		if b.rest.err != nil {
			return b.rest.err
		}
		if revisions = append(revisions, r); len(revisions) > l.Revisions {
			return fmt.Errorf("%w: more than %d revisions of %s/%s", ErrTooLarge, l.Revisions, e.Kind, e.Name)
		}
		txn.order.Insert(orderKey(r.until, path), struct{}{})
		if txn.bytes += r.size(path); txn.bytes > l.Past {
			return fmt.Errorf("%w: more than %d bytes of revisions", ErrTooLarge, l.Past)
		}
	}
	txn.set(path, slices.Clone(revisions))
	txn.trimAll(v.entries, l)
	v.past = txn.commit()
	return nil
}

func (b *blockReader) ids(v *Snapshot, h snapshotHeader) error {
	v.seen.count = h.idsEver - h.ids
	last := uint64(0)
	for range h.ids {
		if err := b.record(); err != nil {
			return err
		}
		u := b.rest
		u.tuple(2)
		id, index := u.id(), u.uint()
		if _, duplicate := v.seen.find(id); u.err == nil && (duplicate || id == ID{} || index < last || index == 0 || index > h.index) {
			u.fail("ID %x of index %d is invalid, duplicate or out of order: the last index is %d", id, index, last)
		}
		if u.err != nil {
			return u.err
		}
		last = index
		v.seen = v.seen.with(id, index)
	}
	return nil
}

// readTrailer reads the end of the file after the records.
func (b *blockReader) readTrailer() error {
	if b.rest.left.Len() == 0 && !b.ended {
		if err := b.block(); err != nil {
			return err
		}
	}
	if !b.ended {
		return fmt.Errorf("%w: more records than its header says", ErrDamaged)
	}
	want := b.sum.Sum64()
	var tail [8]byte
	if err := b.read(tail[:]); err != nil {
		return err
	}
	if got := binary.BigEndian.Uint64(tail[:]); got != want {
		return fmt.Errorf("%w: %016x, not %016x", ErrChecksum, got, want)
	}
	if n, err := io.ReadFull(b.r, tail[:1]); n > 0 {
		return fmt.Errorf("%w: data after its end", ErrDamaged)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
