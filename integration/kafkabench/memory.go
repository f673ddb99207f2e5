package main

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"text/tabwriter"
	"time"
)

// runMemory prints what each proxy has in memory: before anything, after the
// load, and what idle sessions add.
func runMemory(e *env) error {
	if !e.o.only.MatchString("memory") {
		return nil
	}
	if err := raiseFiles(); err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintf(w, "memory, MB resident\tidle\tafter the load\twith %d idle sessions\tKB each\t\n", e.o.sessions)
	for _, p := range e.proxies {
		if p.proc == nil {
			continue
		}
		after := p.proc.SettledRSS()
		full, err := p.crowded(e.o.sessions)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.2f\t\n", p.name, mb(p.idle), mb(after), mb(full), float64(full-after)/1024/float64(e.o.sessions))
	}
	w.Flush()
	fmt.Println()
	return nil
}

func mb(b int64) float64 { return float64(b) / (1 << 20) }

// crowded opens sessions that ask once and then say nothing, and gives the
// resident memory while they are there.
func (p *proxy) crowded(sessions int) (int64, error) {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range sessions {
		c, err := p.dial()
		if err != nil {
			return 0, fmt.Errorf("session %d: %w", len(open), err)
		}
		open = append(open, c)
		if _, err := c.Write(greeting); err != nil {
			return 0, err
		}
		f := &frames{Conn: c}
		if _, err := f.next(); err != nil {
			return 0, fmt.Errorf("session %d: %w", len(open), err)
		}
	}
	time.Sleep(2 * time.Second)
	return p.proc.SettledRSS(), nil
}

// raiseFiles lifts the limit of open files to the hard one.
func raiseFiles() error {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	lim.Cur = lim.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim)
}
