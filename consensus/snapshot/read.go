package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc64"
	"io"

	"penstock/consensus/store"
)

// Read reads the output of Write, to the end of r. The snapshot has no record
// of changes before its index (see store.Snapshot.Changed). It returns
// ErrDamaged for a truncated or corrupt file, ErrFormat for another format, and
// ErrTooLarge if the content or one part of it exceeds the limits.
func Read(r io.Reader, l store.Limits) (store.Snapshot, error) {
	f := reader{r: r, sum: crc64.New(crc), limit: l.MaxBlock()}
	v, err := f.snapshot(store.NewBuilder(l))
	if err != nil {
		return store.Snapshot{}, fmt.Errorf("snapshot file: %w", err)
	}
	return v, nil
}

// reader reads the parts of a file in order.
type reader struct {
	r     io.Reader
	sum   hash.Hash64
	limit int // of a packed block

	stored, packed []byte // buffers of the current block
}

func (f *reader) snapshot(b *store.Builder) (store.Snapshot, error) {
	if err := f.start(); err != nil {
		return store.Snapshot{}, err
	}
	for {
		block, err := f.block()
		if err != nil {
			return store.Snapshot{}, err
		}
		if block == nil {
			break
		}
		if err := b.Add(block); err != nil {
			return store.Snapshot{}, err
		}
	}
	v, err := b.Snapshot()
	if err != nil {
		return store.Snapshot{}, err
	}
	return v, f.end()
}

// start reads the magic and the format.
func (f *reader) start() error {
	head := make([]byte, len(magic)+2)
	if err := f.read(head); err != nil {
		return err
	}
	if is := head[:len(magic)]; string(is) != magic {
		return fmt.Errorf("%w: it begins with %q, not %q", store.ErrFormat, is, magic)
	}
	if is := binary.BigEndian.Uint16(head[len(magic):]); is != format {
		return fmt.Errorf("%w: format %d, this build supports %d", store.ErrFormat, is, format)
	}
	return nil
}

// read fills p and adds it to the checksum.
func (f *reader) read(p []byte) error {
	n, err := io.ReadFull(f.r, p)
	_, _ = f.sum.Write(p[:n]) // a hash has no errors
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: truncated", store.ErrDamaged)
	}
	return err
}

// block returns the next block, which is valid until the one after it; nil for
// the empty block at the end.
func (f *reader) block() ([]byte, error) {
	var head [8]byte
	if err := f.read(head[:]); err != nil {
		return nil, err
	}
	stored, packed := binary.BigEndian.Uint32(head[:]), binary.BigEndian.Uint32(head[4:])
	switch {
	case stored == 0 && packed == 0:
		return nil, nil
	case stored == 0 || stored > packed:
		return nil, fmt.Errorf("%w: a block of %d bytes is stored in %d", store.ErrDamaged, packed, stored)
	case uint64(packed) > uint64(f.limit):
		return nil, fmt.Errorf("%w: a block of %d bytes, the limit is %d", store.ErrTooLarge, packed, f.limit)
	}
	f.stored = sized(f.stored, int(stored))
	if err := f.read(f.stored); err != nil {
		return nil, err
	}
	if stored == packed {
		return f.stored, nil
	}
	f.packed = sized(f.packed, int(packed))
	return store.Expand(f.packed, f.stored, uint64(packed), f.limit)
}

// sized returns a slice of n bytes, in buf's array if that is large enough and
// not far too large.
func sized(buf []byte, n int) []byte {
	if cap(buf) < n || cap(buf) > max(2*n, 4*store.BlockSize) {
		return make([]byte, n, max(n, store.BlockSize+store.BlockSize/4))
	}
	return buf[:n]
}

// end reads the checksum, after which the file must end.
func (f *reader) end() error {
	want := f.sum.Sum64()
	var tail [8]byte
	if err := f.read(tail[:]); err != nil {
		return err
	}
	if got := binary.BigEndian.Uint64(tail[:]); got != want {
		return fmt.Errorf("%w: %016x, not %016x", store.ErrChecksum, got, want)
	}
	if n, err := io.ReadFull(f.r, tail[:1]); n > 0 {
		return fmt.Errorf("%w: data after its end", store.ErrDamaged)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
