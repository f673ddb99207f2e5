package main

import (
	"fmt"
	"strings"
)

// table is a Markdown table for docs/benchmarks.md.
type table struct{ lines []string }

func newTable(head ...string) *table {
	t := new(table)
	t.cells(head...)
	t.lines = append(t.lines, "|---|"+strings.Repeat("---:|", len(head)-1))
	return t
}

func (t *table) cells(cells ...string) {
	t.lines = append(t.lines, "| "+strings.Join(cells, " | ")+" |")
}

func (t *table) row(name, format string, values ...float64) {
	cells := []string{name}
	for _, v := range values {
		cells = append(cells, fmt.Sprintf(format, v))
	}
	t.cells(cells...)
}

func (t *table) print() { fmt.Println(strings.Join(t.lines, "\n") + "\n") }

// sign is the direction in which a goal bounds a figure.
type sign string

const (
	atMost  sign = "<="
	atLeast sign = ">="
)

// goal records a figure of Penstock beside its goal.
func (e *env) goal(name string, value float64, s sign, goal float64, unit string) {
	verdict := "met"
	if s == atMost && value > goal || s == atLeast && value < goal {
		verdict = "**missed**"
	}
	unit = strings.TrimRight(" "+strings.TrimSuffix(unit, " each"), " ")
	e.goals = append(e.goals, []string{name, fmt.Sprintf("%.3g%s", value, unit), fmt.Sprintf("%s %.3g%s", s, goal, unit), verdict})
}

// printGoals prints the recorded goals.
func (e *env) printGoals() {
	t := newTable("measure", "Penstock", "goal", "")
	for _, g := range e.goals {
		t.cells(g...)
	}
	t.print()
}

// goals records the figures of a measure: medians over the rounds of each
// round's ratio or difference.
func (m *measure) goals(e *env, got map[string][]sample) {
	direct, own, tenant := got["direct"], got["penstock"], got["penstock, tenant"]
	if len(own) == 0 {
		return
	}
	var ratios, cpu, more []float64
	for i, s := range own {
		ratios, cpu = append(ratios, s.value/direct[i].value), append(cpu, m.scale(s.cpu))
		if i < len(tenant) {
			added := m.scale(tenant[i].cpu - s.cpu)
			if m.unit == perGB {
				added /= m.scale(s.cpu)
			}
			more = append(more, added)
		}
	}
	e.goal(m.name+", times direct", median(ratios), m.sign, m.goal, "")
	if m.cpu > 0 {
		e.goal(m.name+", CPU", median(cpu), atMost, m.cpu, m.unit)
	}
	if m.tenant > 0 && len(more) > 0 {
		name, unit := m.name+", CPU that MultiTenant adds", m.unit
		if m.unit == perGB {
			name, unit = name+", as a part", ""
		}
		e.goal(name, median(more), atMost, m.tenant, unit)
	}
}
