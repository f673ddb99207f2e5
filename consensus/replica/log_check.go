package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"

	"penstock/consensus/store"
)

// checkBolt verifies the pages of a bbolt file before bbolt opens it. bbolt
// maps the file into memory, so a truncated file or an invalid page crashes the
// process. bbolt's Tx.Check comes too late for that, see DESIGN.md. A missing
// or empty file is valid.
//
// The format is that of bbolt's internal/common: pages with a header of 16
// bytes, of which pages 0 and 1 are the last two meta pages.
func checkBolt(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	w := boltWalk{f: f, size: uint64(info.Size()), seen: map[uint64]bool{}}
	root, err := w.readMeta()
	if err == nil {
		err = w.walkBucket(root)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", path, store.ErrDamaged, err)
	}
	return nil
}

const (
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	boltHeader   = 16
	boltBranch   = 1
	boltLeaf     = 2
	boltBucket   = 1  // flag of a leaf element
	boltMaxDepth = 32 // of a tree with at least two keys in each page
)

// boltWalk visits all pages in use.
type boltWalk struct {
	f        *os.File
	size     uint64 // of the file
	pageSize uint64
	end      uint64 // the first page never used
	seen     map[uint64]bool
}

// readMeta reads the newer valid meta page and returns the root.
func (w *boltWalk) readMeta() (root uint64, err error) {
	newest := int64(-1)
	sizes := []int64{int64(os.Getpagesize()), 4096, 8192, 16384, 65536}
	for _, at := range append([]int64{0}, sizes...) { // the offset of page 1 is the page size
		var b [boltHeader + 64]byte
		if _, err := w.f.ReadAt(b[:], at); err != nil {
			continue
		}
		meta := b[boltHeader:]
		u32 := func(i int) uint32 { return binary.NativeEndian.Uint32(meta[i:]) }
		u64 := func(i int) uint64 { return binary.NativeEndian.Uint64(meta[i:]) }
		sum := fnv.New64a()
		sum.Write(meta[:56])
		if u32(0) != boltMagic || u32(4) != boltVersion || u64(56) != sum.Sum64() || at != 0 && at != int64(u32(8)) {
			continue
		}
		if tx := int64(u64(48)); tx > newest {
			newest, root, w.end, w.pageSize = tx, u64(16), u64(40), uint64(u32(8))
		}
	}
	switch {
	case newest < 0:
		return 0, errors.New("neither of its meta pages is valid")
	case w.pageSize < 1024 || w.end > w.size/w.pageSize:
		return 0, fmt.Errorf("invalid size: %d bytes for %d pages of %d bytes", w.size, w.end, w.pageSize)
	}
	return root, nil
}

// walkBucket walks the tree of a bucket.
func (w *boltWalk) walkBucket(root uint64) error {
	var last []byte
	return w.walkPage(root, 0, &last)
}

// walkPage walks a page and its children. Keys are strictly ascending; the
// first key of a page may equal its key in the parent.
func (w *boltWalk) walkPage(id uint64, depth int, last *[]byte) error {
	p, err := w.readPage(id)
	if err != nil {
		return err
	}
	if depth > boltMaxDepth {
		return fmt.Errorf("page %d is %d levels deep", id, depth)
	}
	return w.walkElements(id, p, depth, last)
}

// readPage reads a page with its overflow pages.
func (w *boltWalk) readPage(id uint64) ([]byte, error) {
	if id < 2 || id >= w.end {
		return nil, fmt.Errorf("page %d is out of range, the file has %d", id, w.end)
	}
	var head [boltHeader]byte
	if _, err := w.f.ReadAt(head[:], int64(id*w.pageSize)); err != nil {
		return nil, err
	}
	pages := uint64(binary.NativeEndian.Uint32(head[12:])) + 1
	if got := binary.NativeEndian.Uint64(head[:]); got != id || id+pages > w.end {
		return nil, fmt.Errorf("the header of page %d gives page %d and a length of %d pages", id, got, pages)
	}
	for i := id; i < id+pages; i++ {
		if w.seen[i] {
			return nil, fmt.Errorf("page %d is referenced twice", i)
		}
		w.seen[i] = true
	}
	p := make([]byte, pages*w.pageSize)
	_, err := w.f.ReadAt(p, int64(id*w.pageSize))
	return p, err
}

// walkElements walks the elements of a page, or of an inline bucket.
func (w *boltWalk) walkElements(id uint64, p []byte, depth int, last *[]byte) error {
	if len(p) < boltHeader {
		return fmt.Errorf("page %d has a bucket of %d bytes", id, len(p))
	}
	flags, count := binary.NativeEndian.Uint16(p[8:]), uint64(binary.NativeEndian.Uint16(p[10:]))
	if flags != boltBranch && flags != boltLeaf || flags == boltBranch && count == 0 {
		return fmt.Errorf("page %d has the flags %#x and %d elements", id, flags, count)
	}
	if boltHeader+16*count > uint64(len(p)) {
		return fmt.Errorf("page %d is too small for %d elements", id, count)
	}
	for i := range count {
		at := boltHeader + 16*i
		e := p[at:]
		u32 := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(e[i:])) }
		pos, key, value, child := u32(4), u32(8), u32(12), uint64(0)
		if flags == boltBranch {
			pos, key, value, child = u32(0), u32(4), 0, binary.NativeEndian.Uint64(e[8:])
		}
		if at+pos+key+value > uint64(len(p)) {
			return fmt.Errorf("page %d is too small for its element %d", id, i)
		}
		k, v := e[pos:pos+key], e[pos+key:pos+key+value]
		if flags == boltBranch {
			if order := bytes.Compare(k, *last); order < 0 || order == 0 && i > 0 {
				return fmt.Errorf("the keys of page %d are out of order", id)
			}
			*last = k
			if err := w.walkPage(child, depth+1, last); err != nil {
				return err
			}
			continue
		}
		if order := bytes.Compare(k, *last); len(k) == 0 || order < 0 || order == 0 && i > 0 {
			return fmt.Errorf("the keys of page %d are out of order", id)
		}
		*last = k
		if u32(0)&boltBucket != 0 {
			if err := w.walkNested(id, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// walkNested walks a bucket stored as a value: it has a root page, or is small
// and follows inline as a page.
func (w *boltWalk) walkNested(id uint64, v []byte) error {
	if len(v) < 16 {
		return fmt.Errorf("page %d has a bucket of %d bytes", id, len(v))
	}
	if root := binary.NativeEndian.Uint64(v); root != 0 {
		return w.walkBucket(root)
	}
	var last []byte
	return w.walkElements(id, v[16:], boltMaxDepth, &last)
}
