package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"penstock/node/api"
	"penstock/node/rpc"
)

// snapshotServer serves a snapshot in chunks, followed by the error fail, and
// records uploads.
type snapshotServer struct {
	chunks [][]byte
	fail   error
	parts  []api.UploadRequest
	// stalled, if set, is closed after the chunks: the rest never comes.
	stalled chan struct{}
}

func (k *snapshotServer) methods(s *rpc.Server) {
	rpc.HandleStream(s, api.MethodSave, api.RoleAdmin, func(
		ctx context.Context,
		_ *api.SaveRequest,
		send func(*api.Chunk) error,
	) error {
		for _, c := range k.chunks {
			if err := send(&api.Chunk{Data: c}); err != nil {
				return err
			}
		}
		if k.stalled != nil {
			close(k.stalled)
			<-ctx.Done()
		}
		return k.fail
	})
	rpc.Handle(s, api.MethodRestore, api.RoleAdmin, func(_ context.Context, r *api.UploadRequest) (*api.RestoreResult, error) {
		part := *r
		part.Data = bytes.Clone(r.Data)
		k.parts = append(k.parts, part)
		if k.fail != nil {
			return nil, k.fail
		}
		return &api.RestoreResult{Index: 40, Resources: 3, Deleted: 1, Reached: api.Reached{Nodes: 1}}, nil
	})
}

// What has come of a snapshot before an interruption is not kept as if it were whole.
func TestAnInterruptedSnapshotIsNotSaved(t *testing.T) {
	k := &snapshotServer{chunks: [][]byte{[]byte("abc")}, stalled: make(chan struct{})}
	serveAdmin(t, k.methods)
	dir := t.TempDir()
	go func() {
		<-k.stalled
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	penstock("snapshot", "save", filepath.Join(dir, "x.snap")).want(t, 1, "", "interrupted; nothing was saved")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestSnapshotSaveIsAtomic(t *testing.T) {
	k := &snapshotServer{chunks: [][]byte{[]byte("abc"), []byte("def")}}
	serveAdmin(t, k.methods)
	dir := t.TempDir()
	file := filepath.Join(dir, "x.snap")
	names := func() (all []string) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}

	k.fail = api.Errorf(api.Internal, "the disk of the node is broken")
	penstock("snapshot", "save", file).want(t, 1, "", "the disk of the node is broken")
	if len(names()) != 0 {
		t.Fatalf("a snapshot that broke off left %q", names())
	}

	k.fail = nil
	penstock("snapshot", "save", file).want(t, 0, file+" saved: 6 bytes\n", "")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if data, _ := os.ReadFile(file); string(data) != "abcdef" || len(names()) != 1 {
		t.Errorf("saved %q, in the folder are %q", data, names())
	}

	k.chunks = [][]byte{[]byte("new")}
	penstock("snapshot", "save", file).want(t, 1, "", "already exists; --force overwrites it")
	penstock("snapshot", "save", file, "--force").want(t, 0, "", "")
	if data, _ := os.ReadFile(file); string(data) != "new" || len(names()) != 1 {
		t.Errorf("saved %q, in the folder are %q", data, names())
	}

	k.chunks = nil
	penstock("snapshot", "save", file, "--force").want(t, 1, "", "the node sent an empty snapshot")
	if data, _ := os.ReadFile(file); string(data) != "new" {
		t.Errorf("an empty snapshot replaced the file: %q", data)
	}
}

func TestRestoreUploadsPartsInOrder(t *testing.T) {
	k := new(snapshotServer)
	serveAdmin(t, k.methods)
	dir := t.TempDir()
	for _, size := range []int{1, uploadPartSize, 2*uploadPartSize + 5} {
		file := filepath.Join(dir, fmt.Sprint(size))
		content := []byte(strings.Repeat("penstock", size/8+1))[:size]
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		k.parts = nil
		penstock("snapshot", "restore", file, "--yes").want(t, 0, file+" restored as index 40: 3 resources, 1 deleted\n", "")
		var got []byte
		for i, p := range k.parts {
			if p.Offset != int64(len(got)) || len(p.Upload) != 16 || !bytes.Equal(p.Upload, k.parts[0].Upload) || p.Last != (i == len(k.parts)-1) {
				t.Errorf("%d bytes: part %d of %d is at %d, of upload %x, last: %v", size, i, len(k.parts), p.Offset, p.Upload, p.Last)
			}
			got = append(got, p.Data...)
		}
		if !bytes.Equal(got, content) {
			t.Errorf("%d bytes came as %d", size, len(got))
		}
	}

	k.parts, k.fail = nil, api.Errorf(api.Invalid, "a snapshot of format 9, this build knows 1")
	penstock("snapshot", "restore", filepath.Join(dir, fmt.Sprint(2*uploadPartSize+5)), "--yes").want(t, 1, "",
		"a snapshot of format 9, this build knows 1")
	if len(k.parts) != 1 {
		t.Errorf("%d parts were sent after a refusal", len(k.parts)-1)
	}
}
