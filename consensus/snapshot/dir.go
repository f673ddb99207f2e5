package snapshot

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"penstock/consensus/store"
)

// Dir is Raft's file snapshot store, extended in two ways: it removes
// unfinished files when a disk is full, and a reader can find out which
// snapshot it reads.
type Dir struct {
	*raft.FileSnapshotStore
	dir string
}

// Keep is how many snapshots are kept: the last one and fallbacks.
const Keep = 3

// OpenDir opens the directory "snapshots" in dir, and creates it if missing.
func OpenDir(dir string, log hclog.Logger) (*Dir, error) {
	path := filepath.Join(dir, "snapshots")
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, Keep, log)
	if err != nil {
		return nil, err
	}
	s := &Dir{FileSnapshotStore: files, dir: path}
	unfinished, err := filepath.Glob(filepath.Join(path, "*.tmp"))
	if err != nil {
		return nil, err
	}
	for _, u := range unfinished {
		if err := os.RemoveAll(u); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Newest reads the newest readable snapshot; base is nil if there is none at
// all.
func (s *Dir) Newest(l store.Limits, log *slog.Logger) (v store.Snapshot, base *raft.SnapshotMeta, err error) {
	all, err := s.List()
	if err != nil {
		return store.Snapshot{}, nil, err
	}
	var errs []error
	for _, meta := range all {
		v, err := s.read(meta.ID, l)
		if err == nil {
			return v.Skip(meta.Index), meta, nil
		}
		err = fmt.Errorf("snapshot %s: %w", meta.ID, err)
		if errors.Is(err, store.ErrFormat) || errors.Is(err, store.ErrTooLarge) {
			return store.Snapshot{}, nil, err
		}
		log.Warn("cannot read a snapshot; trying the one before it", "err", err)
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return store.Snapshot{}, nil, fmt.Errorf("%w: no snapshot is readable: %w", store.ErrDamaged, errors.Join(errs...))
	}
	return store.Snapshot{}, nil, nil
}

func (s *Dir) read(id string, l store.Limits) (store.Snapshot, error) {
	_, source, err := s.FileSnapshotStore.Open(id)
	if err != nil {
		return store.Snapshot{}, err
	}
	defer source.Close()
	return Read(source, l)
}

// CompactableIndex returns the index up to which the log may be truncated so
// that the last snapshot but one stays usable.
func (s *Dir) CompactableIndex() uint64 {
	all, err := s.List()
	if err != nil || len(all) < 2 {
		return 0
	}
	return all[1].Index
}

// File is a snapshot being read.
type File struct {
	io.ReadCloser
	Meta *raft.SnapshotMeta
}

// Open implements raft.SnapshotStore.
func (s *Dir) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, source, err := s.FileSnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	return meta, &File{source, meta}, nil
}

// MetaOf returns which snapshot Raft restores. Raft wraps the reader that
// Open returned.
func MetaOf(source io.Reader) (*raft.SnapshotMeta, error) {
	for {
		switch r := source.(type) {
		case *File:
			return r.Meta, nil
		case raft.ReadCloserWrapper:
			source = r.WrappedReadCloser()
		default:
			return nil, fmt.Errorf("the index of the snapshot to restore is unknown: unexpected reader %T", r)
		}
	}
}

// Create implements raft.SnapshotStore.
func (s *Dir) Create(
	version raft.SnapshotVersion,
	index, term uint64,
	c raft.Configuration,
	ci uint64,
	t raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, c, ci, t)
	if err != nil {
		return nil, err
	}
	return &cleanSink{SnapshotSink: sink, path: filepath.Join(s.dir, sink.ID()+".tmp")}, nil
}

// cleanSink removes its files when it fails.
type cleanSink struct {
	raft.SnapshotSink
	path string // of the unfinished snapshot
}

func (s *cleanSink) Close() error { return s.clean(s.SnapshotSink.Close()) }

func (s *cleanSink) Cancel() error { return s.clean(s.SnapshotSink.Cancel()) }

func (s *cleanSink) clean(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, os.RemoveAll(s.path))
}
