// Package files reads what people name: settings, resources, certificates and
// the node's own files. It reads regular files only. A named pipe, a device or
// a socket could block the reader for ever, and is refused by name before any
// byte is read.
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

// ErrKind is wrapped by errors about what is no regular file.
var ErrKind = errors.New("not a regular file")

// Open opens a regular file to read. The error is a *fs.PathError; where the
// path leads to something else it wraps ErrKind and says what that is.
//
// Descriptors that the process already has (/dev/stdin, /dev/fd/N: what a
// shell's <(command) gives) are opened as they are: opening them cannot block,
// and who passed them means them to be read.
func Open(path string) (*os.File, error) {
	if inherited(path) {
		return os.Open(path)
	}
	// Without O_NONBLOCK, opening a named pipe waits for its writer. It has
	// no effect on regular files.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, syscall.ENXIO) { // a socket, or a device that is not there
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

// Read reads at most limit bytes of a file and one more, which tells that
// there are too many.
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

// kindError says what a path leads to instead of a file.
type kindError struct{ kind string }

func (e kindError) Error() string { return fmt.Sprintf("is %s, not a regular file", e.kind) }

func (e kindError) Is(target error) bool { return target == ErrKind }

// regular says what a path leads to if it is no regular file.
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
		kind = "something else (" + mode.Type().String() + ")"
	}
	return &fs.PathError{Op: "open", Path: path, Err: kindError{kind}}
}
