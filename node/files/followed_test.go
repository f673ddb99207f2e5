package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// folder is a folder with a pair of followed files, which belong together if they have
// the same content.
type folder struct {
	t    *testing.T
	dir  string
	used string
	*Followed
}

func newFolder(t *testing.T) *folder {
	f := &folder{t: t, dir: t.TempDir()}
	f.Followed = Follow([]string{filepath.Join(f.dir, "a"), filepath.Join(f.dir, "b")}, 16, func(content [][]byte) error {
		if string(content[0]) != string(content[1]) {
			return errors.New("do not belong together")
		}
		f.used = string(content[0])
		return nil
	})
	return f
}

func (f *folder) write(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// age makes all files so old that their times tell of each later write.
func (f *folder) age() {
	f.t.Helper()
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"a", "b"} {
		if err := os.Chtimes(filepath.Join(f.dir, name), old, old); err != nil {
			f.t.Fatal(err)
		}
	}
}

// want fails unless a check gives this fault ("": none) and this content is in use.
func (f *folder) want(changed bool, fault, used string) {
	f.t.Helper()
	got, err := f.Check(false)
	if got != changed || (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
		f.t.Errorf("changed %v, %v; want %v, %q", got, err, changed, fault)
	}
	if f.used != used {
		f.t.Errorf("%q is in use, want %q", f.used, used)
	}
}

func TestFilesAreReadWhenTheyChange(t *testing.T) {
	f := newFolder(t)
	f.want(false, "no such file", "")
	f.write("a", "1")
	f.write("b", "1")
	f.want(true, "", "1")
	f.want(false, "", "1")
	f.write("a", "2") // half of a replacement
	f.want(false, "do not belong together", "1")
	f.want(false, "do not belong together", "1")
	f.write("b", "2")
	f.want(true, "", "2")
	f.write("b", "")
	f.want(false, "b: is empty", "2")
	f.write("b", strings.Repeat("x", 17))
	f.want(false, "b: is larger than", "2")
	f.write("b", "2")
	f.want(false, "", "2") // as before
	if err := os.Remove(filepath.Join(f.dir, "a")); err != nil {
		t.Fatal(err)
	}
	f.want(false, "a: no such file", "2")
	f.write("a", "2")
	f.want(false, "", "2")
	if err := os.Remove(filepath.Join(f.dir, "a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(f.dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.want(false, "is a folder", "2")
}

// A volume of Kubernetes is replaced by one rename of a symbolic link, and a file by
// another of the same size and time.
func TestReplacedFilesAreRead(t *testing.T) {
	f := newFolder(t)
	publish := func(version string) {
		t.Helper()
		dir := filepath.Join(f.dir, version)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Hour).Truncate(time.Hour)
		for _, name := range []string{"a", "b"} {
			f.write(filepath.Join(version, name), version)
			if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Symlink(version, filepath.Join(f.dir, "new")),
			os.Rename(filepath.Join(f.dir, "new"), filepath.Join(f.dir, "data"))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if err := os.Symlink(filepath.Join("data", name), filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	publish("1")
	f.want(true, "", "1")
	f.want(false, "", "1")
	publish("2")
	f.want(true, "", "2")
}

// Files are not read while nothing has changed, but for some time after a write, whose
// time a second write may share.
func TestUnchangedFilesAreNotRead(t *testing.T) {
	f := newFolder(t)
	f.write("a", "1")
	f.write("b", "1")
	f.age()
	f.want(true, "", "1")
	info, err := os.Stat(filepath.Join(f.dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		f.write(name, "2") // hidden by the old time
		if err := os.Chtimes(filepath.Join(f.dir, name), info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	f.want(false, "", "1")
	if changed, err := f.Check(true); !changed || err != nil || f.used != "2" {
		t.Errorf("forced: %v, %v, %q in use", changed, err, f.used)
	}
	just := time.Now().Add(time.Hour) // a time that is not long ago, however slow the machine is
	for _, content := range []string{"3", "4"} {
		for _, name := range []string{"a", "b"} {
			f.write(name, content)
			if err := os.Chtimes(filepath.Join(f.dir, name), just, just); err != nil {
				t.Fatal(err)
			}
		}
		f.want(true, "", content)
	}
}
