package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"penstock/internal/testkit/figures"
)

// sample is the result of one proxy in one window.
type sample struct {
	value float64 // throughput, latency or rate
	cpu   float64 // nanoseconds of the proxy per unit
}

// A measure is a load. Its value is compared with that of a direct connection
// in the same round; CPU time is charged per unit.
type measure struct {
	name    string
	unit    string // of CPU time: perGB or "us each"
	cold    bool   // measured without warm-up
	workers int
	// load works for d, and returns the value and the number of units done.
	load func(e *env, p *proxy, workers int, d time.Duration) (value, units float64, err error)
	// sign and goal bound Penstock's value as a ratio to direct. cpu is the
	// maximum CPU time per unit; tenant is how much MultiTenant may add, as a
	// fraction of it if the unit is perGB. 0: no goal.
	sign              figures.Sign
	goal, cpu, tenant float64
}

// perGB is the unit of CPU time of measures that transfer bytes.
const perGB = "s/GB"

func measures() []measure {
	bulk := func(work func(*proxy, func() bool) (float64, error)) func(*env, *proxy, int, time.Duration) (float64, float64, error) {
		return func(e *env, p *proxy, workers int, d time.Duration) (float64, float64, error) {
			began := time.Now()
			gb, err := e.each(workers, d, func(over func() bool) (float64, error) { return work(p, over) })
			return gb / time.Since(began).Seconds(), gb, err
		}
	}
	latency := func(work func(*proxy, func() bool) (times, error)) func(*env, *proxy, int, time.Duration) (float64, float64, error) {
		return func(e *env, p *proxy, _ int, d time.Duration) (float64, float64, error) {
			var all times
			_, err := e.each(1, d, func(over func() bool) (n float64, err error) {
				all, err = work(p, over)
				return float64(len(all)), err
			})
			return all.median(), float64(len(all)), err
		}
	}
	rate := func(e *env, p *proxy, workers int, d time.Duration) (float64, float64, error) {
		began := time.Now()
		n, err := e.each(workers, d, func(over func() bool) (float64, error) {
			all, err := connections(p, over)
			return float64(len(all)), err
		})
		return n / time.Since(began).Seconds(), n, err
	}
	return []measure{
		{name: "new connection, p50", unit: "us each", cold: true, workers: 1, load: latency(connections), sign: figures.AtMost, goal: 1.7, cpu: 150},
		{name: "new connections, 8 at once, rate", unit: "us each", workers: 8, load: rate, sign: figures.AtLeast, goal: 0.65},
		{name: "one synchronous 1 KB produce, p50", unit: "us each", workers: 1, load: latency(oneByOne),
			sign: figures.AtMost, goal: 1.3, cpu: 20, tenant: 8},
		{name: "produce throughput", unit: perGB, workers: 2, load: bulk(produce), sign: figures.AtLeast, goal: 0.95, cpu: 0.3, tenant: 0.05},
		{name: "consume throughput", unit: perGB, workers: 2, load: bulk(consume), sign: figures.AtLeast, goal: 0.92, cpu: 0.3, tenant: 0.05},
	}
}

// runMeasures prints a table per measure.
func runMeasures(ctx context.Context, e *env) error {
	for _, m := range measures() {
		if !e.o.only.MatchString(m.name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		got := map[string][]sample{}
		first := 0
		if !m.cold {
			first = -1 // warm-up
		} else if _, err := m.sample(e, e.proxies[0], e.o.window); err != nil { // warm up only the broker
			return fmt.Errorf("%s, warming up: %w", m.name, err)
		}
		for round := first; round < e.o.rounds; round++ {
			for i := range e.proxies {
				p := e.proxies[(i+max(round, 0))%len(e.proxies)]
				d := e.o.window
				if round < 0 {
					d /= 4
				}
				s, err := m.sample(e, p, d)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.name, p.name, err)
				}
				if round >= 0 {
					got[p.name] = append(got[p.name], s)
				}
				if e.o.verbose {
					fmt.Fprintf(os.Stderr, "%s\tround %d\t%s\t%.4g\tCPU %.3g\n", m.name, round+1, p.name, s.value, m.scale(s.cpu))
				}
			}
		}
		m.print(e, got)
		m.goals(e, got)
	}
	return nil
}

func (m *measure) sample(e *env, p *proxy, d time.Duration) (sample, error) {
	var before time.Duration
	if p.proc != nil {
		before = p.proc.CPU()
	}
	value, units, err := m.load(e, p, m.workers, d)
	if err == nil && units == 0 {
		err = fmt.Errorf("no work was done")
	}
	s := sample{value: value}
	if p.proc != nil && err == nil {
		s.cpu = float64(p.proc.CPU()-before) / units
	}
	return s, err
}

func (m *measure) scale(ns float64) float64 {
	if m.unit == perGB {
		return ns / 1e9
	}
	return ns / 1e3
}

// absolute formats a value with its unit.
func (m *measure) absolute(v float64) string {
	switch {
	case m.unit == perGB:
		return fmt.Sprintf("%.2f GB/s", v)
	case strings.Contains(m.name, "rate"):
		return fmt.Sprintf("%.0f/s", v)
	}
	return fmt.Sprintf("%.0f us", v/1e3)
}

func (m *measure) print(e *env, got map[string][]sample) {
	t := figures.NewTable(m.name, "absolute", "times direct", "CPU, "+m.unit)
	direct := got["direct"]
	for _, p := range e.proxies {
		var values, ratios, cpu []float64
		for i, s := range got[p.name] {
			values, ratios, cpu = append(values, s.value), append(ratios, s.value/direct[i].value), append(cpu, m.scale(s.cpu))
		}
		charge := "-"
		if p.proc != nil {
			charge = fmt.Sprintf("%.3g", figures.Median(cpu))
		}
		t.Cells(p.name, m.absolute(figures.Median(values)), fmt.Sprintf("%.2f", figures.Median(ratios)), charge)
	}
	t.Print()
}
