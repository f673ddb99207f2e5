package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"penstock/internal/testkit/figures"
)

// A measure is a load; CPU time of a proxy is divided by the units of work done. The
// first path is HAProxy's, the last one Penstock's own.
type measure struct {
	name  string
	paths []string
	load  func(e *env, p *path, d time.Duration) (cost, error)
	// goal bounds Penstock's CPU as a multiple of HAProxy's, more than which it may use
	// plus microseconds; 0: no goal.
	goal, plus float64
}

// cost is the CPU time that a proxy used for units of work.
type cost struct {
	cpu   time.Duration
	units float64
}

// charge returns the cost of work, which returns the number of units done.
func (p *proxy) charge(work func() (float64, error)) (cost, error) {
	before := p.CPU()
	units, err := work()
	if err == nil && units == 0 {
		err = errors.New("no work was done")
	}
	return cost{p.CPU() - before, units}, err
}

const sysbenchName = "sysbench"

func measures() []measure {
	plain := []string{haproxyTCP, penstockTCP, penstockMySQL}
	secured := []string{haproxyTLS, penstockTLS}
	maria := []string{haproxyTCP + toMariaDB, penstockTCP + toMariaDB, penstockMySQL + toMariaDB}
	return []measure{
		{"text query, 50 connections", plain, queries(50, textQuery, textRows), 1.05, 0},
		{"text query, 1 connection", plain, queries(1, textQuery, textRows), 0, 0},
		{"row of 60 KB, 50 connections", plain, queries(50, longQuery, longRows), 0.7, 0},
		{"row of 1 MB, 4 connections", plain, queries(4, hugeQuery, hugeRows), 0, 0},
		{"10,000 rows of 100 B, 4 connections", plain, queries(4, manyQuery, manyRows), 0, 0},
		{"new session", plain, newSessions, 0, 0},
		{"TLS text query, 50 connections", secured, queries(50, textQuery, textRows), 0, 0},
		{"TLS new session", secured, newSessions, 1, 60},
		{sysbenchName + " point select as text, 50 threads", maria, sysbench("oltp_point_select", "--db-ps-mode=disable"), 0, 0},
		{sysbenchName + " read-write, prepared, 50 threads", maria, sysbench("oltp_read_write"), 0, 0},
	}
}

// queries sends a query and reads its answer, on n sessions that are open already.
func queries(n int, query, want []byte) func(*env, *path, time.Duration) (cost, error) {
	return func(_ *env, p *path, d time.Duration) (cost, error) {
		sessions := make(chan *client, n)
		for range n {
			c, err := p.open()
			if err != nil {
				return cost{}, err
			}
			defer c.Close()
			sessions <- c
		}
		return p.proxy.charge(func() (float64, error) {
			return each(n, d, func(over *atomic.Bool) (done float64, err error) {
				for c := <-sessions; !over.Load() && err == nil; done++ {
					err = c.ask(query, want)
				}
				return done, err
			})
		})
	}
}

// newSessions logs in, makes one query and leaves, eight at once.
func newSessions(_ *env, p *path, d time.Duration) (cost, error) {
	return p.proxy.charge(func() (float64, error) {
		return each(8, d, func(over *atomic.Bool) (done float64, err error) {
			for ; !over.Load() && err == nil; done++ {
				err = p.once()
			}
			return done, err
		})
	})
}

// once is one short session.
func (p *path) once() error {
	c, err := p.open()
	if err != nil {
		return err
	}
	if err := c.ask(textQuery, textRows); err != nil {
		c.Close()
		return err
	}
	return c.leave()
}

// runMeasures runs every measure on every path, round by round, and prints a table of
// CPU time per unit.
func runMeasures(e *env) error {
	t := figures.NewTable("CPU of", "HAProxy", "Penstock tcp", "Penstock mysql", "mysql by HAProxy", "mysql by tcp")
	printed := false
	for _, m := range measures() {
		if !e.o.only.MatchString(m.name) || m.paths[0] == haproxyTCP+toMariaDB && e.maria == nil {
			continue
		}
		got, err := m.run(e)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		m.report(e, t, got)
		printed = true
	}
	if printed {
		t.Print()
	}
	return nil
}

// run returns the CPU time of each path, in microseconds per unit, by round.
func (m *measure) run(e *env) (map[string][]float64, error) {
	got := map[string][]float64{}
	for round := -1; round < e.o.rounds; round++ { // round -1 warms up
		for i := range m.paths {
			p := e.path(m.paths[(i+max(round, 0))%len(m.paths)])
			d := e.o.window
			if round < 0 {
				d = min(d/4, 300*time.Millisecond)
			}
			c, err := m.load(e, p, d)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			us := float64(c.cpu) / c.units / 1e3
			if round >= 0 {
				got[p.name] = append(got[p.name], us)
			}
			if e.o.verbose {
				fmt.Fprintf(os.Stderr, "%s\tround %d\t%s\t%.2f us (%.0f units)\n", m.name, round+1, p.name, us, c.units)
			}
		}
	}
	return got, nil
}

func (m *measure) report(e *env, t *figures.Table, got map[string][]float64) {
	base, own := got[m.paths[0]], got[m.paths[len(m.paths)-1]]
	cells := []string{m.name, fmt.Sprintf("%.1f us", figures.Median(base)), "", fmt.Sprintf("%.1f us", figures.Median(own)),
		fmt.Sprintf("%.2f", figures.Median(ratios(own, base))), ""}
	if len(m.paths) == 3 {
		tcp := got[m.paths[1]]
		cells[2], cells[5] = fmt.Sprintf("%.1f us", figures.Median(tcp)), fmt.Sprintf("%.2f", figures.Median(ratios(own, tcp)))
	}
	t.Cells(cells...)
	switch {
	case m.goal == 0:
	case m.plus == 0:
		e.goals.Add(m.name+", times HAProxy", figures.Median(ratios(own, base)), figures.AtMost, m.goal, "")
	default:
		var more []float64
		for i := range own {
			more = append(more, own[i]-m.goal*base[i])
		}
		e.goals.Add(fmt.Sprintf("%s, more than %.2g times HAProxy", m.name, m.goal), figures.Median(more), figures.AtMost, m.plus, "us")
	}
}

// ratios divides round by round.
func ratios(a, b []float64) []float64 {
	var all []float64
	for i := range a {
		all = append(all, a[i]/b[i])
	}
	return all
}
