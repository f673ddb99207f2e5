package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeNew writes a file that only its owner may read. It writes to a temporary file
// beside name and renames that, so that name is complete from the start. It replaces an
// existing file only with force.
func writeNew(name string, force bool, write func(*os.File) error) (err error) {
	exists := fmt.Errorf("%s already exists; --force overwrites it", name)
	if _, err := os.Lstat(name); err == nil && !force {
		return exists
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // fails after the rename
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if force {
		err = os.Rename(f.Name(), name)
	} else if err = os.Link(f.Name(), name); errors.Is(err, os.ErrExist) { // unlike Rename, Link never replaces a file
		err = exists
	}
	if err != nil {
		return err
	}
	return syncFolder(filepath.Dir(name))
}

func syncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
