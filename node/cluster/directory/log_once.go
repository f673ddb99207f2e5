package directory

import "log/slog"

// LogOnce remembers the last error that was logged about each subject, so that
// a repeated error is logged once. It is not safe for concurrent use.
type LogOnce map[string]string

// Warn logs an error about a subject, unless it repeats the last one.
func (o LogOnce) Warn(log *slog.Logger, what, subject string, err error) {
	text := err.Error()
	if o[subject] == text {
		return
	}
	if len(o) >= MaxPeers {
		clear(o)
	}
	o[subject] = text
	log.Warn(what, "subject", subject, "error", text)
}
