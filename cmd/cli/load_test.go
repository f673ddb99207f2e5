package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/node/kinds"
)

const loadedService = "kind: Service\nname: NAME\nspec:\n  endpoints: [{address: \"127.0.0.1:1\"}]\n"

// writeFiles writes files below a folder; the content "-> X" creates a symbolic
// link to X.
func writeFiles(t *testing.T, dir string, content map[string]string) {
	t.Helper()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(to, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func service(name string) string { return strings.Replace(loadedService, "NAME", name, 1) }

// Kubernetes mounts a ConfigMap as links into a hidden folder, and deployments
// link to the folder of a release.
func TestLoadFollowsMountedFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"map/..2026_11_22/a.yaml": service("a"), "map/..data": "-> ..2026_11_22", "map/a.yaml": "-> ..data/a.yaml",
		"map/.a.yaml.swp.yaml": "half a fi", "map/more/b.yaml": service("b"),
		"current": "-> map",
		"bad/sub": "-> ../map", "bad/c.yaml": service("c"),
	})
	for _, name := range []string{"map", "current"} {
		l, err := load([]string{filepath.Join(dir, name)}, nil, kinds.All())
		if err != nil || len(l.faults) > 0 || len(l.objects) != 2 {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	// A link that is not followed must not be skipped silently: a sync would
	// delete its resources.
	if _, err := load([]string{filepath.Join(dir, "bad")}, nil, kinds.All()); err == nil ||
		!strings.Contains(err.Error(), "sub: is a link to a folder") {
		t.Errorf("a link to a folder: %v", err)
	}
}

// An empty file may be half-written: a sync would delete its resources.
func TestSyncRefusesEmptyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"a.yaml": service("a"), "b.yaml": " \n", "c.yaml": "# none now\n"})
	if _, err := readObjects([]string{dir}, nil, os.Stderr, true, false); err == nil || !strings.Contains(err.Error(), "b.yaml: is empty") {
		t.Errorf("an empty file: %v", err)
	}
	writeFiles(t, dir, map[string]string{"b.yaml": service("b")})
	if objects, err := readObjects([]string{dir}, nil, os.Stderr, true, false); err != nil || len(objects) != 2 {
		t.Errorf("%v, %v", objects, err)
	}
}

// A mixture of old and new files would make a sync delete resources that are in
// both sets.
func TestChangingFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"1/a.yaml": service("a"), "2/a.yaml": service("a"), "now": "-> 1"})
	paths := []string{filepath.Join(dir, "now")}
	links := 0
	for changes, want := range []int{1, 2, 3} {
		reads := 0
		_, err := readConsistent(paths, func() (int, error) {
			if reads++; reads <= changes {
				next := filepath.Join(dir, "next")
				links++
				if err := os.Symlink([]string{"1", "2"}[links%2], next); err != nil {
					t.Fatal(err)
				}
				return 0, os.Rename(next, paths[0])
			}
			return 0, nil
		})
		if err != nil || reads != want {
			t.Errorf("after %d changes: %d reads, %v", changes, reads, err)
		}
	}
	size := 0
	if _, err := readConsistent(paths, func() (int, error) {
		size++
		return 0, os.WriteFile(filepath.Join(dir, "now/a.yaml"), make([]byte, size), 0o600)
	}); err == nil || !strings.Contains(err.Error(), "kept changing while") {
		t.Errorf("files that never rest: %v", err)
	}
}
