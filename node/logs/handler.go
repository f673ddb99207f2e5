package logs

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// handler keeps the lines of a slog.Logger and passes them on.
type handler struct {
	logs  *Logs
	next  slog.Handler
	attrs []slog.Attr // of WithAttrs, resolved, with the names of their groups
	group string      // of WithGroup: "a.b."
}

var _ slog.Handler = (*handler)(nil)

// Handler returns a handler that keeps each line of level info or above, and what next
// wants, and then gives next what it wants.
func (l *Logs) Handler(next slog.Handler) slog.Handler { return &handler{logs: l, next: next} }

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	s := h.logs.scratch.Get().(*scratch)
	s.attrs = append(s.attrs[:0], h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		s.attrs = flatten(s.attrs, h.group, a)
		return true
	})
	into := Own
	if r.Level >= slog.LevelWarn {
		into = Warnings
	}
	at := r.Time
	if at.IsZero() {
		at = time.Now()
	}
	h.logs.add(into, s, at, r.Level, r.Message)
	h.logs.scratch.Put(s)
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// flatten appends an attribute, and for a group each of its own.
func flatten(to []slog.Attr, group string, a slog.Attr) []slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() != slog.KindGroup {
		if a.Equal(slog.Attr{}) {
			return to
		}
		a.Key = group + a.Key
		return append(to, a)
	}
	if a.Key != "" {
		group += a.Key + "."
	}
	for _, one := range a.Value.Group() {
		to = flatten(to, group, one)
	}
	return to
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.next, with.attrs = h.next.WithAttrs(attrs), slices.Clone(h.attrs)
	for _, a := range attrs {
		with.attrs = flatten(with.attrs, h.group, a)
	}
	return &with
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	with.next, with.group = h.next.WithGroup(name), h.group+name+"."
	return &with
}
