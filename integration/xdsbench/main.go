// Command xdsbench compares Penstock's discovery server with go-control-plane's
// SnapshotCache and server, which serve the same endpoints: the CPU time of the
// server's process for one change, and the time until the clients have it.
//
// 1,000 clients, each with a connection of its own, have subscribed to the
// endpoints of 1,000 services. One endpoint of one service changes; the next
// change follows when every client has accepted this one. Each server runs in a
// process of its own, and the clients in another, which decodes only the fields
// that an answer needs. The two servers take turns, so that disturbances of the
// machine affect both.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

type options struct {
	clients, services, changes, rounds int
	only                               string // "delta" or "sotw"; "": both
	verbose                            bool

	serve, connect string // the role of a child: what it serves, or where it connects to
	delta          bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("xdsbench: ")
	var o options
	flag.IntVar(&o.clients, "clients", 1000, "clients")
	flag.IntVar(&o.services, "services", 1000, "services")
	flag.IntVar(&o.changes, "changes", 3, "changes in each round")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds")
	flag.StringVar(&o.only, "only", "", "the variant of the protocol: delta, or sotw for the state of the world; default: both")
	flag.BoolVar(&o.verbose, "v", false, "print each round")
	flag.StringVar(&o.serve, "serve", "", "internal: serve as penstock or go-control-plane")
	flag.StringVar(&o.connect, "connect", "", "internal: run the clients of this address")
	flag.BoolVar(&o.delta, "delta", false, "internal: the clients' variant of the protocol")
	flag.Parse()
	var err error
	switch {
	case o.serve != "":
		err = serve(&o)
	case o.connect != "":
		err = connect(&o)
	default:
		err = compare(&o)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// side is a server with its clients.
type side struct {
	name            string
	server, clients *child

	connected  time.Duration   // CPU until all clients have everything
	cpu        []time.Duration // per change, of each round
	seen, last []time.Duration // p99 and maximum of each round
	median     []time.Duration
}

var names = []string{"penstock", "go-control-plane"}

func compare(o *options) error {
	for _, delta := range []bool{true, false} {
		variant := "sotw"
		if delta {
			variant = "delta"
		}
		if o.only != "" && o.only != variant {
			continue
		}
		fmt.Printf("%s: %d clients, %d services, %d rounds of %d changes\n", variant, o.clients, o.services, o.rounds, o.changes)
		if err := compareVariant(o, delta); err != nil {
			return fmt.Errorf("%s: %w", variant, err)
		}
	}
	return nil
}

func compareVariant(o *options, delta bool) error {
	var sides []*side
	defer func() {
		for _, s := range sides {
			s.clients.stop()
			s.server.stop()
		}
	}()
	for _, name := range names {
		s, err := newSide(o, name, delta)
		if s != nil {
			sides = append(sides, s)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for round := range o.rounds + 1 {
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			if err := s.round(o, round > 0); err != nil { // the first is a warm-up
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	report(sides)
	return nil
}

// newSide starts a server and connects its clients.
func newSide(o *options, name string, delta bool) (*side, error) {
	s := &side{name: name}
	sizes := []string{"-clients", strconv.Itoa(o.clients), "-services", strconv.Itoa(o.services)}
	var err error
	if s.server, err = start(append(sizes, "-serve", name)...); err != nil {
		return nil, err
	}
	address, err := s.server.read()
	if err == nil {
		s.clients, err = start(append(sizes, "-connect", address, "-delta="+strconv.FormatBool(delta))...)
	}
	if err != nil {
		s.server.stop()
		return nil, err
	}
	if _, err = s.clients.read(); err != nil {
		return s, err
	}
	s.connected, err = s.used()
	return s, err
}

// used returns the CPU time of the server's process.
func (s *side) used() (time.Duration, error) {
	text, err := s.server.ask("cpu")
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(ns), err
}

// round makes changes, and measures them if count.
func (s *side) round(o *options, count bool) error {
	before, err := s.used()
	if err != nil {
		return err
	}
	var seen []time.Duration
	for range o.changes {
		at, err := s.server.ask("change")
		if err != nil {
			return err
		}
		text, err := s.clients.ask(at)
		if err != nil {
			return err
		}
		for word := range strings.FieldsSeq(text) {
			ns, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				return err
			}
			seen = append(seen, time.Duration(ns))
		}
	}
	after, err := s.used()
	if err != nil || !count {
		return err
	}
	slices.Sort(seen)
	s.cpu = append(s.cpu, (after-before)/time.Duration(o.changes))
	s.median = append(s.median, seen[len(seen)/2])
	s.seen = append(s.seen, seen[len(seen)*99/100])
	s.last = append(s.last, seen[len(seen)-1])
	if o.verbose {
		fmt.Printf("  %-17s CPU %v, seen p50 %v, p99 %v, last %v\n", s.name, s.cpu[len(s.cpu)-1],
			s.median[len(s.median)-1], s.seen[len(s.seen)-1], s.last[len(s.last)-1])
	}
	return nil
}

// report prints the medians over the rounds.
func report(sides []*side) {
	fmt.Printf("  %-18s %12s %12s %12s %12s %14s\n", "", "CPU/change", "seen p50", "seen p99", "last", "CPU to connect")
	for _, s := range sides {
		fmt.Printf("  %-18s %12v %12v %12v %12v %14v\n", s.name, round(medianOf(s.cpu)), round(medianOf(s.median)),
			round(medianOf(s.seen)), round(medianOf(s.last)), round(s.connected))
	}
	ratios := make([]float64, len(sides[0].cpu))
	for i := range ratios {
		ratios[i] = float64(sides[0].cpu[i]) / float64(sides[1].cpu[i])
	}
	fmt.Printf("  CPU, times go-control-plane's: %.3f; to connect: %.3f\n\n",
		medianOf(ratios), float64(sides[0].connected)/float64(sides[1].connected))
}

func medianOf[T time.Duration | float64](list []T) T {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// child is a process of this program with another role. It reads commands from
// its standard input, and ends when that ends.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(context.Background(), self, args...)}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	return c, c.cmd.Start()
}

func (c *child) read() (string, error) {
	line, err := c.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (c *child) ask(command string) (string, error) {
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		return "", err
	}
	return c.read()
}

func (c *child) stop() {
	if c != nil {
		c.in.Close()
		_ = c.cmd.Wait()
	}
}
