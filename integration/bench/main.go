// Command bench compares Penstock with HAProxy and nginx: the CPU time that each
// proxy's processes use per unit of work, and the memory per connection. Clients
// and backends run in this process; only the proxies are charged.
//
// All proxies run at the same time on the same backends, and each round measures
// them in turn, so that disturbances of the machine affect all of them. It
// reports the median over the rounds of each round's ratio to HAProxy; absolute
// times would mean nothing on another machine.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"time"
)

type options struct {
	penstock string
	rounds   int
	window   time.Duration
	workers  int
	names    int
	only     *regexp.Regexp
	verbose  bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	var o options
	only := flag.String("only", "", "run only the measures whose name matches this expression")
	flag.StringVar(&o.penstock, "penstock", "bin/penstock", "the binary to measure")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each measure")
	flag.DurationVar(&o.window, "window", 2*time.Second, "how long each proxy is measured in a round")
	flag.IntVar(&o.workers, "workers", 1, "loops, threads and worker processes of each proxy")
	flag.IntVar(&o.names, "names", 100_000, "server names in the large listener")
	flag.BoolVar(&o.verbose, "v", false, "print each round")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		log.Fatal(err)
	}
	if err := run(&o); err != nil {
		log.Fatal(err)
	}
}

func run(o *options) error {
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	env, err := newEnv(o, dir)
	if err != nil {
		return err
	}
	defer env.close()
	fmt.Printf("%d rounds of %v, %d worker(s) each; CPU is user and system time of the proxy's processes\n\n",
		o.rounds, o.window, o.workers)
	if err := runRatios(env); err != nil {
		return err
	}
	if err := runMesh(env); err != nil {
		return err
	}
	if err := runGuards(env); err != nil {
		return err
	}
	if err := runTracing(env); err != nil {
		return err
	}
	return runMemory(env)
}
