// Package figures prints what a benchmark measured: tables in Markdown, and the figures
// beside the goals that they have. The benchmarks of integration share it.
//
//	t := figures.NewTable("measure", "HAProxy", "Penstock")
//	t.Row("a query", "%.1f us", figures.Median(theirs), figures.Median(own))
//	t.Print()
package figures

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Table is a Markdown table for docs/benchmarks.md.
type Table struct{ lines []string }

// NewTable returns a table with the names of its columns.
func NewTable(head ...string) *Table {
	t := new(Table)
	t.Cells(head...)
	t.lines = append(t.lines, "|---|"+strings.Repeat("---:|", len(head)-1))
	return t
}

// Cells adds a row.
func (t *Table) Cells(cells ...string) {
	t.lines = append(t.lines, "| "+strings.Join(cells, " | ")+" |")
}

// Row adds a row of values in the same format.
func (t *Table) Row(name, format string, values ...float64) {
	cells := []string{name}
	for _, v := range values {
		cells = append(cells, fmt.Sprintf(format, v))
	}
	t.Cells(cells...)
}

// Print prints the table and an empty line.
func (t *Table) Print() { fmt.Println(strings.Join(t.lines, "\n") + "\n") }

// Sign is the direction in which a goal bounds a figure.
type Sign string

// The directions.
const (
	AtMost  Sign = "<="
	AtLeast Sign = ">="
)

// Goals are figures beside their goals, in the order in which they were added.
type Goals struct{ rows [][]string }

// Add records a figure. An unit that ends in " each" is printed without that.
func (g *Goals) Add(name string, value float64, s Sign, goal float64, unit string) {
	verdict := "met"
	if s == AtMost && value > goal || s == AtLeast && value < goal {
		verdict = "**missed**"
	}
	unit = strings.TrimRight(" "+strings.TrimSuffix(unit, " each"), " ")
	g.rows = append(g.rows, []string{name, fmt.Sprintf("%.3g%s", value, unit), fmt.Sprintf("%s %.3g%s", s, goal, unit), verdict})
}

// Print prints the table of all goals.
func (g *Goals) Print() {
	t := NewTable("measure", "Penstock", "goal", "")
	for _, row := range g.rows {
		t.Cells(row...)
	}
	t.Print()
}

// Median returns the median of v, 0 if it is empty.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Percentile returns the p-th percentile of v, p from 0 to 100; the zero value if v is
// empty.
func Percentile[T cmp.Ordered](v []T, p float64) T {
	var zero T
	if len(v) == 0 {
		return zero
	}
	s := slices.Sorted(slices.Values(v))
	return s[min(len(s)-1, int(float64(len(s))*p/100))]
}
