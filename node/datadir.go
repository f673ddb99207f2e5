package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// errDataDirTaken: two nodes would write over one another.
var errDataDirTaken = errors.New("another node uses it")

// SocketName is the name of a node's own socket in its data folder.
const SocketName = "penstock.sock"

// maxSocketPath is what fits in sockaddr_un with its closing zero.
const maxSocketPath = 107

// dataDir is a node's folder, locked for as long as the node lives.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir makes the folder where it is missing, and locks it.
func openDataDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errDataDirTaken
		}
		return nil, fmt.Errorf("data folder %s: %w", path, err)
	}
	// For people and scripts; the lock itself is what counts.
	if err := lock.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(lock, os.Getpid())
	}
	return &dataDir{path, lock}, nil
}

// listen opens the node's socket, for its owner alone. What a node left
// behind that ended at once is replaced: the lock says that it has ended.
func (d *dataDir) listen() (net.Listener, error) {
	path := filepath.Join(d.path, SocketName)
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s: the path has %d bytes, a socket's at most %d: take a shorter --data-dir", path, len(path), maxSocketPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		// On Linux the mode of the socket becomes that of its file, so there
		// is no moment at which others could connect.
		if cerr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); cerr != nil {
			return cerr
		}
		return err
	}}
	return config.Listen(context.Background(), "unix", path)
}

// close gives the folder up.
func (d *dataDir) close() {
	if d != nil {
		d.lock.Close()
	}
}
