package files

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Followed is the content of files that belong together, such as a certificate and
// its key. Check reads them again when one has changed: when it was written, or
// replaced by another, or when a symbolic link leads to another file, as in the volumes
// of Kubernetes. Its methods are not safe for concurrent use.
//
//	f := files.Follow([]string{"tls.crt", "tls.key"}, 1<<20, func(content [][]byte) error { ... })
//	changed, err := f.Check(false)
type Followed struct {
	paths []string
	limit int
	use   func(content [][]byte) error
	open  func(path string, limit int) ([]byte, error)

	read    bool          // the last attempt found usable content
	stamps  []fs.FileInfo // at the last attempt; nil: no such file
	settled bool          // a write since the last attempt shows in the stamps
	sum     [sha256.Size]byte
	known   bool // sum is that of the content that was last used
}

// timestampStep is longer than the steps in which file systems count time: a file that
// was written less than this before it was read may be written again without a new
// time.
const timestampStep = 2 * time.Second

// Follow makes a Followed, which has read nothing yet. A file has at most limit bytes.
// use gets the content of all files, in the order of paths, whenever it is another; its
// error means that the content is of no use, for example in the middle of a
// replacement.
func Follow(paths []string, limit int, use func(content [][]byte) error) *Followed {
	return &Followed{paths: paths, limit: limit, use: use, open: Read, stamps: make([]fs.FileInfo, len(paths))}
}

// FollowNamed is Follow for paths that a resource names, which Resolve may refuse.
func FollowNamed(paths []string, dataDir string, limit int, use func(content [][]byte) error) *Followed {
	f := Follow(paths, limit, use)
	f.open = func(path string, limit int) ([]byte, error) { return readNamed(path, dataDir, limit) }
	return f
}

// Check reads the files if one of them may have changed since the last call, if they
// could not be used then, or in any case with force. It reports whether use has taken
// other content. The error says which file cannot be used and why.
func (f *Followed) Check(force bool) (changed bool, err error) {
	began, same := time.Now(), f.read && f.settled && !force
	f.settled = true
	for i, path := range f.paths {
		info, err := os.Stat(path)
		if err != nil {
			info = nil
		}
		if !sameFile(info, f.stamps[i]) {
			same = false
		}
		f.stamps[i] = info
		if info != nil && info.ModTime().After(began.Add(-timestampStep)) {
			f.settled = false
		}
	}
	if same {
		return false, nil
	}
	f.read = false
	content, sum, err := f.load()
	if err != nil {
		return false, err
	}
	if !f.known || sum != f.sum {
		if err := f.use(content); err != nil {
			return false, err
		}
		changed = true
	}
	f.read, f.known, f.sum = true, true, sum
	return changed, nil
}

func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// load reads the files.
func (f *Followed) load() (content [][]byte, sum [sha256.Size]byte, err error) {
	all := sha256.New()
	for _, path := range f.paths {
		data, err := f.open(path, f.limit)
		switch {
		case err != nil:
			return nil, sum, err
		case len(data) > f.limit:
			return nil, sum, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("is larger than %d KiB", f.limit>>10)}
		case len(data) == 0:
			return nil, sum, &fs.PathError{Op: "read", Path: path, Err: errEmpty}
		}
		content = append(content, data)
		one := sha256.Sum256(data)
		all.Write(one[:])
	}
	return content, [sha256.Size]byte(all.Sum(nil)), nil
}
