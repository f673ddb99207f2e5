package main

import (
	"fmt"
	"reflect"

	"penstock/internal/testkit/figures"
	"penstock/mysql/session"
)

// runMemory prints the growth of resident memory by idle sessions, on fresh processes.
func runMemory(e *env) error {
	if !e.o.only.MatchString("memory") {
		return nil
	}
	goals := map[string]float64{penstockMySQL: 3, penstockTLS: 8}
	t := figures.NewTable("memory of an idle session", "KiB each", fmt.Sprintf("MiB in all with %d", e.o.sessions))
	for _, name := range []string{haproxyTCP, penstockTCP, penstockMySQL, haproxyTLS, penstockTLS} {
		var growth, full []float64
		for range min(e.o.rounds, 3) {
			each, all, err := e.idleSessions(name)
			if err != nil {
				return fmt.Errorf("memory, %s: %w", name, err)
			}
			growth, full = append(growth, each/1024), append(full, float64(all)/(1<<20))
		}
		t.Row(name, "%.2f", figures.Median(growth), figures.Median(full))
		if goal := goals[name]; goal > 0 {
			e.goals.Add("memory of an idle session, "+name, figures.Median(growth), figures.AtMost, goal, "KiB")
		}
	}
	t.Print()
	e.goals.Add("state of a session", float64(reflect.TypeFor[session.Session]().Size()), figures.AtMost, 300, "B")
	return nil
}

// idleSessions opens sessions that make one query and then are idle. It returns the
// growth per session, and all that the process has then. A tenth of the sessions is
// opened before, because it pays one-time costs.
func (e *env) idleSessions(name string) (each float64, all int64, err error) {
	start := e.startPenstock
	if name == haproxyTCP || name == haproxyTLS {
		start = e.startHAProxy
	}
	fresh, err := start()
	if err != nil {
		return 0, 0, err
	}
	defer fresh.Kill()
	var held []*client
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	open := func(n int) error {
		for range n {
			c, err := fresh.paths[name].open()
			if err != nil {
				return err
			}
			held = append(held, c)
			if err := c.ask(textQuery, textRows); err != nil {
				return err
			}
		}
		return nil
	}
	if err := open(e.o.sessions / 10); err != nil {
		return 0, 0, err
	}
	settled := fresh.SettledRSS
	if e.o.short {
		settled = fresh.RSS
	}
	before := settled()
	if err := open(e.o.sessions); err != nil {
		return 0, 0, err
	}
	all = settled()
	return float64(all-before) / float64(e.o.sessions), all, nil
}
