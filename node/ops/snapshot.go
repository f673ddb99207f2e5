package ops

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"penstock/consensus/snapshot"
	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/routing/resource/codec"
)

// A snapshot is a file of package consensus with all resources. Their secrets are
// in the clear, so that another cluster, which has other keys, can restore it. It
// does not contain the identity of the cluster (nodes, tokens, keys).

// chunkSize is the size of the parts of a snapshot on the network, in bytes.
const chunkSize = 1 << 20

// saveSnapshot sends a snapshot of this node's resources. Unless the request is
// Stale, it first waits until they are current.
func (q *reader) saveSnapshot(ctx context.Context, r *api.SaveRequest, send func(*api.Chunk) error) error {
	if !r.Stale {
		if err := q.peers.ReadBarrier(ctx); err != nil {
			return err
		}
	}
	view, err := q.exported()
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(chunks(func(b []byte) error { return send(&api.Chunk{Data: b}) }), chunkSize)
	if err := snapshot.Write(w, view); err != nil {
		return err
	}
	return w.Flush()
}

// exported returns the resources in force on this node, with secrets in the clear.
func (q *reader) exported() (store.Snapshot, error) {
	set, _ := q.catalog.InForce()
	b := store.Batch{Note: store.Note{What: "snapshot"}}
	for o := range set.All("") {
		b.Ops = append(b.Ops, store.Op{Key: store.Key(o.Key), Value: codec.EncodeWithSecrets(o)})
	}
	view, _, err := store.Snapshot{}.Apply(1, &b, store.Limits{})
	return view, err
}

// chunks is an io.Writer that sends its data in parts of at most chunkSize.
type chunks func(b []byte) error

func (c chunks) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), chunkSize)
		if err := c(rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}

const (
	// maxUploads bounds the concurrent uploads of snapshots, maxUpload the bytes
	// of one.
	maxUploads = 2
	maxUpload  = 512 << 20
	// uploadIdle is the longest time between two parts.
	uploadIdle = time.Minute
)

// uploads holds the snapshots that are being uploaded to this node, in unlinked
// files.
type uploads struct {
	dir string

	mu   sync.Mutex
	open map[string]*upload
}

// upload is one snapshot. One request at a time uses it.
type upload struct {
	file *os.File
	size int64
	last time.Time
	busy bool
}

// acquire reserves the upload that a part belongs to; the first part begins one.
func (u *uploads) acquire(r *api.UploadRequest) (*upload, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.open[string(r.Upload)]
	if one == nil {
		switch {
		case len(r.Upload) != 16:
			return nil, api.Errorf(api.Invalid, "an upload name of %d bytes, want 16", len(r.Upload))
		case r.Offset != 0:
			return nil, api.Errorf(api.Unavailable,
				"the node that received the first parts no longer leads or has dropped them: send the file again")
		case len(u.open) >= maxUploads:
			return nil, api.Errorf(api.Busy, "%d snapshots are already being restored: try again later", maxUploads)
		}
		file, err := os.CreateTemp(u.dir, ".restore-*")
		if err != nil {
			return nil, err
		}
		if err := os.Remove(file.Name()); err != nil {
			file.Close()
			return nil, err
		}
		one = &upload{file: file}
		u.open[string(r.Upload)] = one
	}
	if one.busy || r.Offset != one.size {
		return nil, api.Errorf(api.Invalid, "a part at offset %d, want offset %d", r.Offset, one.size)
	}
	one.busy = true
	return one, nil
}

// release releases an upload, n bytes longer, until its next part.
func (u *uploads) release(one *upload, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one.size, one.last, one.busy = one.size+int64(n), time.Now(), false
}

// sweep drops uploads without a new part for uploadIdle: they hold disk space, and
// count towards maxUploads.
func (u *uploads) sweep(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, one := range u.open {
		if !one.busy && now.Sub(one.last) > uploadIdle {
			one.file.Close()
			delete(u.open, id)
		}
	}
}

// drop ends an upload and frees its disk space.
func (u *uploads) drop(name []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one := u.open[string(name)]; one != nil {
		one.file.Close()
		delete(u.open, string(name))
	}
}

// restoreSnapshot takes one part of a snapshot. After the last part, it replaces
// the resources of the cluster by those of the snapshot, in one change.
func (c *changes) restoreSnapshot(ctx context.Context, r *api.UploadRequest) (*api.RestoreResult, error) {
	one, err := c.uploads.acquire(r)
	if err != nil {
		return nil, err
	}
	if one.size+int64(len(r.Data)) > maxUpload {
		c.uploads.drop(r.Upload)
		return nil, api.Errorf(api.TooLarge, "the snapshot has more than %d bytes", maxUpload)
	}
	_, err = one.file.WriteAt(r.Data, one.size)
	if err != nil || r.Last {
		defer c.uploads.drop(r.Upload)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot store the snapshot: %w", err)
	}
	if !r.Last {
		c.uploads.release(one, len(r.Data))
		return &api.RestoreResult{}, nil
	}
	whole := io.NewSectionReader(one.file, 0, one.size+int64(len(r.Data)))
	view, err := snapshot.Read(bufio.NewReaderSize(whole, chunkSize), store.Limits{})
	if err != nil {
		if errors.Is(err, store.ErrFormat) || errors.Is(err, store.ErrDamaged) {
			return nil, api.Errorf(api.Invalid, "cannot restore the snapshot: %v", err)
		}
		return nil, err
	}
	entries := slices.Collect(view.All())
	result, err := c.catalog.Replace(ctx, catalog.Replacement{
		Entries: entries, ID: store.ID(r.Upload), Note: note(ctx),
		Open: func(_, value []byte) ([]byte, error) { return value, nil },
	})
	if err != nil {
		return nil, explainTooLarge(err)
	}
	result.Reached, _ = c.awaitIndex(ctx, result.Index, api.Wait{}, nil)
	return result, nil
}

// explainTooLarge adds to the error of a restore that is too large what the limit applies
// to.
func explainTooLarge(err error) error {
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Code != api.TooLarge {
		return err
	}
	return api.Errorf(api.TooLarge, "a restore is a single change, and this one is too large (%s): nothing was changed; "+
		"first apply most of the resources from files (penstock apply -f), then restore: unchanged resources do not count", refusal.Message)
}
