package realkafka

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// memory is the folder for broker data if it has room free bytes: the timing
	// of brokers must not depend on other writers to the disk.
	memory, room = "/dev/shm", 4 << 30
	inMemory     = "penstock-kafka-"
)

// dataFolder holds the data of a cluster's brokers. Its owner holds a file
// lock, which the kernel releases when the process ends: an unlocked folder is
// the leftover of a killed run.
type dataFolder struct {
	path string
	lock *os.File
}

// errHeld means that a folder is locked by another process or was removed.
var errHeld = errors.New("another holds the folder")

// newDataFolder creates a folder in memory if there is room, otherwise in dir.
// It first removes the folders of killed runs, which take up memory.
func newDataFolder(dir string) (*dataFolder, error) {
	sweep(memory)
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err == nil && int64(fs.Bavail)*fs.Bsize >= room {
		for range 3 { // a concurrent sweep may remove the new folder
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

// hold locks a folder that is not locked.
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
	if err != nil { // removed before it was locked
		lock.Close()
		return nil, err
	}
	return &dataFolder{path, lock}, nil
}

// remove removes the folder and releases the lock.
func (d *dataFolder) remove() {
	_ = os.RemoveAll(d.path) // leftovers are in memory or in the caller's folder
	d.lock.Close()
}

// sweep removes the folders that are not locked.
func sweep(root string) {
	left, _ := filepath.Glob(filepath.Join(root, inMemory+"*"))
	for _, path := range left {
		if d, err := hold(path); err == nil {
			d.remove()
		}
	}
}
