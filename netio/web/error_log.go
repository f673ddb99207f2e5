package web

import (
	"bytes"
	"io"
	"log"
	"log/slog"
)

// errorLog is where net/http says what clients get wrong.
func (s *Server) errorLog() *log.Logger {
	return slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug)
}

// ErrorLogWriter returns a writer for log.SetOutput of a process with Servers:
// net/http reports faults of endpoints to the standard logger only. It quotes
// what they sent, which may be secret; the writer leaves that out.
func ErrorLogWriter(to *slog.Logger) io.Writer { return errorLogWriter{to} }

type errorLogWriter struct{ to *slog.Logger }

// maxErrorLine bounds a line, in bytes.
const maxErrorLine = 512

// Write implements io.Writer, of one line.
func (m errorLogWriter) Write(p []byte) (int, error) {
	line, _, quotes := bytes.Cut(p, []byte{'"'})
	line = bytes.TrimSpace(line[:min(len(line), maxErrorLine)])
	if quotes {
		line = append(bytes.Clone(line), " [...]"...)
	}
	m.to.Debug(string(line))
	return len(p), nil
}
