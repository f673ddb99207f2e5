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

// ErrorLogWriter is for log.SetOutput of a process with Servers: what net/http finds
// wrong with endpoints, it says to the standard logger and to nobody else. It
// quotes what they have sent, which may be a secret; that is left out.
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
