package logs

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
)

const (
	// maxAnswer bounds the text of an answer, in bytes. The oldest lines are left out.
	maxAnswer = 4 << 20
	// entryOverhead is what an entry and each of its values take beside their text.
	entryOverhead, attrOverhead = 96, 32
)

// Check returns an error if the filter is one that no line could pass.
func Check(f *api.LogFilter) error {
	if _, err := parseLevel(f.Level); err != nil {
		return err
	}
	if f.Access && f.Own {
		return fmt.Errorf("access and own: each leaves out the other's lines: give one of them, or none for all lines")
	}
	return nil
}

func parseLevel(text string) (l slog.Level, err error) {
	switch text {
	case "", "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return l, fmt.Errorf("level %.20q: want debug, info, warn or error", text)
}

// numbered is a line that was selected.
type numbered struct {
	number  uint64
	payload []byte
}

// Read returns the last lines after a position that the filter selects, at most
// r.Limit and 4 MiB of text.
func (l *Logs) Read(r *api.LogsHereRequest) *api.LogsHere {
	answer := new(api.LogsHere)
	selected := ringsOf(&r.LogFilter)
	var copies [rings][]segment
	l.mu.Lock()
	after := r.After
	if after > l.position { // of an earlier start of the node, whose clock was ahead
		after = 0
	}
	answer.Position, answer.At = l.position, time.Now().UTC()
	for _, i := range selected {
		copies[i] = slices.Clone(l.rings[i].segments)
		if after > 0 {
			answer.Lost += l.rings[i].lost(after)
		}
	}
	l.mu.Unlock()
	m := newMatcher(r)
	limit := r.Limit
	if after > 0 {
		limit = math.MaxInt // those that are left out count as lost
	}
	var all []numbered
	for _, i := range selected {
		all = append(all, m.last(copies[i], after, limit)...)
	}
	slices.SortFunc(all, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	answer.Entries = l.newest(all, r.Limit)
	if after > 0 {
		answer.Lost += uint64(len(all) - len(answer.Entries)) //nolint:gosec // not negative
	}
	return answer
}

// newest returns the last lines, as many as an answer may have.
func (l *Logs) newest(all []numbered, limit int) []api.LogEntry {
	entries, size := []api.LogEntry{}, 0
	for _, one := range slices.Backward(all[max(0, len(all)-limit):]) {
		e := l.entry(one.payload)
		if size += sizeOf(&e); size > maxAnswer && len(entries) > 0 {
			break
		}
		entries = append(entries, e)
	}
	slices.Reverse(entries)
	return entries
}

// ringsOf returns the rings that may have lines for a filter.
func ringsOf(f *api.LogFilter) []Ring {
	switch {
	case f.Access:
		return []Ring{Failures, Access}
	case f.Own:
		return []Ring{Own, Warnings}
	}
	return []Ring{Own, Warnings, Failures, Access}
}

func sizeOf(e *api.LogEntry) int {
	n := entryOverhead + len(e.Message)
	for i := range e.Attrs {
		n += attrOverhead + len(e.Attrs[i].Key) + len(e.Attrs[i].Value)
	}
	return n
}

// matcher selects lines.
type matcher struct {
	level slog.Level
	since int64 // nanoseconds since 1970
	text  []byte
	// values are the text that a line must have for a key.
	values     []wanted
	connection uint64

	buffer []byte
}

type wanted struct {
	key  uint64 // number of it
	text string
}

func newMatcher(r *api.LogsHereRequest) *matcher {
	m := &matcher{text: []byte(strings.ToLower(r.Text)), connection: r.Connection}
	m.level, _ = parseLevel(r.Level)
	if !r.Since.IsZero() {
		m.since = r.Since.UnixNano()
	}
	for _, w := range []struct{ key, text string }{{"service", r.Service}, {"listener", r.Listener}, {"reason", r.Reason}} {
		if w.text != "" {
			m.values = append(m.values, wanted{numbers[w.key], w.text})
		}
	}
	return m
}

// last returns the last lines of segments after a position that match.
func (m *matcher) last(all []segment, after uint64, limit int) (found []numbered) {
	for _, s := range slices.Backward(all) {
		if s.last <= after || len(found) >= limit {
			break
		}
		if m.since > 0 && s.latest.UnixNano() < m.since {
			continue
		}
		var here []numbered
		s.each(after, func(number uint64, payload []byte) {
			if m.matches(payload) {
				here = append(here, numbered{number, payload})
			}
		})
		found = append(here, found...)
	}
	if len(found) > limit {
		found = found[len(found)-limit:]
	}
	return found
}

var keyID, keyConnection = numbers["id"], numbers["connection"]

// matches reports whether a line is selected.
func (m *matcher) matches(payload []byte) bool {
	r := reader{payload}
	if at := r.varint(); m.since > 0 && at < m.since {
		return false
	}
	if slog.Level(r.varint()) < m.level {
		return false
	}
	number, message := r.known()
	if len(m.values) == 0 && m.connection == 0 && len(m.text) == 0 {
		return true
	}
	// Lines of the access log have known messages; others call other things id.
	access := number > 0
	if access && len(m.text) > 0 {
		message = []byte(known[number])
	}
	missing, connection, text := len(m.values), m.connection == 0, len(m.text) == 0 || m.contains(message)
	for len(r.rest) > 0 {
		key, _ := r.known()
		v := r.value()
		for _, w := range m.values {
			if w.key == key && v.kind == kindText && string(v.text) == w.text {
				missing--
			}
		}
		if (key == keyConnection || key == keyID && access) && (v.kind == kindUint || v.kind == kindInt) && v.n == m.connection {
			connection = true
		}
		if !text {
			m.buffer = v.appendText(m.buffer[:0])
			text = m.contains(m.buffer)
		}
	}
	return missing <= 0 && connection && text
}

// contains reports whether text has what is looked for, in any case.
func (m *matcher) contains(text []byte) bool { return bytes.Contains(bytes.ToLower(text), m.text) }
