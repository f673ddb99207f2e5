package top

import (
	"fmt"
	"strings"
	"time"

	"penstock/cmd/plaintext"
)

// The smallest terminal in which anything can be read.
const minWidth, minHeight = 20, 6

// roomForTotals is the height from which the totals have pictures.
const roomForTotals = 14

// draw draws the screen.
func (m *Model) draw() *screen {
	s := newScreen(m.size.w, m.size.h, m.glyphs)
	if s.w < minWidth || s.h < minHeight {
		s.text(0, 0, s.cut("terminal too small", s.w), bold)
		return s
	}
	y := m.drawHead(s)
	end := s.h - 1
	if m.help {
		m.drawHelp(s, y)
		s.text(0, end, s.cut("any key closes the help", s.w), dim)
		return s
	}
	m.drawFoot(s, end)
	if notice, st := m.notice(); notice != "" {
		end--
		s.text(0, end, s.cut(notice, s.w), st)
	}
	if m.level().view == viewTrace {
		m.drawTrace(s, y, end)
		return s
	}
	m.drawTable(s, y, end)
	return s
}

// drawTable draws the table, and below it what there is to say about the selected row.
func (m *Model) drawTable(s *screen, y, end int) {
	l := m.level()
	t := m.table()
	t.arrange(&l.place)
	t.settle(&l.place, max(end-y-1, 1))
	var detail []string
	if len(t.rows) > 0 {
		for _, line := range t.rows[l.at].detail {
			detail = append(detail, wrap(line, s.w-1, 2)...)
		}
	}
	if room := (end - y) / 3; len(detail) > room {
		detail = detail[:room]
	}
	end -= len(detail)
	for i, line := range detail {
		s.text(0, end+i, s.cut(line, s.w), dim)
	}
	t.draw(s, &l.place, y, end)
}

// drawHead draws the totals, the views and the way to what is shown. It returns the
// line below.
func (m *Model) drawHead(s *screen) int {
	x := s.text(0, 0, s.cut(m.totals(), s.w), bold)
	clock := ""
	if m.sample != nil {
		clock = m.sample.At.In(m.zone).Format(time.TimeOnly)
	}
	if x+len(clock) < s.w {
		s.right(s.w, 0, clock, plain)
	}
	y := 1
	if s.h >= roomForTotals {
		m.drawPictures(s, y)
		y++
	}
	x = 0
	for v, title := range rootViews {
		text, st := fmt.Sprintf(" %d %s ", v+1, title), plain
		if v == int(viewProblems) && m.problems != nil && len(m.problems.Problems) > 0 {
			text, st = fmt.Sprintf(" %d %s: %d ", v+1, title, len(m.problems.Problems)), warn
		}
		if view(v) == m.path[0].view {
			text, st = "["+text[1:len(text)-1]+"]", tab
		}
		if x+len(text) > s.w && view(v) != m.path[0].view {
			continue
		}
		x = s.text(x, y, text, st)
	}
	y++
	s.text(0, y, s.cut(m.where(), s.w), plain)
	return y + 1
}

// totals are the numbers of all nodes, or of the one whose numbers are shown.
func (m *Model) totals() string {
	of := "cluster"
	if m.node != "" {
		of = "node " + plaintext.Untrusted(m.node)
	}
	if m.sample == nil {
		return "penstock  " + of + "  waiting for numbers"
	}
	all := m.traffic(everything)
	answered := ""
	if len(m.sample.Nodes) > 0 {
		n := 0
		for i := range m.sample.Nodes {
			if m.sample.Nodes[i].Error == "" {
				n++
			}
		}
		answered = fmt.Sprintf("%d of %d nodes  ", n, len(m.sample.Nodes))
	}
	return fmt.Sprintf("penstock  %s  %s%d connections  %s/s in  %s/s out", of, answered, m.sample.Connections,
		plaintext.Bytes(all.InRate), plaintext.Bytes(all.OutRate))
}

// drawPictures draws the rates of everything in the last two minutes.
func (m *Model) drawPictures(s *screen, y int) {
	half := s.w / 2
	all := m.traffic(everything)
	for i, one := range []struct {
		title, now string
		fresh      bool
	}{
		{"bytes/s ", " " + plaintext.Bytes(all.InRate+all.OutRate), false},
		{"new/s ", " " + rateText(all.NewRate), true},
	} {
		x := i * half
		room := half - len(one.title) - len(one.now) - 2
		if room < 5 {
			continue
		}
		x = s.text(x, y, one.title, dim)
		x = s.text(x, y, spark(m.history.last(seriesKey{of: ofAll, fresh: one.fresh}, min(room, historyPoints)), s.bars), good)
		s.text(x, y, one.now, plain)
	}
}

// where tells how the rows on the screen were chosen.
func (m *Model) where() string {
	var titles []string
	for _, l := range m.path {
		titles = append(titles, l.title)
	}
	parts := []string{strings.Join(titles, m.glyphs.separator)}
	l := m.level()
	if l.view == viewConnections {
		parts = append(parts, m.connectionsText(l))
	}
	switch {
	case m.typing:
		parts = append(parts, "filter: "+l.filter+"_")
	case l.filter != "":
		parts = append(parts, "filter: "+l.filter)
	}
	if m.paused {
		parts = append(parts, "PAUSED")
	}
	return strings.Join(parts, "   ")
}

// notice is what is wrong with what is on the screen; "": nothing.
func (m *Model) notice() (string, style) {
	to := plaintext.Untrusted(m.link.addr)
	if m.link.node != "" {
		to = plaintext.Untrusted(m.link.node) + " (" + to + ")"
	}
	switch {
	case m.link.wait > 0:
		return fmt.Sprintf("NO NODE ANSWERS: %s; trying again in %s", plaintext.Line(m.link.why), m.link.wait.Round(100*time.Millisecond)), bad
	case !m.link.up && m.link.why != "":
		return fmt.Sprintf("%s; asking %s", plaintext.Line(m.link.why), to), bad
	case !m.link.up && m.link.addr != "":
		return "connecting to " + to, warn
	}
	var parts []string
	if m.link.why != "" {
		parts = append(parts, plaintext.Line(m.link.why)+"; the numbers are from "+to)
	}
	for _, t := range m.level().topics() {
		if why := m.faults[t]; why != "" {
			parts = append(parts, string(t)+": "+plaintext.Line(why))
		}
	}
	if m.sample != nil {
		for _, n := range m.sample.Nodes {
			if n.Error != "" {
				parts = append(parts, plaintext.Untrusted(n.Name)+" is left out: "+plaintext.Line(n.Error))
			}
		}
	}
	return strings.Join(parts, "; "), warn
}

// topics are what the view shows, for the notice.
func (l *level) topics() []topic {
	switch l.view {
	case viewListeners, viewBrokers, viewKafka:
		return []topic{topicSample, topicStatus}
	case viewConnections:
		return []topic{topicConnections}
	case viewProblems:
		return []topic{topicProblems}
	case viewEndpoints:
		return []topic{topicEndpoints, topicFlow}
	case viewTrace:
		return []topic{topicTrace}
	}
	return []topic{topicSample}
}

func (m *Model) drawFoot(s *screen, y int) {
	hints := "Enter open  / filter  < > sort  r reverse  n node  p pause  ? help  q quit"
	switch l := m.level(); {
	case m.typing:
		hints = "type to filter  Enter keep  Esc drop"
	case l.view == viewTrace:
		hints = "Esc back  Up Down scroll  p pause  ? help  q quit"
	case l.view == viewConnections:
		hints = "Enter decision  e open/ended/failed  / filter  < > sort  r reverse  Esc back  ? help"
	case len(m.path) > 1:
		hints = "Enter open  c connections  / filter  < > sort  r reverse  Esc back  ? help  q quit"
	}
	s.text(0, y, s.cut(hints, s.w), dim)
}

func (m *Model) drawHelp(s *screen, y int) {
	for i, line := range keysHelp {
		if y+i < s.h-1 {
			s.text(1, y+i, s.cut(fmt.Sprintf("%-12s %s", line[0], line[1]), s.w-1), plain)
		}
	}
}
