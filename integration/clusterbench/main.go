// Command clusterbench measures Penstock as a cluster: the time until a change
// is active on every node, changes per second compared with plain Raft, the cost
// of 100,000 resources and of fifty nodes, the time without a leader after a
// crash, and the cost of an idle cluster.
//
// Nodes are processes of the real binary, each with its own loopback address and
// data folder, in memory (tmpfs) unless a measure concerns the disk. Everything
// runs on one machine, so nodes, clients and the systems that they are compared
// with share its cores.
//
//	go run ./integration/clusterbench -only 'apply|writes' -v
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
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"penstock/internal/testkit/process"
)

type options struct {
	penstock string
	memory   string // folder on tmpfs
	disk     string // folder on a disk
	rounds   int
	window   time.Duration
	clients  int
	names    int
	nodes    int
	only     *regexp.Regexp
	verbose  bool
	keep     bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("clusterbench: ")
	if len(os.Args) > 1 && os.Args[1] == plainCommand {
		log.Fatal(runPlain(os.Args[2:])) // serves until it is killed
	}
	var o options
	only := flag.String("only", "", "run only the measures whose name matches this expression")
	flag.StringVar(&o.penstock, "penstock", "bin/penstock", "the binary to measure, built without -race")
	flag.StringVar(&o.memory, "memory", "/dev/shm", "folder on tmpfs")
	flag.StringVar(&o.disk, "disk", os.TempDir(), "folder on a disk")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of what is measured in rounds")
	flag.DurationVar(&o.window, "window", 2*time.Second, "how long one round of a load is")
	flag.IntVar(&o.clients, "clients", 32, "clients that write")
	flag.IntVar(&o.names, "names", 100_000, "resources of the large cluster")
	flag.IntVar(&o.nodes, "nodes", 50, "nodes of the wide cluster")
	flag.BoolVar(&o.verbose, "v", false, "tell what goes on")
	flag.BoolVar(&o.keep, "keep", false, "leave the folders of the nodes, with their logs")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		log.Fatal(err)
	}
	if o.penstock, err = filepath.Abs(o.penstock); err != nil {
		log.Fatal(err)
	}
	if err := run(&o); err != nil {
		log.Fatal(err)
	}
}

// A measure is one scenario that yields some figures.
type measure struct {
	name string
	run  func(*env) error
}

func measures() []measure {
	return []measure{
		{"apply", measureApply},
		{"virtual clusters", measureVirtual},
		{"writes", measureWrites},
		{"large", measureLarge},
		{"leader killed", measureFailover},
		{"wide", measureWide},
		{"data path", measureDataPath},
		{"quota", measureQuota},
		{"idle", measureIdle},
	}
}

// env is the environment of the measures.
type env struct {
	*options
	ctx  context.Context
	base string // folder on tmpfs
	disk string // folder on a disk
	rows []row
}

// row is a figure with its goal.
type row struct {
	name, figure, goal, verdict string
}

// add adds a figure to the table. limit is in the same unit; 0: none.
func (e *env) add(name, unit string, value, limit float64, atLeast bool) {
	r := row{name: name, figure: fmt.Sprintf("%.3g %s", value, unit)}
	if value >= 1000 {
		r.figure = fmt.Sprintf("%.0f %s", value, unit)
	}
	if limit > 0 {
		sign, met := "<=", value <= limit
		if atLeast {
			sign, met = ">=", value >= limit
		}
		r.goal, r.verdict = fmt.Sprintf("%s %.3g %s", sign, limit, unit), "met"
		if !met {
			r.verdict = "MISSED"
		}
	}
	e.rows = append(e.rows, r)
	e.say("%s: %s %s %s", r.name, r.figure, r.goal, r.verdict)
}

func (e *env) atMost(name, unit string, value, limit float64) { e.add(name, unit, value, limit, false) }
func (e *env) note(name, unit string, value float64)          { e.add(name, unit, value, 0, false) }

// say prints progress on stderr with -v.
func (e *env) say(format string, args ...any) {
	if e.verbose {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

func run(o *options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := process.RaiseFiles(); err != nil {
		return err
	}
	e := &env{options: o, ctx: ctx}
	for _, f := range []struct {
		at *string
		in string
	}{{&e.base, o.memory}, {&e.disk, o.disk}} {
		var err error
		// The path of a unix socket is at most 107 bytes long.
		if *f.at, err = os.MkdirTemp(f.in, "pscb-"); err != nil {
			return err
		}
		if !o.keep {
			defer os.RemoveAll(*f.at)
		}
	}
	var errs []error
	for _, m := range measures() {
		if !o.only.MatchString(m.name) || ctx.Err() != nil {
			continue
		}
		e.say("# %s", m.name)
		if err := m.run(e); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			e.rows = append(e.rows, row{m.name, "failed", "", "MISSED"})
		}
	}
	e.print()
	return errors.Join(errs...)
}

func (e *env) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.Debug)
	for _, r := range append([]row{{"measure", "Penstock", "goal", ""}}, e.rows...) {
		fmt.Fprintln(w, strings.Join([]string{r.name, r.figure, r.goal, r.verdict}, "\t ")+"\t")
	}
	w.Flush()
}
