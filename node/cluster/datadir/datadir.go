// Package datadir has the files of the data folder that belong neither to the
// node's identity (package trust) nor to the log: the marks that keep a node from
// starting again, and how a file is replaced durably.
package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"penstock/node/trust"
)

// LeftFile says why the folder's node is no longer a member, and keeps the node
// from starting. Other folders have none.
const LeftFile = "left"

const (
	// RaftDir is the folder of the Raft log.
	RaftDir = "raft"
	// LogFile records that the log was begun. Before that there is none.
	LogFile = "log-begun"
)

// ErrNoLog means that the node had a log, and it is gone.
var ErrNoLog = errors.New("the log is gone")

// LostLogAdvice is for a node whose log is gone.
const LostLogAdvice = "it recorded this node's votes: remove the node from the cluster (penstock remove), " +
	"then join it as a new one with an empty data folder"

// CheckLogPresent refuses to begin a second log after the node has lost its
// first: it would vote without its earlier votes, and entries committed with
// those could be lost.
func CheckLogPresent(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, LogFile)); err != nil {
		return nil //nolint:nilerr // there was none, as far as is known
	}
	log := filepath.Join(dir, RaftDir, "raft.db")
	if info, err := os.Stat(log); errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return fmt.Errorf("%w: %s: %s", ErrNoLog, log, LostLogAdvice)
	}
	return nil
}

// MarkLogBegun records that the log was begun.
func MarkLogBegun(dir string) error {
	path := filepath.Join(dir, LogFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return WriteFile(path, []byte("The node's log is in "+RaftDir+". Without it the node must not start again.\n"))
}

// MarkLeft keeps the folder's node from starting again.
func MarkLeft(dir, why string) error {
	return WriteFile(filepath.Join(dir, LeftFile), []byte(why+"\n"))
}

// IsMarkedLeft reports whether the folder is marked as that of a former member.
func IsMarkedLeft(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, LeftFile))
	return err == nil
}

// RemoveLeftIdentity removes the identity from a folder that is marked as left:
// its keys open the cluster's secrets and are no longer needed. An unmarked
// folder keeps them, since its node would come back as another one.
func RemoveLeftIdentity(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, LeftFile)); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return trust.Forget(dir)
}

// WriteFile replaces a file atomically and durably. Only its owner can read it.
func WriteFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

// RemoveFile removes a file durably. A missing file is no error.
func RemoveFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
