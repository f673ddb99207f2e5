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

// errDataDirInUse says that another process has locked the data folder: two nodes
// would overwrite each other's state.
var errDataDirInUse = errors.New("in use by another node")

// SocketName is the name of a node's own socket in its data folder.
const SocketName = "penstock.sock"

// maxSocketPath is the longest path that fits in sockaddr_un with its final zero.
const maxSocketPath = 107

// dataDir is a node's data folder, locked while the node runs.
type dataDir struct {
	path string
	lock *os.File
}

// lockName is the name of the lock file in the data folder.
const lockName = "lock"

// openDataDir creates the folder if it is missing, and locks it. With secrets it
// first removes access for everyone but the owner.
func openDataDir(path string, secrets bool, log *slog.Logger) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if secrets {
		if err := restrictAccess(path, log); err != nil {
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
			err = errDataDirInUse
		}
		return nil, fmt.Errorf("data folder %s: %w", path, err)
	}
	// The process ID is for people and scripts; only the lock counts.
	if err := lock.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(lock, os.Getpid())
	}
	return &dataDir{path, lock}, nil
}

// restrictAccess removes the permissions of group and others from the folder: it
// holds keys, and whoever can write to it can replace them. path may be a
// symbolic link. It returns an error if the node must not change the folder: if
// it belongs to another user, or holds files but no node's (/tmp and home folders
// are given by mistake).
func restrictAccess(path string, log *slog.Logger) error {
	// One descriptor for all calls, so that the folder that was checked is the
	// one that changes.
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
		return fmt.Errorf("other users have access (mode %04o), and it contains files that are not a node's: "+
			"give --data-dir a folder of its own", mode)
	}
	if err := dir.Chmod(0o700); err != nil {
		return fmt.Errorf("other users have access (mode %04o), and this node cannot change that: %w; "+
			"run chmod 700 as its owner, or give --data-dir a new folder inside it", mode, err)
	}
	log.Warn("removed other users' access to the data folder", "folder", path, "mode", fmt.Sprintf("%04o", mode), "now", "0700")
	return nil
}

// openLock opens or creates the lock file. It refuses a symbolic link, by which
// another user could choose the file that the process ID overwrites.
func openLock(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, fmt.Errorf("%s is a symbolic link, not a lock file: remove it", path)
	case err != nil:
		return nil, err
	}
	info, err := lock.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%s): remove it", path, info.Mode().Type())
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

// listen opens the node's socket, with access for its owner only. It replaces the
// socket file that a killed node left behind: holding the lock proves that no
// other node runs here. withClients is that of Config.
func (d *dataDir) listen(withClients bool) (net.Listener, error) {
	path := filepath.Join(d.path, SocketName)
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s: the path has %d bytes, the limit for a socket is %d: use a shorter --data-dir",
			path, len(path), maxSocketPath)
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
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return ownSocket{l.(*net.UnixListener), withClients}, nil
}

// ownSocket is the listener of the node's socket. It refuses the node's own process:
// an endpoint of a Service may lead to the socket by any path, and the clients of that
// Service would have all rights.
type ownSocket struct {
	*net.UnixListener

	withClients bool // of Config: the process is not refused
}

// Accept accepts a connection of another process.
func (s ownSocket) Accept() (net.Conn, error) {
	for {
		conn, err := s.AcceptUnix()
		if err != nil || s.withClients || !fromItself(conn) {
			return conn, err
		}
		conn.Close()
	}
}

// fromItself reports whether this process has made a connection to a unix socket, or
// whether that cannot be told.
func fromItself(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	var peer *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cerr != nil || err != nil || int(peer.Pid) == os.Getpid()
}

// close releases the lock. A nil dataDir is valid.
func (d *dataDir) close() {
	if d != nil {
		d.lock.Close()
	}
}
