// Command mysqlbench measures what Penstock's MySQL listener costs: CPU per query and
// per session, memory of idle sessions, and moves of sessions from one server to
// another. It compares them with HAProxy in TCP mode, which parses nothing, and with
// Penstock's own plain TCP listener: the difference to that is the cost of reading the
// packets' headers.
//
// Clients and a stand-in server with prepared answers run in this process; only the
// proxies are charged. sysbench with MariaDB does the same with programs that people
// have. All proxies run at the same time on the same servers, and each round measures
// them in turn, starting with another one; a figure is the median over the rounds of
// each round's ratio to HAProxy.
//
// With TLS HAProxy terminates a connection that begins with TLS, as it knows nothing of
// the request for TLS that MySQL's clients send after the greeting. Both do one
// handshake, and both speak plain text to the server.
//
// Limits: loopback, so the network costs only CPU; a stand-in in place of TiDB, so a
// move has none of the server's own work in it.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"penstock/internal/testkit/process"
)

type options struct {
	penstock string
	rounds   int
	window   time.Duration
	workers  int
	sessions int
	only     *regexp.Regexp
	pprof    bool
	short    bool
	verbose  bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("mysqlbench: ")
	var o options
	only := flag.String("only", "", "run only the measures whose name matches this expression")
	flag.StringVar(&o.penstock, "penstock", "bin/penstock", "the binary to measure")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each measure")
	flag.DurationVar(&o.window, "window", 2*time.Second, "how long each proxy is measured in a round")
	flag.IntVar(&o.workers, "workers", 1, "loops and threads of each proxy")
	flag.IntVar(&o.sessions, "sessions", 3000, "idle sessions whose memory is measured")
	flag.BoolVar(&o.pprof, "pprof", false, "have Penstock serve profiles, and print where")
	flag.BoolVar(&o.short, "short", false, "one round of everything, just to see that it runs")
	flag.BoolVar(&o.verbose, "v", false, "print each round")
	flag.Parse()
	if o.short {
		o.rounds, o.window, o.sessions = 1, 200*time.Millisecond, 100
	}
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

func run(o *options) error {
	began := time.Now()
	if err := process.RaiseFiles(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pmb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	e, err := newEnv(o, dir)
	if err != nil {
		return err
	}
	defer e.close()
	fmt.Printf("%d rounds of %v, %d worker(s) each; CPU is user and system time of the proxy's process\n\n", o.rounds, o.window, o.workers)
	for _, step := range []func(*env) error{runMeasures, runMoves, runMemory} {
		if err := step(e); err != nil {
			return err
		}
	}
	if !o.short { // what it measures says nothing
		e.goals.Print()
	}
	fmt.Printf("in all: %v\n", time.Since(began).Round(time.Second))
	return nil
}
