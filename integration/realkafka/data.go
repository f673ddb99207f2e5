package realkafka

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// memory is where brokers have their data if it has that much room: their
	// time must not be that of whatever else writes to the disk.
	memory, room = "/dev/shm", 4 << 30
	inMemory     = "penstock-kafka-"
)

// dataFolder is where the brokers of a cluster have their data. Whoever made
// it holds a lock on it, which ends with the process at the latest: one that
// nobody holds is of a run that was killed, and of no use.
type dataFolder struct {
	path string
	lock *os.File
}

// errHeld says that another holds a folder, or that it is gone.
var errHeld = errors.New("another holds the folder")

// newDataFolder makes one in memory where there is room, else in dir. Those of
// runs that were killed are removed first: memory is what they take.
func newDataFolder(dir string) (*dataFolder, error) {
	sweep(memory)
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err == nil && int64(fs.Bavail)*fs.Bsize >= room {
		for range 3 { // a sweep of another may come between
			if made, err := os.MkdirTemp(memory, inMemory); err == nil {
				if d, err := hold(made); err == nil {
					return d, nil
				}
			}
		}
	}
	made, err := os.MkdirTemp(dir, "data-")
	if err != nil {
		return nil, err
	}
	return hold(made)
}

// hold takes a folder that nobody holds.
func hold(path string) (*dataFolder, error) {
	lock, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, errors.Join(errHeld, err)
	}
	mine, err := lock.Stat()
	if err == nil {
		var now os.FileInfo
		if now, err = os.Stat(path); err == nil && !os.SameFile(mine, now) {
			err = errHeld
		}
	}
	if err != nil { // removed before it was held
		lock.Close()
		return nil, err
	}
	return &dataFolder{path, lock}, nil
}

// remove removes the folder, and lets go of it then.
func (d *dataFolder) remove() {
	_ = os.RemoveAll(d.path) // what is left is in memory, or in the caller's folder
	d.lock.Close()
}

// sweep removes what nobody holds.
func sweep(root string) {
	left, _ := filepath.Glob(filepath.Join(root, inMemory+"*"))
	for _, path := range left {
		if d, err := hold(path); err == nil {
			d.remove()
		}
	}
}
