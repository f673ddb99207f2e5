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

// trouble are the words of memberlist's lines that an operator must know of.
// Everything else happens in every network and with every stranger.
var trouble = map[string]string{
	"over TCP but UDP probes failed": "gossip reaches a node over TCP and not over UDP: is UDP blocked?",
	"handler queue full":             "gossip comes faster than it is handled",
	"Error accepting TCP":            "gossip cannot accept streams",
	"Error reading UDP":              "gossip cannot read packets",
	"Decrypt packet failed":          "gossip packets of this cluster do not decrypt: do all nodes have the same keys?",
}

// troubleEvery is how often one kind of trouble is told.
const troubleEvery = time.Minute

// memberlistLog turns memberlist's lines into records: at debug, and what is
// trouble at warn, each kind at most once a minute.
type memberlistLog struct {
	log *slog.Logger

	mu   sync.Mutex
	told map[string]time.Time // by the key in trouble
}

func newMemberlistLog(l *slog.Logger) *log.Logger {
	return log.New(&memberlistLog{log: l, told: map[string]time.Time{}}, "", 0)
}

// Write takes one line.
func (m *memberlistLog) Write(b []byte) (int, error) {
	debug := m.log.Enabled(context.Background(), slog.LevelDebug)
	if !debug && !bytes.Contains(b, []byte("[ERR]")) && !bytes.Contains(b, []byte("[WARN]")) {
		return len(b), nil
	}
	line := strings.TrimSpace(string(b))
	if what := m.trouble(line); what != "" {
		m.log.Warn(what, "memberlist", line)
	} else if debug {
		m.log.Debug("gossip", "memberlist", line)
	}
	return len(b), nil
}

func (m *memberlistLog) trouble(line string) string {
	for words, what := range trouble {
		if !strings.Contains(line, words) {
			continue
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if time.Since(m.told[words]) < troubleEvery {
			return ""
		}
		m.told[words] = time.Now()
		return what
	}
	return ""
}
