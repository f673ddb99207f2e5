package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"penstock/cmd/plaintext"
	"penstock/node/api"
)

// styledLine is a line of a text.
type styledLine struct {
	text  string
	style style
}

// drawTrace draws what one connection did, and what is decided about it.
func (m *Model) drawTrace(s *screen, from, to int) {
	l := m.level()
	lines := m.traceLines(s.w)
	l.top = max(0, min(l.top, len(lines)-(to-from)))
	for y := from; y < to && l.top+y-from < len(lines); y++ {
		line := lines[l.top+y-from]
		s.text(0, y, s.cut(line.text, s.w), line.style)
	}
}

// traceLines are the lines of a trace for a screen of this width.
func (m *Model) traceLines(width int) []styledLine {
	if m.trace == nil {
		return []styledLine{{"waiting for an answer", dim}}
	}
	var lines []styledLine
	add := func(st style, indent int, format string, args ...any) {
		for _, line := range wrap(fmt.Sprintf(format, args...), width, indent) {
			lines = append(lines, styledLine{line, st})
		}
	}
	t := m.trace
	m.addConnection(&t.Connection, add)
	add(bold, 0, "TIMELINE")
	var before time.Duration
	for _, e := range t.Events {
		add(plain, 29, "  %s  %9s  %s", e.At.In(m.zone).Format("15:04:05.000"), "+"+spanText(e.After-before),
			strings.TrimSpace(fmt.Sprintf("%-12s %s", plaintext.Line(e.Name), plaintext.Line(e.Text))))
		before = e.After
	}
	if len(t.Events) == 0 {
		add(dim, 0, "  nothing is known of it")
	}
	if t.Decision != nil {
		add(plain, 0, "")
		add(bold, 0, "DECISION, as it is made now about such a connection")
		for _, line := range strings.Split(strings.TrimRight(t.Decision.Text(), "\n"), "\n") {
			add(plain, 15, "  %s", line)
		}
	}
	if len(t.Logs) > 0 {
		add(plain, 0, "")
		add(bold, 0, "LOG")
	}
	for i := range t.Logs {
		e := &t.Logs[i]
		var attrs strings.Builder
		for _, a := range e.Attrs {
			fmt.Fprintf(&attrs, " %s=%s", plaintext.Line(a.Key), plaintext.Line(a.Value))
		}
		add(plain, 16, "  %s  %s %s%s", e.At.In(m.zone).Format("15:04:05.000"), plaintext.Line(e.Level), plaintext.Line(e.Message), attrs.String())
	}
	return lines
}

// addConnection adds the lines about the connection itself.
func (m *Model) addConnection(c *api.Connection, add func(style, int, string, ...any)) {
	add(bold, 2, "CONNECTION %d on %s, from %s", c.ID, plaintext.Untrusted(cmp.Or(c.Node, m.level().node)), plaintext.Untrusted(c.Client))
	add(plain, 2, "  listener %s, service %s, endpoint %s", plaintext.Line(c.Listener), plaintext.Line(cmp.Or(c.Service, "-")),
		plaintext.Line(cmp.Or(c.Endpoint, "-")))
	for _, line := range connectionDetail(c) {
		add(plain, 2, "  %s", line)
	}
	add(plain, 2, "  %s in, %s out, age %s, idle %s", plaintext.Bytes(float64(c.BytesIn)), plaintext.Bytes(float64(c.BytesOut)),
		plaintext.Age(c.Age), plaintext.Age(c.Idle))
	if c.Reason == "" {
		add(plain, 2, "  open: %s", plaintext.Line(c.Phase))
	} else {
		st := plain
		if c.Error != "" {
			st = bad
		}
		add(st, 2, "  ended at %s: %s", c.Ended.In(m.zone).Format(time.DateTime), plaintext.Line(c.Reason))
	}
	add(plain, 0, "")
}

// spanText formats a time between two events.
func spanText(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dus", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.1fms", d.Seconds()*1000)
	}
	return d.Round(10 * time.Millisecond).String()
}
