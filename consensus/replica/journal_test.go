package replica

import (
	"bytes"
	"log/slog"
	"os"
	"sync"
	"testing"
)

// journal keeps the last log lines of a world's servers, including Raft's, for
// failed tests.
type journal struct {
	mu    sync.Mutex
	lines [2000][]byte
	count int
}

// Write implements io.Writer; slog calls it once per line.
func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines[j.count%len(j.lines)] = bytes.Clone(line)
	j.count++
	return len(line), nil
}

func (j *journal) all() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []byte
	for i := max(0, j.count-len(j.lines)); i < j.count; i++ {
		all = append(all, j.lines[i%len(j.lines)]...)
	}
	return all
}

// logOf returns a server's logger: it writes to the journal, or with
// REPLICA_LOG set to stderr. Benchmarks discard logs.
func (w *world) logOf(id string) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	if os.Getenv("REPLICA_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, options)).With("server", id)
	}
	if _, ok := w.t.(*testing.T); !ok {
		return nil
	}
	return slog.New(slog.NewTextHandler(&w.journal, options)).With("server", id)
}
