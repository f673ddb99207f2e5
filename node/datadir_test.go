package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A data folder with secrets is closed to other users, or refused if it is not a
// node's folder.
func TestDataFolderIsClosedToOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		prepare func(dir string) error // makes the folder for openDataDir
		mode    os.FileMode            // mode of the folder afterwards
		refused string
		line    string
	}{
		{"a new one", func(string) error { return nil }, 0o700, "", ""},
		{"an empty one of others too", func(dir string) error { return os.Mkdir(dir, 0o755) }, 0o700, "", "mode=0755 now=0700"},
		{"a node's that others may write", func(dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, lockName), []byte("1\n"), 0o666); err != nil {
				return err
			}
			return os.Chmod(dir, 0o770)
		}, 0o700, "", "mode=0770 now=0700"},
		{"by a link", func(dir string) error {
			if err := os.Mkdir(dir+"-real", 0o750); err != nil {
				return err
			}
			return os.Symlink(dir+"-real", dir)
		}, 0o700, "", "mode=0750"},
		{"one with other files", func(dir string) error {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "letters"), nil, 0o600)
		}, 0o755, "give --data-dir a folder of its own", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, log := filepath.Join(t.TempDir(), "d"), &logText{}
			if err := c.prepare(dir); err != nil {
				t.Fatal(err)
			}
			d, err := openDataDir(dir, true, slog.New(slog.NewTextHandler(log, nil)))
			d.close()
			if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("%v, want %q", err, c.refused)
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != c.mode {
				t.Errorf("%v, %v; want mode %v", info.Mode(), err, c.mode)
			}
			if c.line != "" && !log.has("data folder", c.line) {
				t.Errorf("no line with %q", c.line)
			}
		})
	}
}

// A link or pipe in the place of the lock file is not followed, written to or
// waited for.
func TestLockIsARegularFile(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path, target string) error{
		"link": func(path, target string) error { return os.Symlink(target, path) },
		"pipe": func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		dir := t.TempDir()
		target := filepath.Join(t.TempDir(), "target")
		if err := os.WriteFile(target, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := put(filepath.Join(dir, lockName), target); err != nil {
			t.Fatal(err)
		}
		d, err := openDataDir(dir, true, slog.New(slog.DiscardHandler))
		if err == nil {
			d.close()
			t.Errorf("a %s was taken for the lock", name)
		} else if !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(target); err != nil || string(b) != "mine" {
			t.Errorf("%s: the target holds %q, %v", name, b, err)
		}
	}
}
