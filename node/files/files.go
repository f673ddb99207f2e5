// Package files reads files at paths that users configure: settings, resources,
// certificates and the node's own files. It accepts regular files only. A named
// pipe, a device or a socket could block the reader for ever; Open refuses it
// before any byte is read.
//
//	data, err := files.Read("penstock.yaml", 16<<20)
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrKind matches the errors about paths that are not regular files.
var ErrKind = errors.New("not a regular file")

var errEmpty = errors.New("is empty")

// Open opens a regular file for reading. Its error is a *fs.PathError; if the path
// is something else, the error matches ErrKind and says what it is.
//
// Open accepts descriptors that the process already has (/dev/stdin, and
// /dev/fd/N from a shell's <(command)) whatever their kind: opening them cannot
// block, and they were passed to be read.
func Open(path string) (*os.File, error) {
	if inherited(path) {
		return os.Open(path)
	}
	// Without O_NONBLOCK, opening a named pipe waits for its writer. It has
	// no effect on regular files.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, syscall.ENXIO) { // a socket, or a device without a driver
			err = &fs.PathError{Op: "open", Path: path, Err: kindError{"a socket or a device"}}
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read reads at most limit+1 bytes of a file: more than limit bytes mean that the
// file is too large.
func Read(path string, limit int) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)+1))
}

func inherited(path string) bool {
	path = filepath.Clean(path)
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}

// kindError says what a path is instead of a regular file.
type kindError struct{ kind string }

func (e kindError) Error() string { return fmt.Sprintf("is %s, not a regular file", e.kind) }

func (e kindError) Is(target error) bool { return target == ErrKind }

// regular returns an error with the kind of a file that is not regular.
func regular(path string, info fs.FileInfo) error {
	var kind string
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	default:
		kind = "of another type (" + mode.Type().String() + ")"
	}
	return &fs.PathError{Op: "open", Path: path, Err: kindError{kind}}
}
