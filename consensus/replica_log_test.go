package consensus

import (
	"bytes"
	"log/slog"
	"os"
	"sync"
	"testing"
)

// journal keeps the last lines of what the servers of a world say, Raft's own
// words among it, for when their test fails.
type journal struct {
	mu    sync.Mutex
	lines [2000][]byte
	count int
}

// Write implements io.Writer: one line, as slog writes them.
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

// logOf is where a server of the world writes what it does: with REPLICA_LOG
// set, to stderr at once. Benchmarks write nothing.
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
