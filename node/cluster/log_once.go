package cluster

import "log/slog"

// logOnce remembers what was logged: the same trouble with the same node is worth
// one line, however often it is met. One goroutine uses it.
type logOnce map[string]string

// warn logs an error about a subject, unless that is what it said last.
func (o logOnce) warn(log *slog.Logger, what, subject string, err error) {
	text := err.Error()
	if o[subject] == text {
		return
	}
	if len(o) >= maxPeers {
		clear(o)
	}
	o[subject] = text
	log.Warn(what, "node", subject, "error", text)
}
