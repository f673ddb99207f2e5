package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// runMemory measures the resident memory per connection, on fresh processes.
func runMemory(e *env) error {
	type row struct {
		name, unit string
		goal       string
		run        func(e *env, p peer) (float64, error)
	}
	rows := []row{
		{"idle connection after 64 KB, plain", "KB", "<= 0.7 KB", idleMemory(3000,
			func(_ *env, at places) (net.Conn, error) { return dialPlain(at.tcp) })},
		{"idle connection after 64 KB, TLS-terminated", "KB", "<= 6 KB", idleMemory(2000, tlsAt)},
		{"1,000 readers that never read, growth", "MiB", "<= 64 MiB", stalledReaders},
		{"add a name to all names until it serves", "ms", "<= 5 ms", addNameTime},
		{"growth by 10 such changes, a connection held at each", "MB", "+ <= 2 MB", addNameMemory},
	}
	printed := false
	for _, r := range rows {
		if !e.o.only.MatchString(r.name) {
			continue
		}
		if !printed {
			fmt.Println("memory and changes (fresh processes; medians of the rounds)")
			printed = true
		}
		line := fmt.Sprintf("%-55s", r.name)
		for _, p := range allPeers() {
			var got []float64
			for range min(e.o.rounds, 3) {
				v, err := r.run(e, p)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", r.name, p.name, err)
				}
				got = append(got, v)
				if e.o.verbose {
					fmt.Fprintf(os.Stderr, "%s\t%s\t%.2f %s\n", r.name, p.name, v, r.unit)
				}
			}
			line += fmt.Sprintf("  %s %.2f %s", p.name, median(got), r.unit)
		}
		fmt.Println(line + "  goal " + r.goal)
	}
	return nil
}

// idleMemory opens n connections, echoes 64 KB through each, and divides the
// growth of the proxy by n. A tenth of them are opened first to warm the
// process up, so that pools and code pages are not charged to connections.
func idleMemory(n int, dial dialer) func(*env, peer) (float64, error) {
	return func(e *env, p peer) (float64, error) {
		proc, at, _, err := e.launch(p, 10)
		if err != nil {
			return 0, err
		}
		defer proc.Kill()
		var held []net.Conn
		defer func() {
			for _, c := range held {
				c.Close()
			}
		}()
		open := func(n int) error {
			for range n {
				c, err := dial(e, at)
				if err != nil {
					return err
				}
				held = append(held, c)
				if err := pass64K(c); err != nil {
					return err
				}
			}
			return nil
		}
		if err := open(n / 10); err != nil {
			return 0, err
		}
		before := proc.SettledRSS()
		if err := open(n); err != nil {
			return 0, err
		}
		return float64(proc.SettledRSS()-before) / float64(n) / 1024, nil
	}
}

// pass64K sends 64 KB in pieces and reads the echo of each.
func pass64K(c net.Conn) error {
	out, in := make([]byte, 16<<10), make([]byte, 16<<10)
	for range 4 {
		if _, err := c.Write(out); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, in); err != nil {
			return err
		}
	}
	return nil
}

// stalledReaders opens connections whose server sends endlessly and whose
// client never reads.
func stalledReaders(e *env, p peer) (float64, error) {
	const n = 1000
	proc, at, _, err := e.launch(p, 10)
	if err != nil {
		return 0, err
	}
	defer proc.Kill()
	before := proc.SettledRSS()
	for range n {
		c, err := dialPlain(at.sink)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		if _, err := c.Write([]byte("d")); err != nil {
			return 0, err
		}
	}
	return float64(proc.SettledRSS()-before) / (1 << 20), nil
}

// addNameTime measures the time from the request for one more name until a
// connection with that name is served. HAProxy and nginx get the reload signal
// when their file is written; Penstock gets an RPC, as from its command.
func addNameTime(e *env, p peer) (float64, error) {
	proc, at, dir, err := e.launch(p, e.o.names)
	if err != nil {
		return 0, err
	}
	defer proc.Kill()
	proc.SettledRSS() // a master that is still starting would miss the signal
	var times []float64
	for i := range 5 {
		name := manyName(e.o.names + i)
		began := time.Now()
		if err := p.addName(e, dir, at, proc, name); err != nil {
			return 0, err
		}
		c, err := untilServed(at.sniMany, name)
		if err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(began))/1e6)
		c.Close()
	}
	return median(times), nil
}

func addNameMemory(e *env, p peer) (float64, error) {
	proc, at, dir, err := e.launch(p, e.o.names)
	if err != nil {
		return 0, err
	}
	defer proc.Kill()
	before := proc.SettledRSS()
	for i := range 10 {
		name := manyName(e.o.names + i)
		if err := p.addName(e, dir, at, proc, name); err != nil {
			return 0, err
		}
		c, err := untilServed(at.sniMany, name)
		if err != nil {
			return 0, err
		}
		defer c.Close()
	}
	return float64(proc.SettledRSS()-before) / 1e6, nil
}

// untilServed connects with the name until the backend answers, and returns the
// connection.
func untilServed(port int, name string) (net.Conn, error) {
	deadline := time.Now().Add(30 * time.Second)
	hello := captureHello(name, []tls.CurveID{tls.X25519})
	for {
		c, err := dialPlain(port)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			if _, err = c.Write(hello); err == nil {
				if _, err = io.ReadFull(c, make([]byte, 1)); err == nil {
					return c, c.SetDeadline(time.Time{})
				}
			}
			c.Close()
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s is not served: %w", name, err)
		}
		time.Sleep(time.Millisecond)
	}
}
