package files_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"penstock/node/files"
)

// A path that is not a regular file is refused with its kind, without blocking.
func TestReadRefusesIrregularFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe.yaml"), filepath.Join(dir, "socket.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.yaml")
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]string{
		pipe: "is a named pipe", link: "is a named pipe", socket: "is a socket or a device",
		dir: "is a folder", "/dev/zero": "is a device", "/dev/null": "is a device",
	} {
		_, err := files.Read(path, 10)
		if !errors.Is(err, files.ErrKind) || !strings.Contains(err.Error(), path+": "+want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// A path that a resource names leads neither into the node's data folder, by whatever
// links, nor to what a process has open or in its environment.
func TestResourcesNameNoPrivateFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "node.key"), []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), []byte("key"), 0o600),
		os.Symlink(filepath.Join(data, "node.key"), filepath.Join(dir, "file.key")), os.Symlink(data, filepath.Join(dir, "folder")),
		os.Symlink("/proc/self/environ", filepath.Join(dir, "environ"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		filepath.Join(data, "node.key"), filepath.Join(dir, "file.key"), filepath.Join(dir, "folder", "node.key"), data,
		dir + "/x/../data/node.key", "/proc/self/root" + filepath.Join(data, "node.key"),
		"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/self/environ", filepath.Join(dir, "environ"),
	} {
		for _, folder := range []string{data, filepath.Join(dir, "folder")} { // --data-dir may be a link
			f := files.FollowNamed([]string{path}, folder, 100, func([][]byte) error { return nil })
			if _, err := f.Check(false); !errors.Is(err, files.ErrPrivate) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s beside %s: %v", path, folder, err)
			}
		}
	}
	got := ""
	f := files.FollowNamed([]string{filepath.Join(dir, "tls.key")}, data, 100, func(c [][]byte) error { got = string(c[0]); return nil })
	if _, err := f.Check(false); err != nil || got != "key" {
		t.Errorf("a file beside the data folder: %q, %v", got, err)
	}
}

// At most limit+1 bytes are read, even of a huge sparse file.
func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	if data, err := files.Read(path, 10); err != nil || len(data) != 11 {
		t.Fatalf("%d bytes, %v; want 11", len(data), err)
	}
}

// A pipe from a shell's <(command) is read.
func TestReadAcceptsInheritedDescriptors(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	data, err := files.Read(filepath.Join("/dev/fd", strconv.Itoa(int(r.Fd()))), 10)
	if err != nil || string(data) != "text" {
		t.Fatalf("%q, %v", data, err)
	}
}
