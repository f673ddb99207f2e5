package realkafka

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Folders of killed runs are removed; locked ones stay.
func TestUnheldFoldersAreRemoved(t *testing.T) {
	root := t.TempDir()
	var held *dataFolder
	for _, name := range []string{"held", "left"} {
		path := filepath.Join(root, inMemory+name)
		if err := os.MkdirAll(filepath.Join(path, "data-0"), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "held" {
			var err error
			if held, err = hold(path); err != nil {
				t.Fatal(err)
			}
			if _, err := hold(path); !errors.Is(err, errHeld) {
				t.Errorf("held twice: %v", err)
			}
		}
	}
	other := filepath.Join(root, "else")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	sweep(root)
	for path, want := range map[string]error{held.path: nil, filepath.Join(root, inMemory+"left"): fs.ErrNotExist, other: nil} {
		if _, err := os.Stat(path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	held.remove()
	if _, err := os.Stat(held.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed, and yet %v", err)
	}
}
