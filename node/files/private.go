package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrPrivate matches the errors about paths that resources must not name.
var ErrPrivate = errors.New("is not for resources")

var (
	errDataFolder = privateError{"is in the node's data folder, which resources must not name: give a file outside of it"}
	errProcess    = privateError{"is of the processes of this machine, not a file: give a file outside of /proc and /dev"}
)

type privateError struct{ text string }

func (e privateError) Error() string { return e.text }

func (e privateError) Is(target error) bool { return target == ErrPrivate }

// Resolve returns a path that a resource names on a node, without symbolic links. It is
// refused, with ErrPrivate, in the node's data folder ("": there is none): whoever may
// write resources could otherwise present the node's own certificate, or reach its
// socket. So are paths in /proc and /dev, which lead to what the process has open, or
// has in its environment. The error is a *fs.PathError.
func Resolve(path, dataDir string) (string, error) {
	refused := func(err error) (string, error) { return "", &fs.PathError{Op: "open", Path: path, Err: err} }
	path, err := filepath.Abs(path)
	if err != nil {
		return refused(err)
	}
	if ofProcesses(path) { // before its links, of which some lead to no path
		return refused(errProcess)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if ofProcesses(real) {
		return refused(errProcess)
	}
	if dataDir == "" {
		return real, nil
	}
	private, err := os.Stat(dataDir)
	if err != nil {
		return refused(errors.New("cannot be told from the node's data folder: " + err.Error()))
	}
	// By the folders themselves rather than their names: another mount of the data
	// folder has another name.
	for at := real; ; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err != nil {
			return "", err
		} else if os.SameFile(info, private) {
			return refused(errDataFolder)
		}
		if at == filepath.Dir(at) {
			return real, nil
		}
	}
}

// ofProcesses reports whether a path is below /proc or /dev. In /dev/shm are files as
// elsewhere.
func ofProcesses(path string) bool {
	if strings.HasPrefix(path, "/dev/shm/") {
		return false
	}
	return strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/dev/")
}

// readNamed is Read for a path that a resource names.
func readNamed(path, dataDir string, limit int) ([]byte, error) {
	real, err := Resolve(path, dataDir)
	if err != nil {
		return nil, err
	}
	return Read(real, limit)
}
