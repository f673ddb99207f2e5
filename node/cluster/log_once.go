package cluster

import "log/slog"

// logOnce remembers the last error that was logged about each subject, so that
// a repeated error is logged once. It is not safe for concurrent use.
type logOnce map[string]string

// warn logs an error about a subject, unless it repeats the last one.
func (o logOnce) warn(log *slog.Logger, what, subject string, err error) {
	text := err.Error()
	if o[subject] == text {
		return
	}
	if len(o) >= maxPeers {
		clear(o)
	}
	o[subject] = text
	log.Warn(what, "subject", subject, "error", text)
}
