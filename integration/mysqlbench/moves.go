package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/figures"
	"penstock/internal/testkit/process"
	"penstock/node/api"
	"penstock/node/rpc"
)

// moving is a Penstock of its own with two servers, of which its service has one at a
// time: a change of the service moves all sessions to the other.
type moving struct {
	*proxy
	client  *rpc.Client
	servers [2]*server
	at      int // the server that the service has
}

// moved is what the sessions' departure from a server was like.
type moved struct {
	took  []time.Duration // of each move, as the old server sees it: from being asked for the states to being left
	first time.Duration   // from the cause to the first request for states
	last  time.Duration   // from the cause to the end of the last move
	cpu   time.Duration
}

// runMoves measures moves of idle sessions.
func runMoves(e *env) error {
	t := figures.NewTable("moving sessions", "a move, p50", "p99", "most", "cause to first", "cause to last", "CPU of a move")
	printed := false
	for _, m := range []struct {
		sessions int
		last     float64 // goal of the time to the last, ms
	}{{5, 200}, {500, 2000}} {
		name := fmt.Sprintf("moves of %d sessions", m.sessions)
		if !e.o.only.MatchString(name) {
			continue
		}
		printed = true
		if err := e.measureMoves(t, name, m.sessions, m.last); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if printed {
		t.Print()
	}
	return nil
}

func (e *env) measureMoves(t *figures.Table, name string, sessions int, goal float64) error {
	p, err := e.startMoving()
	if err != nil {
		return err
	}
	defer p.stop()
	var held []*client
	for range sessions {
		c, err := p.paths[penstockMySQL].open()
		if err != nil {
			return err
		}
		defer c.Close()
		held = append(held, c)
	}
	var took []time.Duration
	var firsts, lasts, cpu []float64
	for round := -1; round < e.o.rounds; round++ { // round -1 warms up
		m, err := p.move(held)
		if err != nil {
			return err
		}
		if round < 0 {
			continue
		}
		took = append(took, m.took...)
		firsts, lasts = append(firsts, milliseconds(m.first)), append(lasts, milliseconds(m.last))
		cpu = append(cpu, float64(m.cpu)/float64(sessions)/1e3)
		if e.o.verbose {
			fmt.Fprintf(os.Stderr, "%s\tround %d\tp50 %v\tp99 %v\tfirst %v\tlast %v\tCPU %v\n", name, round+1,
				figures.Percentile(m.took, 50), figures.Percentile(m.took, 99), m.first, m.last, m.cpu)
		}
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.2f ms", milliseconds(d)) }
	t.Cells(name, ms(figures.Percentile(took, 50)), ms(figures.Percentile(took, 99)), ms(slices.Max(took)),
		fmt.Sprintf("%.0f ms", figures.Median(firsts)), fmt.Sprintf("%.0f ms", figures.Median(lasts)), fmt.Sprintf("%.0f us", figures.Median(cpu)))
	e.goals.Add(name+", cause to last", figures.Median(lasts), figures.AtMost, goal, "ms")
	if sessions < 100 {
		return nil
	}
	e.goals.Add("a move, p50", milliseconds(figures.Percentile(took, 50)), figures.AtMost, 1, "ms")
	e.goals.Add("a move, p99", milliseconds(figures.Percentile(took, 99)), figures.AtMost, 5, "ms")
	e.goals.Add("500 moves a second, of one core", figures.Median(cpu)*500/1e6*100, figures.AtMost, 30, "%")
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

func (e *env) startMoving() (*moving, error) {
	p := &moving{}
	var err error
	for i := range p.servers {
		if p.servers[i], err = newServer(); err != nil {
			p.stop()
			return nil, err
		}
	}
	ports, err := process.FreePorts(1)
	if err != nil {
		p.stop()
		return nil, err
	}
	text := fmt.Sprintf("kind: Listener\nname: db\nspec: {address: \"127.0.0.1:%d\", protocol: mysql, service: tidb}\n---\n%s\n", ports[0], p.service())
	proc, socket, err := e.runPenstock(text, ports)
	if err != nil {
		p.stop()
		return nil, err
	}
	p.proxy = e.newProxy(proc, ports, path{name: penstockMySQL})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if p.client, err = rpc.Dial(ctx, "unix:"+socket); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *moving) stop() {
	if p.client != nil {
		p.client.Close()
	}
	if p.proxy != nil {
		p.Kill()
	}
	for _, s := range p.servers {
		if s != nil {
			s.close()
		}
	}
}

// service returns the Service with the present server. It moves sessions at the default
// pace.
func (p *moving) service() string {
	return fmt.Sprintf(`{"kind": "Service", "name": "tidb", "spec": {"protocol": "mysql", "endpointDrain": {"timeout": "1h"}, "endpoints": [{"address": %q}]}}`,
		p.servers[p.at].addr())
}

// move replaces the server of the service by the other one, and waits until all sessions
// are there. Each must then be answered.
func (p *moving) move(sessions []*client) (moved, error) {
	from, to := p.servers[p.at], p.servers[1-p.at]
	p.at = 1 - p.at
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	before, cause := p.CPU(), time.Now()
	if _, err := rpc.Call[api.ApplyResult](ctx, p.client, api.MethodApply, api.ApplyRequest{Documents: [][]byte{[]byte(p.service())}}); err != nil {
		return moved{}, err
	}
	if !testkit.Poll(time.Minute, func() bool { return from.gone() == len(sessions) }) {
		return moved{}, fmt.Errorf("%d of %d sessions have moved within a minute", from.gone(), len(sessions))
	}
	m := moved{cpu: p.CPU() - before}
	first, last := time.Time{}, time.Time{}
	for _, d := range from.departures() {
		m.took = append(m.took, d.gone.Sub(d.asked))
		if first.IsZero() || d.asked.Before(first) {
			first = d.asked
		}
		if d.gone.After(last) {
			last = d.gone
		}
	}
	m.first, m.last = first.Sub(cause), last.Sub(cause)
	if n := int(to.open.Load()); n != len(sessions) {
		return moved{}, fmt.Errorf("%d sessions are at the other server, not %d", n, len(sessions))
	}
	for _, c := range sessions {
		if err := c.ask(textQuery, textRows); err != nil {
			return moved{}, errors.Join(errors.New("a session has not survived its move"), err)
		}
	}
	return m, nil
}
