package top

import "strings"

// A style is what a cell means. The terminal chooses how it looks; nothing is said by
// colour alone.
type style byte

// The styles.
const (
	plain style = iota
	bold
	dim
	selected // the row that keys act on; it also starts with a mark
	tab      // the view that is shown; it is also in brackets
	good
	warn
	bad
)

// styleLetters are the styles in golden screens.
const styleLetters = ".bdStgwx"

// Glyphs are the characters of a screen beyond printable ASCII.
type glyphs struct {
	bars      []rune // from nothing to full
	up, down  rune   // of a sort order
	ellipsis  rune   // text continues
	selection rune   // the mark of the selected row
	separator string // between levels of a path
}

var unicodeGlyphs = glyphs{[]rune(" ▁▂▃▄▅▆▇█"), '▲', '▼', '…', '▸', " › "}

var asciiGlyphs = glyphs{[]rune(" .:-=+*#@"), '^', 'v', '~', '>', " > "}

// cell is one character of a screen.
type cell struct {
	r     rune
	style style
}

// screen is a picture of a certain size. Writing beyond its edge is harmless.
type screen struct {
	w, h  int
	cells []cell
	glyphs
}

func newScreen(w, h int, g glyphs) *screen {
	s := &screen{w: w, h: h, cells: make([]cell, w*h), glyphs: g}
	for i := range s.cells {
		s.cells[i].r = ' '
	}
	return s
}

func (s *screen) put(x, y int, r rune, st style) {
	if x >= 0 && x < s.w && y >= 0 && y < s.h {
		s.cells[y*s.w+x] = cell{r, st}
	}
}

// text writes text and returns the column after it. A character that is neither
// printable ASCII nor one of the screen's glyphs becomes a question mark: whatever a
// peer sends, a terminal gets no control sequence, and each character takes one column.
func (s *screen) text(x, y int, text string, st style) int {
	for _, r := range text {
		if (r < ' ' || r > '~') && !s.owns(r) {
			r = '?'
		}
		s.put(x, y, r, st)
		x++
	}
	return x
}

// owns reports whether a character is one of the glyphs.
func (s *screen) owns(r rune) bool {
	if r == s.up || r == s.down || r == s.ellipsis || r == s.selection || strings.ContainsRune(s.separator, r) {
		return true
	}
	for _, b := range s.bars {
		if r == b {
			return true
		}
	}
	return false
}

// right writes text that ends before column x.
func (s *screen) right(x, y int, text string, st style) {
	s.text(x-len([]rune(text)), y, text, st)
}

// fill gives a whole line a style.
func (s *screen) fill(y int, st style) {
	for x := range s.w {
		if y >= 0 && y < s.h {
			s.cells[y*s.w+x].style = st
		}
	}
}

// cut shortens text to a width, and shows that it did.
func (s *screen) cut(text string, width int) string {
	r := []rune(text)
	switch {
	case len(r) <= width:
		return text
	case width <= 0:
		return ""
	}
	return string(r[:width-1]) + string(s.ellipsis)
}

// String returns the screen as lines, without trailing spaces.
func (s *screen) String() string {
	var b strings.Builder
	for y := range s.h {
		line := make([]rune, s.w)
		for x := range s.w {
			line[x] = s.cells[y*s.w+x].r
		}
		b.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	return b.String()
}

// wrap splits text into lines of at most width characters, at spaces where there are
// some. Lines after the first are indented.
func wrap(text string, width, indent int) []string {
	var lines []string
	width = max(width, indent+8)
	for _, line := range strings.Split(text, "\n") {
		r := []rune(line)
		for len(r) > width {
			at := width
			for at > indent+1 && r[at] != ' ' {
				at--
			}
			if at <= indent+1 {
				at = width
			}
			lines = append(lines, strings.TrimRight(string(r[:at]), " "))
			r = append([]rune(strings.Repeat(" ", indent)), []rune(strings.TrimLeft(string(r[at:]), " "))...)
		}
		lines = append(lines, string(r))
	}
	return lines
}
