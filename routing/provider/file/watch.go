package file

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// maxLinks bounds the symlinks on the way to the path, as the kernel does.
const maxLinks = 40

// watch watches the folders in which the path's meaning can change.
type watch struct {
	*Source
	watcher  *fsnotify.Watcher // nil: inotify is not available
	events   chan fsnotify.Event
	failures chan error
	trail    trail
	watched  map[string]bool
	warned   bool // that changes are polled
}

func newWatch(s *Source) *watch { return &watch{Source: s, watched: map[string]bool{}} }

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
}

// update makes the watched folders those that matter now. It tries again what
// failed before.
func (w *watch) update() {
	if w.watcher == nil {
		watcher, err := w.newWatcher()
		if err != nil {
			w.warn(err)
			return
		}
		w.watcher, w.events, w.failures = watcher, watcher.Events, watcher.Errors
	}
	ok := true
	// What changes between finding and watching a folder is in the next trail.
	for range maxLinks {
		w.trail = follow(w.cfg.Path)
		for folder := range w.trail.folders {
			// Watching a folder again costs nothing; if another has its name by now,
			// that is watched.
			err := w.watcher.Add(folder)
			if err != nil && !isMissing(err) {
				w.warn(err)
				ok = false
			}
			w.watched[folder] = err == nil
		}
		if maps.Equal(w.trail.folders, follow(w.cfg.Path).folders) {
			break
		}
	}
	for folder, is := range w.watched {
		if !w.trail.folders[folder] {
			if is {
				_ = w.watcher.Remove(folder) // it may be gone
			}
			delete(w.watched, folder)
		}
	}
	if ok {
		w.warned = false
	}
}

// warn says once that changes are polled.
func (w *watch) warn(err error) {
	if !w.warned {
		w.cfg.Log.Warn("inotify is not available; changes of endpoints' files are seen at the next poll",
			"path", w.cfg.Path, "interval", w.cfg.PollInterval, "error", err)
	}
	w.warned = true
}

// concerns reports whether an event can change what the path leads to.
func (w *watch) concerns(e fsnotify.Event) bool {
	name := filepath.Clean(e.Name) // fsnotify writes //x for /x
	return w.trail.names[name] || w.trail.folders[name] || filepath.Dir(name) == w.trail.folder
}

// settled waits until nothing has changed for a while. It returns false if ctx
// ended before.
func (w *watch) settled(ctx context.Context) bool {
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	latest := time.NewTimer(maxSettle)
	defer latest.Stop()
	for {
		select {
		case e := <-w.events:
			if w.concerns(e) {
				quiet.Reset(settle)
			}
		case <-quiet.C:
			return true
		case <-latest.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// trail is what decides where a path leads.
type trail struct {
	// folders have an entry that can change that: a symlink on the way, the first
	// one that is missing, the end.
	folders map[string]bool
	names   map[string]bool // all entries on the way
	folder  string          // the end, if it is a folder
}

// follow returns the trail of an absolute path, with its symlinks resolved as
// the kernel does.
func follow(path string) trail {
	t := trail{folders: map[string]bool{}, names: map[string]bool{}}
	at := "/"
	links := 0
	for rest := parts(path); len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		t.names[next] = true
		target, err := os.Readlink(next)
		switch {
		case err == nil:
			t.folders[at] = true
			if links++; links > maxLinks {
				return t
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(parts(target), rest[1:]...)
		case isMissing(err):
			t.folders[at] = true
			return t
		default: // no symlink
			at, rest = next, rest[1:]
		}
	}
	t.folders[filepath.Dir(at)] = true
	if info, err := os.Stat(at); err == nil && info.IsDir() {
		t.folders[at], t.folder = true, at
	}
	return t
}

func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// parts returns the names in a path. It keeps "..", which is relative to where a
// symlink leads.
func parts(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}
