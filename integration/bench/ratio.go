package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"penstock/internal/testkit/process"
)

// A measure is a load; its CPU time is divided by the units of work done.
type measure struct {
	name string
	unit string
	goal float64 // as a multiple of HAProxy; 0: none
	// load works for d and returns the number of units done.
	load func(e *env, at places, d time.Duration) (float64, error)
}

const (
	bySNIFew  = "new connection by SNI, 10 names"
	bySNIMany = "new connection by SNI, all names"
)

func measures() []measure {
	return []measure{
		{"256 B round trip, 8 connections", "us", 0, roundTrips(8, nil)},
		{"256 B round trip, 64 connections", "us", 1.0, roundTrips(64, nil)},
		{"256 B round trip, 512 connections", "us", 0, roundTrips(512, nil)},
		{"bulk, GB", "s", 0.40, bulk(plainAt)},
		{"new connection", "us", 1.0, newConnections},
		{bySNIFew, "us", 1.0, newBySNI(classicHello, fewNames)},
		{bySNIMany, "us", 1.0, newBySNI(classicHello, manyNames)},
		{"new connection by SNI, post-quantum hello", "us", 1.0, newBySNI(quantumHello, fewNames)},
		{"TLS 1.3 full handshake", "us", 0.75, handshakes(false)},
		{"TLS 1.3 resumed handshake", "us", 0.75, handshakes(true)},
		{"TLS 256 B round trip, 64 connections", "us", 0.95, roundTrips(64, tlsAt)},
		{"TLS bulk, GB", "s", 0.75, bulk(tlsAt)},
	}
}

// scale converts nanoseconds per unit to the measure's unit.
func (m *measure) scale(ns float64) float64 {
	if m.unit == "s" {
		return ns / 1e9
	}
	return ns / 1e3
}

// runRatios runs every measure on every proxy, round by round, and prints a
// table of CPU time per unit.
func runRatios(e *env) error {
	var todo []measure
	for _, m := range measures() {
		if e.o.only.MatchString(m.name) {
			todo = append(todo, m)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	type running struct {
		*process.Process
		at places
	}
	var proxies []running
	for _, p := range allPeers() {
		proc, at, _, err := e.launch(p, e.o.names)
		if err != nil {
			return err
		}
		defer proc.Kill()
		proxies = append(proxies, running{proc, at})
	}
	table := newTable(proxies[0].Name)
	costs := map[string]map[string][]float64{}
	for _, m := range todo {
		cost := map[string][]float64{}
		for round := -1; round < e.o.rounds; round++ { // round -1 warms up
			for i := range proxies {
				// Each round starts with another proxy.
				p := proxies[(i+max(round, 0))%len(proxies)]
				d := e.o.window
				if round < 0 {
					d = min(d/4, 300*time.Millisecond)
				}
				before := p.CPU()
				units, err := m.load(e, p.at, d)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.name, p.Name, err)
				}
				if units == 0 {
					return fmt.Errorf("%s, %s: no work was done", m.name, p.Name)
				}
				c := m.scale(float64(p.CPU()-before) / units)
				if round >= 0 {
					cost[p.Name] = append(cost[p.Name], c)
				}
				if e.o.verbose {
					fmt.Fprintf(os.Stderr, "%s\tround %d\t%s\t%.3f %s (%.0f units)\n", m.name, round+1, p.Name, c, m.unit, units)
				}
			}
		}
		table.add(m.name, m.unit, m.goal, cost)
		costs[m.name] = cost
	}
	table.print()
	printNamesCost(costs[bySNIMany], costs[bySNIFew])
	return nil
}

// printNamesCost compares each proxy with itself: the cost of a connection
// among all names and among ten.
func printNamesCost(many, few map[string][]float64) {
	if many == nil || few == nil {
		return
	}
	fmt.Print("CPU per connection by SNI, all names against 10 names:")
	for _, p := range allPeers() {
		var ratios []float64
		for i := range many[p.name] {
			ratios = append(ratios, many[p.name][i]/few[p.name][i])
		}
		fmt.Printf("  %s %.2f", p.name, median(ratios))
	}
	fmt.Print("  goal <= 1.03\n\n")
}

// A table prints medians of each round's ratio to the base.
type table struct {
	base  string
	names []string
	rows  [][]string
}

func newTable(base string) *table {
	t := &table{base: base}
	for _, p := range allPeers() {
		t.names = append(t.names, p.name)
	}
	return t
}

func (t *table) add(name, unit string, goal float64, cost map[string][]float64) {
	row := []string{name, fmt.Sprintf("%.3g %s", median(cost[t.base]), unit)}
	for _, p := range t.names {
		if p == t.base {
			continue
		}
		var ratios []float64
		for i, c := range cost[p] {
			ratios = append(ratios, c/cost[t.base][i])
		}
		row = append(row, fmt.Sprintf("%.2f", median(ratios)))
	}
	want := ""
	if goal > 0 {
		want = fmt.Sprintf("<= %.2f", goal)
	}
	t.rows = append(t.rows, append(row, want))
}

func (t *table) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)
	head := []string{"measure", t.base}
	for _, p := range t.names {
		if p != t.base {
			head = append(head, p)
		}
	}
	fmt.Fprintln(w, strings.Join(append(head, "goal"), "\t")+"\t")
	for _, r := range t.rows {
		fmt.Fprintln(w, strings.Join(r, "\t")+"\t")
	}
	w.Flush()
	fmt.Println()
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
