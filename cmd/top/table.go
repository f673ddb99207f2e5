package top

import (
	"cmp"
	"slices"
	"strings"
)

// column describes a column of a table.
type column struct {
	title string
	// width is how wide it is at least; text that is longer is cut where there is no
	// room for it. max is how wide it may become; 0: as its text.
	width, max int
	right      bool // numbers
	// rank says when it is left out on a narrow screen: the highest goes first, 0 stays.
	rank int
	// descending: the largest comes first when one begins to sort by it.
	descending bool
	// spark is filled with the row's points.
	spark bool
}

// field is a cell of a table. Rows are sorted by number, or by text where numbers are
// equal.
type field struct {
	text   string
	number float64
	style  style
}

// row is a line of a table.
type row struct {
	id     string // unique in its table: the selection follows it
	fields []field
	points func(n int) []float64 // for the spark
	open   func(*Model)          // Enter; nil: nothing to open
	// connections is the level with the connections of the row; nil: it has none of its own.
	connections *level
	detail      []string // shown below the table while it is selected
}

// table is a table with its rows.
type table struct {
	columns []column
	rows    []row
	empty   string // shown when there are no rows
}

// place is where a user is in a table, and how it is arranged.
type place struct {
	sort     int // column
	reverse  bool
	filter   string
	selected string // ID of a row
	at       int    // its index, for when it is gone
	top      int    // first row on the screen
}

// text returns a field that is sorted as text.
func text(s string) field { return field{text: s} }

// number returns a field that is sorted as a number.
func number(s string, n float64) field { return field{text: s, number: n} }

// arrange filters and sorts the rows.
func (t *table) arrange(p *place) {
	if p.filter != "" {
		wanted := strings.ToLower(p.filter)
		t.rows = slices.DeleteFunc(t.rows, func(r row) bool {
			for _, f := range r.fields {
				if strings.Contains(strings.ToLower(f.text), wanted) {
					return false
				}
			}
			return true
		})
	}
	if p.sort >= len(t.columns) {
		p.sort = 0
	}
	descending := t.columns[p.sort].descending != p.reverse
	slices.SortStableFunc(t.rows, func(a, b row) int {
		x, y := a.fields[p.sort], b.fields[p.sort]
		order := cmp.Or(cmp.Compare(x.number, y.number), strings.Compare(x.text, y.text))
		if descending {
			order = -order
		}
		return cmp.Or(order, strings.Compare(a.id, b.id))
	})
}

// settle finds the selected row again, or the one that has its place.
func (t *table) settle(p *place, height int) {
	if i := slices.IndexFunc(t.rows, func(r row) bool { return r.id == p.selected }); i >= 0 && p.selected != "" {
		p.at = i
	}
	p.at = max(0, min(p.at, len(t.rows)-1))
	if p.top > p.at {
		p.top = p.at
	}
	if p.at >= p.top+height {
		p.top = p.at - height + 1
	}
	p.top = max(0, min(p.top, len(t.rows)-height))
}

// move moves the selection by n rows.
func (t *table) move(p *place, n int) {
	p.at = max(0, min(p.at+n, len(t.rows)-1))
	p.selected = ""
	if len(t.rows) > 0 {
		p.selected = t.rows[p.at].id
	}
}

// sortBy moves to the next column to sort by, or with step -1 to the one before.
func (t *table) sortBy(p *place, step int) {
	p.sort = (p.sort + step + len(t.columns)) % len(t.columns)
	for t.columns[p.sort].spark {
		p.sort = (p.sort + step + len(t.columns)) % len(t.columns)
	}
	p.reverse = false
}

// columnGap is the space between columns.
const columnGap = 2

// widths chooses the columns that fit, and how wide they are; 0: left out.
func (t *table) widths(total int) []int {
	shown := make([]bool, len(t.columns))
	for i := range shown {
		shown[i] = true
	}
	need := func() (n int) {
		for i, c := range t.columns {
			if shown[i] {
				n += c.width + columnGap
			}
		}
		return n - columnGap
	}
	for need() > total {
		drop := -1
		for i, c := range t.columns {
			if shown[i] && c.rank > 0 && (drop < 0 || c.rank > t.columns[drop].rank) {
				drop = i
			}
		}
		if drop < 0 {
			break
		}
		shown[drop] = false
	}
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		if shown[i] {
			widths[i] = c.width
		}
	}
	t.widen(widths, total-need())
	return widths
}

// widen gives what is left to the columns whose text is cut, from the left, and then to
// the spark.
func (t *table) widen(widths []int, left int) {
	for i, c := range t.columns {
		if widths[i] == 0 || c.spark {
			continue
		}
		longest := 0
		for _, r := range t.rows {
			longest = max(longest, len([]rune(r.fields[i].text)))
		}
		if c.max > 0 {
			longest = min(longest, c.max)
		}
		if more := min(longest-widths[i], left); more > 0 {
			widths[i] += more
			left -= more
		}
	}
	for i, c := range t.columns {
		if c.spark && widths[i] > 0 && left > 0 {
			widths[i] = min(widths[i]+left, max(c.max, widths[i]))
		}
	}
}

// draw draws the heading and the rows between two lines of a screen.
func (t *table) draw(s *screen, p *place, from, to int) {
	height := max(to-from-1, 0)
	t.settle(p, height)
	const margin = 2 // of the mark
	widths := t.widths(s.w - margin)
	x := margin
	for i, c := range t.columns {
		if widths[i] == 0 {
			continue
		}
		title, st := c.title, bold
		if i == p.sort && !c.spark {
			mark := s.up
			if c.descending != p.reverse {
				mark = s.down
			}
			title += string(mark)
			st = tab
		}
		t.put(s, x, from, widths[i], c.right, title, st)
		x += widths[i] + columnGap
	}
	if len(t.rows) == 0 {
		s.text(margin, from+1, s.cut(t.empty, s.w-margin), dim)
		return
	}
	for i := 0; i < height && p.top+i < len(t.rows); i++ {
		t.drawRow(s, &t.rows[p.top+i], from+1+i, widths, margin, p.top+i == p.at)
	}
}

func (t *table) drawRow(s *screen, r *row, y int, widths []int, x int, chosen bool) {
	for i, c := range t.columns {
		if widths[i] == 0 {
			continue
		}
		f := r.fields[i]
		if c.spark && r.points != nil {
			f.text = spark(r.points(widths[i]), s.bars)
		}
		t.put(s, x, y, widths[i], c.right, f.text, f.style)
		x += widths[i] + columnGap
	}
	if chosen {
		s.fill(y, selected)
		s.put(0, y, s.selection, selected)
	}
}

func (*table) put(s *screen, x, y, width int, right bool, text string, st style) {
	text = s.cut(text, width)
	if right {
		s.right(x+width, y, text, st)
		return
	}
	s.text(x, y, text, st)
}
