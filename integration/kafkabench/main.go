// Command kafkabench measures the cost of a proxy in front of a real Kafka
// broker: Penstock, with and without a tenant's filter and with TLS, compared
// with direct connections and with HAProxy in TCP mode, which parses nothing and
// is the lower bound.
//
// The client writes prebuilt request frames and decodes as little of the answers
// as it can, which leaves the cores of a small machine to the broker and the
// proxy. All proxies run at the same time on one warm broker; each round measures
// them in turn, starting with another one. It reports the median over the rounds
// of each round's ratio to direct; CPU is user and system time of the proxy's
// process.
//
// Limits: one broker, so no replication; loopback, so the network costs only CPU;
// two connections, so no contention in schedulers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"penstock/integration/realkafka"
	"penstock/internal/testkit/process"
)

type options struct {
	penstock string
	rounds   int
	window   time.Duration
	warm     int // MB written before the measurements
	sessions int
	only     *regexp.Regexp
	who      *regexp.Regexp
	verbose  bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("kafkabench: ")
	var o options
	only := flag.String("only", "", "run only the measures whose name matches this expression")
	who := flag.String("who", "", "measure only the proxies whose name matches this expression (and direct)")
	short := flag.Bool("short", false, "one round of everything, just to see that it runs")
	flag.StringVar(&o.penstock, "penstock", "bin/penstock", "the binary to measure")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each measure")
	flag.DurationVar(&o.window, "window", 4*time.Second, "how long each proxy is measured in a round")
	flag.IntVar(&o.warm, "warm", 2500, "MB produced to warm the broker up")
	flag.IntVar(&o.sessions, "sessions", 5000, "idle sessions whose memory is measured")
	flag.BoolVar(&o.verbose, "v", false, "print each round")
	flag.Parse()
	if *short {
		o.rounds, o.window, o.warm, o.sessions = 1, 300*time.Millisecond, 100, 100
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		log.Fatal(err)
	}
	if o.who, err = regexp.Compile(*who); err != nil {
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
	dir, err := os.MkdirTemp("", "pkb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	e, err := newEnv(ctx, o, dir)
	if errors.Is(err, realkafka.ErrMissing) && os.Getenv("CI") != "true" {
		log.Print("NOT MEASURED: ", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer e.close()
	if err := e.start(); err != nil {
		return err
	}
	for _, p := range e.proxies {
		if p.proc != nil {
			p.idle = p.proc.SettledRSS()
		}
	}
	fmt.Printf("%d rounds of %v; 1 KB records, %d partitions, acks=all; times of direct are medians of each round's ratio\n\n",
		o.rounds, o.window, partitions)
	if err := runMeasures(ctx, e); err != nil {
		return err
	}
	if err := runMemory(e); err != nil {
		return err
	}
	e.goals.Print()
	fmt.Printf("in all: %v\n", time.Since(began).Round(time.Second))
	return nil
}
