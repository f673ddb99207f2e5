package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// The content of a snapshot is stored as records: a header, then the numbers of
// entries, revisions and IDs that it gives, each in order. Blocks contain the
// records; no record spans two blocks. Equal snapshots have equal blocks.
const (
	// BlockSize is the size at which a block is full. A single record may exceed
	// it.
	BlockSize = 1 << 20
	// recordOverhead bounds the size of a record without its key and value.
	recordOverhead = 2*maxNote + 128
)

// MaxBlock returns the maximum size of a block.
func (l Limits) MaxBlock() int { return BlockSize + l.withDefaults().Entry + recordOverhead }

// header is the first record.
type header struct {
	index, sequence uint64
	entries         uint64
	revisions       uint64 // no longer in force
	ids             uint64 // still remembered
	idsEver         uint64
}

func (h *header) fields() [6]*uint64 {
	return [...]*uint64{&h.index, &h.sequence, &h.entries, &h.revisions, &h.ids, &h.idsEver}
}

// WriteBlocks calls write with each block, until that returns an error. It needs
// a few MiB of memory, whatever the size of the snapshot, and may run while
// later snapshots are made. A block is valid during the call only.
func (v Snapshot) WriteBlocks(write func(block []byte) error) error {
	b := blockWriter{packer: newPacker(0), write: write}
	ids := v.seen.inOrder()
	h := header{v.index, v.sequence, uint64(v.Len()), 0, uint64(len(ids)), v.seen.count}
	for _, revisions := range v.past.all() {
		h.revisions += uint64(len(revisions))
	}
	b.array(6)
	for _, n := range h.fields() {
		b.uint(*n)
	}
	b.endRecord()
	for e := range v.All() {
		b.revision(5, e.Key, e.revision())
		b.endRecord()
	}
	for path, revisions := range v.past.all() {
		k := keyOf(path, bytes.IndexByte(path, 0))
		for i := range revisions {
			b.revision(6, k, revisions[i].Revision)
			b.uint(revisions[i].until)
			b.endRecord()
		}
	}
	for _, id := range ids {
		b.array(2)
		b.bytes(id.id[:])
		b.uint(id.index)
		b.endRecord()
	}
	b.flush()
	return b.err
}

// blockWriter writes blocks. Its first error is sticky.
type blockWriter struct {
	*packer // the next block
	write   func(block []byte) error
	err     error
}

// revision writes what the records of entries and revisions share.
func (b *blockWriter) revision(parts int, k Key, r Revision) {
	b.array(parts)
	b.text(k.Kind)
	b.text(k.Name)
	b.uint(r.Version)
	b.bytes(r.Value)
	b.note(r.Note)
}

// endRecord writes the block if it is full.
func (b *blockWriter) endRecord() {
	if b.Len() >= BlockSize {
		b.flush()
	}
}

func (b *blockWriter) flush() {
	if b.Len() > 0 && b.err == nil {
		b.err = b.write(b.Bytes())
	}
	if b.Reset(); b.Cap() > 4*BlockSize { // drop the buffer of one large record
		b.packer = newPacker(BlockSize)
	}
}

// Builder rebuilds a snapshot from its blocks. The snapshot has no record of
// changes before its index (see Snapshot.Changed).
type Builder struct {
	limits   Limits
	block    *unpacker
	begun    bool   // the header has been read
	left     header // the numbers of records still to come
	snapshot Snapshot
	entries  *iradix.Txn[Entry]
	past     *pastTxn

	last      Entry          // of the last entry or revision
	path      []byte         // of last
	revisions []pastRevision // of path
	lastID    uint64         // the index of the last ID
}

// NewBuilder returns a Builder for a store with these limits.
func NewBuilder(l Limits) *Builder {
	b := &Builder{limits: l.withDefaults(), block: newUnpacker(nil), entries: iradix.New[Entry]().Txn(), past: past{}.txn()}
	b.block.texts = map[string]string{}
	return b
}

// Add reads the next block, and keeps none of its memory. It returns ErrDamaged
// for an invalid block, and ErrTooLarge if the content exceeds the limits.
func (b *Builder) Add(block []byte) error {
	b.block.reset(block)
	for b.block.left.Len() > 0 {
		if err := b.addRecord(); err != nil {
			return err
		}
	}
	return b.block.err
}

func (b *Builder) addRecord() error {
	switch {
	case !b.begun:
		b.begun = true
		return b.header()
	case b.left.entries > 0:
		b.left.entries--
		return b.entry()
	case b.left.revisions > 0:
		b.left.revisions--
		return b.revision()
	case b.left.ids > 0:
		b.left.ids--
		return b.id()
	}
	return fmt.Errorf("%w: more records than its header says", ErrDamaged)
}

func (b *Builder) header() error {
	u, h := b.block, &b.left
	u.tuple(6)
	for _, n := range h.fields() {
		*n = u.uint()
	}
	if h.ids != min(h.idsEver, maxSeen) {
		u.fail("%d IDs remembered, of %d ever seen", h.ids, h.idsEver)
	}
	b.snapshot = Snapshot{index: h.index, sequence: h.sequence, log: batchLog{reach: h.index}, seen: seen{count: h.idsEver - h.ids}}
	return u.err
}

// key reads the fields that entries and revisions share into last and path. Keys
// must be in order; repeated reports whether the key is that of the record
// before.
func (b *Builder) key(parts int) (repeated bool, err error) {
	u, last, before := b.block, b.last, b.path
	u.tuple(parts)
	e := Entry{Key: Key{Kind: u.internedText(last.Kind)}}
	name := u.text()
	e.Version = u.uint()
	e.Value = bytes.Clone(u.bytes())
	e.Note = u.note(last.Note)
	if e.Name = last.Name; string(name) != e.Name {
		e.Name = string(name)
	}
	if u.err == nil && (e.Version == 0 || e.Version > b.snapshot.index) {
		u.fail("%s/%s has version %d, the snapshot has index %d", e.Kind, e.Name, e.Version, b.snapshot.index)
	}
	if u.err != nil {
		return false, u.err
	}
	if err := e.check(len(e.Value), b.limits); errors.Is(err, ErrKey) {
		u.fail("%v", err)
	} else if err != nil {
		return false, err
	}
	b.last, b.path = e, e.path()
	order := bytes.Compare(b.path, before)
	if u.err == nil && order < 0 {
		u.fail("%s/%s is out of order", e.Kind, e.Name)
	}
	return order == 0, u.err
}

func (b *Builder) entry() error {
	repeated, err := b.key(5)
	if err != nil {
		return err
	}
	e, v := b.last, &b.snapshot
	if e.Value == nil || repeated {
		b.block.fail("%s/%s is a duplicate or has no value", e.Kind, e.Name)
		return b.block.err
	}
	total, limit := &v.bytes, b.limits.Total
	if e.Internal() {
		total, limit = &v.internal, b.limits.Internal
	}
	if *total += e.size(); *total > limit {
		return fmt.Errorf("%w: more than %d bytes of entries", ErrTooLarge, limit)
	}
	b.entries.Insert(b.path, e)
	if b.left.entries == 0 { // revisions have an order of their own
		b.last, b.path = Entry{}, nil
	}
	return nil
}

func (b *Builder) revision() error {
	before := b.path
	repeated, err := b.key(6)
	if err != nil {
		return err
	}
	b.past.begin()
	e, l := b.last, b.limits
	r := pastRevision{e.revision(), b.block.uint()}
	if before != nil && !repeated {
		b.past.set(before, slices.Clone(b.revisions))
		b.revisions = b.revisions[:0]
	}
	if b.block.err == nil && !r.mayFollow(b.revisions, b.snapshot.index) {
		b.block.fail("%s/%s of version %d is out of order", e.Kind, e.Name, r.Version)
	}
	if b.block.err != nil {
		return b.block.err
	}
	if b.revisions = append(b.revisions, r); len(b.revisions) > l.Revisions {
		return fmt.Errorf("%w: more than %d revisions of %s/%s", ErrTooLarge, l.Revisions, e.Kind, e.Name)
	}
	b.past.order.Insert(orderKey(r.until, b.path), struct{}{})
	if b.past.bytes += r.size(b.path); b.past.bytes > l.Past {
		return fmt.Errorf("%w: more than %d bytes of revisions", ErrTooLarge, l.Past)
	}
	if b.left.revisions == 0 {
		b.past.set(b.path, slices.Clone(b.revisions))
	}
	return nil
}

func (b *Builder) id() error {
	u, seen := b.block, &b.snapshot.seen
	u.tuple(2)
	id, index := u.id(), u.uint()
	if _, duplicate := seen.find(id); u.err == nil && (duplicate || id == ID{} || index < b.lastID || index == 0 || index > b.snapshot.index) {
		u.fail("ID %x of index %d is invalid, duplicate or out of order: the last index is %d", id, index, b.lastID)
	}
	if u.err != nil {
		return u.err
	}
	b.lastID = index
	*seen = seen.with(id, index)
	return nil
}

// Snapshot returns the snapshot after the last block.
func (b *Builder) Snapshot() (Snapshot, error) {
	if !b.begun || b.left.entries|b.left.revisions|b.left.ids != 0 {
		return Snapshot{}, fmt.Errorf("%w: fewer records than its header says", ErrDamaged)
	}
	v := b.snapshot
	v.entries, v.past = b.entries.CommitOnly(), b.past.commit()
	return v, nil
}
