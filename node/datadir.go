package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
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

// lockName is the name of the file that a running node has locked.
const lockName = "lock"

// openDataDir makes the folder where it is missing, and locks it. One that is
// to hold secrets is closed to everybody but its owner first.
func openDataDir(path string, secrets bool, log *slog.Logger) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if secrets {
		if err := closeToOthers(path, log); err != nil {
			return nil, fmt.Errorf("data folder %s: %w", path, err)
		}
	}
	lock, err := openLock(filepath.Join(path, lockName))
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

// closeToOthers takes the permissions of group and others off the folder: it
// holds keys, and whoever may write in it can put others in their place. The
// folder itself may be reached by a symbolic link. It is refused where the node
// must not change it: it belongs to another user, or it is no node's (/tmp and
// home folders are given by mistake).
func closeToOthers(path string, log *slog.Logger) error {
	// Through one descriptor, so that what is looked at is what is changed.
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	if mode&0o077 == 0 {
		return nil
	}
	if names, err := dir.Readdirnames(-1); err != nil {
		return err
	} else if len(names) > 0 && !slices.Contains(names, lockName) {
		return fmt.Errorf("other users may use it (mode %04o), and it holds files that are not a node's: give --data-dir a folder of its own", mode)
	}
	if err := dir.Chmod(0o700); err != nil {
		return fmt.Errorf("other users may use it (mode %04o), and this node may not change that: %w; "+
			"run chmod 700 as its owner, or give --data-dir a new folder inside it", mode, err)
	}
	log.Warn("the data folder was open to other users, and is not any more", "folder", path, "mode", fmt.Sprintf("%04o", mode), "now", "0700")
	return nil
}

// openLock opens the file of the lock. A link is not followed: it would lead
// the process's number into a file of somebody's choice.
func openLock(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, fmt.Errorf("%s is a symbolic link, and no node made it: remove it", path)
	case err != nil:
		return nil, err
	}
	info, err := lock.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%s), and no node made it: remove it", path, info.Mode().Type())
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = lock.Chmod(0o600)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
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
