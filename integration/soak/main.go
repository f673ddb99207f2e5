// Command soak keeps a real node under load while its configuration changes
// every second. It fails if a connection breaks or if memory or descriptors
// grow.
//
// Half of the connections are long: opened at the start and used until the end.
// The others come and go. Of each half, 50 % are plain TCP, 25 % TLS passed
// through by SNI, and 25 % TLS that the node terminates.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"penstock/internal/testkit/process"
)

type options struct {
	penstock    string
	length      time.Duration
	connections int
}

func main() {
	log.SetFlags(log.Ltime)
	var o options
	flag.StringVar(&o.penstock, "penstock", "bin/penstock", "the binary to soak")
	flag.DurationVar(&o.length, "for", 10*time.Minute, "how long")
	flag.IntVar(&o.connections, "connections", 2000, "connections at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		log.Fatal("FAILED: ", err)
	}
}

func run(ctx context.Context, o *options) error {
	dir, err := os.MkdirTemp("", "penstock-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w, err := newFixtures()
	if err != nil {
		return err
	}
	defer w.close()
	file := filepath.Join(dir, "start.yaml")
	if err := os.WriteFile(file, []byte(w.resources(0)), 0o600); err != nil {
		return err
	}
	ports, err := process.FreePorts(2)
	if err != nil {
		return err
	}
	node, err := process.Start("penstock", dir, []string{
		o.penstock, "start", "--dev", "--data-dir", dir, "--resources", file, "--access-log", "off",
		"--cluster", process.Loopback(ports[0]), "--http", process.Loopback(ports[1]),
	}, w.plainPort, w.sniPort, w.tlsPort)
	if err != nil {
		return err
	}
	defer node.Kill()
	return soak(ctx, o, w, node, "unix:"+filepath.Join(dir, "penstock.sock"))
}

// sample is the node's resource usage at one time.
type sample struct {
	at  time.Duration
	rss int64
	fds int
}

func soak(ctx context.Context, o *options, w *fixtures, node *process.Process, admin string) error {
	began := time.Now()
	l := newLoad(w, o.connections)
	ctx, cancel := context.WithTimeout(ctx, o.length)
	defer cancel()
	changed := make(chan changes, 1)
	go func() { changed <- w.change(ctx, admin) }()
	stop := l.start(ctx)

	var samples []sample
	tick := time.NewTicker(max(o.length/60, time.Second))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			s := sample{time.Since(began), node.RSS(), node.Descriptors()}
			samples = append(samples, s)
			c := l.counts()
			log.Printf("%v: %d open, %d done, %d exchanges, %d broken; RSS %.1f MB, %d descriptors",
				s.at.Round(time.Second), c.open, c.done, c.exchanges, c.broken, float64(s.rss)/1e6, s.fds)
		}
	}
	stop()
	ch := <-changed
	c := l.counts()
	log.Printf("%d connections came and went, %d stayed throughout, %d exchanges; %d changes of the configuration, "+
		"%d failed; the client has %d goroutines left",
		c.done, c.long, c.exchanges, ch.done, ch.failed, runtime.NumGoroutine())
	return errors.Join(l.verdict(), ch.verdict(), growth(samples))
}

// growth compares the last third of the samples with the second; the first is
// warm-up. It allows for 10 % of noise.
func growth(s []sample) error {
	if len(s) < 9 {
		return fmt.Errorf("only %d samples: soak for longer", len(s))
	}
	middle, last := s[len(s)/3:2*len(s)/3], s[2*len(s)/3:]
	var errs []error
	a, b := meanOf(middle, func(x sample) float64 { return float64(x.rss) }), meanOf(last, func(x sample) float64 { return float64(x.rss) })
	if b > a*1.1 {
		errs = append(errs, fmt.Errorf("resident memory grew from %.1f to %.1f MB", a/1e6, b/1e6))
	}
	log.Printf("resident memory: %.1f MB in the second third, %.1f MB in the last", a/1e6, b/1e6)
	a, b = meanOf(middle, func(x sample) float64 { return float64(x.fds) }), meanOf(last, func(x sample) float64 { return float64(x.fds) })
	if b > a*1.1 {
		errs = append(errs, fmt.Errorf("descriptors grew from %.0f to %.0f", a, b))
	}
	log.Printf("descriptors: %.0f in the second third, %.0f in the last", a, b)
	return errors.Join(errs...)
}

func meanOf(s []sample, of func(sample) float64) float64 {
	sum := 0.0
	for _, x := range s {
		sum += of(x)
	}
	return sum / float64(len(s))
}
