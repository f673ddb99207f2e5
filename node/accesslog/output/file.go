package output

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"penstock/node/accesslog"
)

// file writes to a file that is rotated at a size. Older ones are kept beside it, with the
// time in their name.
type file struct {
	rotated *lumberjack.Logger
	lines   accesslog.Output
	reopen  atomic.Bool
	checked time.Time   // when it was last compared with the path
	open    os.FileInfo // of what the path named when the file was last opened; nil: unknown
}

// checkInterval is how often the file is compared with its path.
const checkInterval = time.Second

// newFile opens a file at this path, so that a folder that is missing or that may not be
// written is found at once.
func newFile(path string, megabytes, keep int) (*file, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the operator chooses it
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, err
	}
	r := &lumberjack.Logger{Filename: filepath.Clean(path), MaxSize: megabytes, MaxBackups: keep}
	return &file{rotated: r, lines: accesslog.To(r)}, nil
}

// Write implements accesslog.Output.
func (f *file) Write(ctx context.Context, lines []accesslog.Line) (int, error) {
	if now := time.Now(); f.reopen.Swap(false) || now.Sub(f.checked) >= checkInterval {
		f.checked = now
		f.follow()
	}
	return f.lines.Write(ctx, lines)
}

// follow closes the file if its path names another one by now, or none: it was moved or
// removed. The next line opens what is there.
func (f *file) follow() {
	info, err := os.Stat(f.rotated.Filename)
	if err != nil || f.open == nil || !os.SameFile(info, f.open) {
		_ = f.rotated.Close()
	}
	f.open = info
	if err != nil {
		f.open = nil
	}
}

// Reopen has the next line open the file anew.
func (f *file) Reopen() { f.reopen.Store(true) }

// Close implements accesslog.Output.
func (f *file) Close() error { return f.rotated.Close() }
