package gossip

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// warnings maps parts of memberlist's log lines that an operator must see to
// the message logged. All other lines occur in every network and with every
// stray peer.
var warnings = map[string]string{
	"over TCP but UDP probes failed": "gossip reaches a node over TCP but not over UDP: is UDP blocked?",
	"handler queue full":             "gossip arrives faster than it is handled",
	"Error accepting TCP":            "gossip cannot accept streams",
	"Error reading UDP":              "gossip cannot read packets",
	"Decrypt packet failed":          "cannot decrypt gossip packets of this cluster: do all nodes have the same keys?",
}

// warningInterval is the minimum interval between messages of one kind.
const warningInterval = time.Minute

// memberlistLog writes memberlist's lines to slog: at debug, and those in
// warnings at warn, each kind at most once a minute.
type memberlistLog struct {
	log *slog.Logger

	mu         sync.Mutex
	lastWarned map[string]time.Time // by key of warnings
}

func newMemberlistLog(l *slog.Logger) *log.Logger {
	return log.New(&memberlistLog{log: l, lastWarned: map[string]time.Time{}}, "", 0)
}

// Write logs one line.
func (m *memberlistLog) Write(b []byte) (int, error) {
	debug := m.log.Enabled(context.Background(), slog.LevelDebug)
	if !debug && !bytes.Contains(b, []byte("[ERR]")) && !bytes.Contains(b, []byte("[WARN]")) {
		return len(b), nil
	}
	line := strings.TrimSpace(string(b))
	if what := m.warningFor(line); what != "" {
		m.log.Warn(what, "memberlist", line)
	} else if debug {
		m.log.Debug("gossip", "memberlist", line)
	}
	return len(b), nil
}

func (m *memberlistLog) warningFor(line string) string {
	for words, what := range warnings {
		if !strings.Contains(line, words) {
			continue
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if time.Since(m.lastWarned[words]) < warningInterval {
			return ""
		}
		m.lastWarned[words] = time.Now()
		return what
	}
	return ""
}
