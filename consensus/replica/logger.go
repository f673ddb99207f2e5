package replica

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftLogger writes Raft's log to the node's log. Raft logs often, and for its
// developers: errors go to warn level, except those that only report an
// unreachable peer, and all else to debug level.
type raftLogger struct {
	log     *slog.Logger
	name    string
	args    []any // key, value, ...
	limiter *logLimiter
}

var _ hclog.Logger = (*raftLogger)(nil)

func newRaftLogger(l *slog.Logger) *raftLogger {
	return &raftLogger{log: l, name: "raft", limiter: &logLimiter{last: make(map[string]time.Time)}}
}

// logLimiter limits repeated errors to one per quiet.
type logLimiter struct {
	mu   sync.Mutex
	last map[string]time.Time
}

const (
	repeatInterval = 10 * time.Second
	maxLimited     = 128 // messages; they are constants in Raft's source
)

func (s *logLimiter) repeated(msg string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.last[msg]) < repeatInterval {
		return true
	}
	if len(s.last) < maxLimited {
		s.last[msg] = now
	}
	return false
}

// peerErrors lists errors that only report that a peer, or this server itself,
// is stopping or gone.
var peerErrors = map[string]bool{
	"failed to appendEntries to":                        true,
	"failed to heartbeat to":                            true,
	"failed to make requestVote RPC":                    true,
	"failed to pipeline appendEntries":                  true,
	"failed to start pipeline replication to":           true,
	"failed to install snapshot":                        true,
	"failed to send snapshot to":                        true,
	"peer has newer term, stopping replication":         true,
	"failed to decode incoming command":                 true,
	"failed to flush response":                          true,
	"failed to accept connection":                       true,
	"failed to take snapshot":                           true, // Raft retries; the store logs disk errors itself
	"target does not support pre-vote RPC, treating as": true,
}

// Log implements hclog.Logger.
func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	if level >= hclog.Error && !peerErrors[msg] && !l.limiter.repeated(msg) {
		to = slog.LevelWarn
	}
	ctx := context.Background()
	if !l.log.Enabled(ctx, to) {
		return
	}
	all := make([]any, 0, 2+len(l.args)+len(args))
	for i, a := range append(append(all, l.args...), args...) {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		} else if k, ok := a.(string); i%2 == 0 && ok && (k == slog.TimeKey || k == slog.LevelKey || k == slog.MessageKey) {
			a = "raft-" + k
		}
		all = append(all, a)
	}
	l.log.Log(ctx, to, l.name+": "+msg, all...)
}

// Trace implements hclog.Logger.
func (l *raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (l *raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (l *raftLogger) Info(msg string, args ...any) { l.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (l *raftLogger) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger.
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLogger) debugging() bool {
	return l.log.Enabled(context.Background(), slog.LevelDebug)
}

// IsTrace implements hclog.Logger.
func (l *raftLogger) IsTrace() bool { return false }

// IsDebug implements hclog.Logger.
func (l *raftLogger) IsDebug() bool { return l.debugging() }

// IsInfo implements hclog.Logger.
func (l *raftLogger) IsInfo() bool { return l.debugging() }

// IsWarn implements hclog.Logger.
func (l *raftLogger) IsWarn() bool { return l.debugging() }

// IsError implements hclog.Logger.
func (l *raftLogger) IsError() bool { return true }

// ImpliedArgs implements hclog.Logger.
func (l *raftLogger) ImpliedArgs() []any { return l.args }

// With implements hclog.Logger.
func (l *raftLogger) With(args ...any) hclog.Logger {
	return &raftLogger{log: l.log, name: l.name, args: append(l.args[:len(l.args):len(l.args)], args...), limiter: l.limiter}
}

// Name implements hclog.Logger.
func (l *raftLogger) Name() string { return l.name }

// Named implements hclog.Logger.
func (l *raftLogger) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

// ResetNamed implements hclog.Logger.
func (l *raftLogger) ResetNamed(name string) hclog.Logger {
	return &raftLogger{log: l.log, name: name, args: l.args, limiter: l.limiter}
}

// SetLevel implements hclog.Logger; the level is that of the node's log.
func (l *raftLogger) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (l *raftLogger) GetLevel() hclog.Level {
	if l.debugging() {
		return hclog.Debug
	}
	return hclog.Error
}

// StandardLogger implements hclog.Logger. Raft does not use it.
func (l *raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return log.New(io.Discard, "", 0)
}

// StandardWriter implements hclog.Logger. Raft does not use it.
func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return io.Discard }
