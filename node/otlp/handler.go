package otlp

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/attribute"
)

// Handler returns a handler that sends the node's own lines. It does not block. It is for
// being called beside the handler that writes them, as it wants none while no Telemetry
// has logs.
func (m *Manager) Handler() slog.Handler { return &handler{to: m} }

// handler is a slog.Handler with what WithAttrs and WithGroup have added.
type handler struct {
	to     *Manager
	attrs  []attribute.KeyValue
	prefix string // of keys: the groups, each with a dot
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return int64(level) >= h.to.level.Load()
}

// Handle implements slog.Handler.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	lines := h.to.lines.Load()
	if lines == nil {
		return nil
	}
	own := &ownLine{at: r.Time, level: r.Level, message: cut(r.Message, maxMessage), attrs: slices.Clip(h.attrs)}
	r.Attrs(func(a slog.Attr) bool {
		own.attrs = appendAttr(own.attrs, h.prefix, a)
		return len(own.attrs) < maxAttrs
	})
	for _, e := range *lines {
		if e.node && r.Level >= e.level {
			e.logs.put(line{own: own})
		}
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = slices.Clip(h.attrs)
	for _, a := range attrs {
		next.attrs = appendAttr(next.attrs, h.prefix, a)
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.prefix += name + "."
	return &next
}

// appendAttr adds an attribute, or those of a group, up to maxAttrs in all. Values are
// copied as text, as what they refer to may change.
func appendAttr(list []attribute.KeyValue, prefix string, a slog.Attr) []attribute.KeyValue {
	if len(list) >= maxAttrs {
		return list
	}
	key, v := cut(prefix+a.Key, maxValue), a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, inner := range v.Group() {
			list = appendAttr(list, prefix, inner)
		}
		return list
	case slog.KindBool:
		return append(list, attribute.Bool(key, v.Bool()))
	case slog.KindInt64:
		return append(list, attribute.Int64(key, v.Int64()))
	case slog.KindFloat64:
		return append(list, attribute.Float64(key, v.Float64()))
	case slog.KindDuration:
		return append(list, attribute.Float64(key, v.Duration().Seconds()))
	}
	if a.Equal(slog.Attr{}) {
		return list
	}
	return append(list, attribute.String(key, cut(v.String(), maxValue)))
}
