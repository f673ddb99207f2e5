package main

import (
	"fmt"
	"net"

	"penstock/internal/testkit/figures"
)

// runMemory prints the resident memory of each proxy: initially, after the
// load, and per idle session.
func runMemory(e *env) error {
	if !e.o.only.MatchString("memory") {
		return nil
	}
	t := figures.NewTable("memory, MiB resident", "idle", "after the load", fmt.Sprintf("with %d idle sessions", e.o.sessions), "KiB each")
	for _, p := range e.proxies {
		if p.proc == nil {
			continue
		}
		after := p.proc.SettledRSS()
		full, each, err := p.measureIdleSessions(e.o.sessions)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		t.Row(p.name, "%.1f", mib(p.idle), mib(after), mib(full), each/1024)
		if p.name == "penstock" {
			e.goals.Add("RSS idle", mib(p.idle), figures.AtMost, 30, "MiB")
			e.goals.Add("RSS after all of this", mib(after), figures.AtMost, 64, "MiB")
			e.goals.Add("memory of an idle session", each/1024, figures.AtMost, 4, "KiB")
			e.goals.Add(fmt.Sprintf("RSS with %d of them", e.o.sessions), mib(full), figures.AtMost, 60, "MiB")
		}
	}
	t.Print()
	return nil
}

func mib(b int64) float64 { return float64(b) / (1 << 20) }

// measureIdleSessions opens sessions that make one request and then stay idle, on a fresh
// process: a used one may have free memory to reuse. It returns the resident
// memory with all sessions, and the growth per session; a first tenth of them
// is not counted, because it pays one-time costs.
func (p *proxy) measureIdleSessions(sessions int) (full int64, each float64, err error) {
	fresh := *p
	if fresh.proc, fresh.address, err = p.begin(); err != nil {
		return 0, 0, err
	}
	defer fresh.proc.Kill()
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	open := func(n int) error {
		for range n {
			c, err := fresh.dial()
			if err != nil {
				return fmt.Errorf("session %d: %w", len(held), err)
			}
			held = append(held, c)
			if _, err := c.Write(greeting); err != nil {
				return err
			}
			f := &frames{Conn: c}
			if _, err := f.next(); err != nil {
				return fmt.Errorf("session %d: %w", len(held), err)
			}
		}
		return nil
	}
	if err := open(sessions / 10); err != nil {
		return 0, 0, err
	}
	before := fresh.proc.SettledRSS()
	if err := open(sessions - sessions/10); err != nil {
		return 0, 0, err
	}
	full = fresh.proc.SettledRSS()
	return full, float64(full-before) / float64(sessions-sessions/10), nil
}
