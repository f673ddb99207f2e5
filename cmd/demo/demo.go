// Package demo demonstrates Penstock on one machine. It starts three nodes as
// separate processes, a balancer in front of them and real services behind them,
// sends client traffic and counts whether every connection was answered.
// Meanwhile it kills nodes with SIGKILL, the leader first, and restarts them,
// changes a traffic split through varying nodes, and stops and restarts an
// endpoint.
//
// All figures on its screen are measured: the split comes from the answers to
// clients, failures from their connections, the connections of a killed node
// from the balancer, and everything else from the nodes' admin API. The only
// failures it excuses are connections that a killed node carried.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// ErrUnanswered is returned if a client's connection was not answered although
// no killed node carried it.
var ErrUnanswered = errors.New("not every connection was answered")

var errInterrupted = errors.New("interrupted before there was any traffic")

// Options configure a run of the demo.
type Options struct {
	// For ends the demo after that time with traffic, but not before a leader was
	// killed, replaced, and is back; 0: when the context ends.
	For time.Duration
	// Screen enables a live screen with terminal codes instead of plain lines.
	Screen bool
	Out    io.Writer
	// Executable is the path of this program, used to start the nodes.
	Executable string
}

// Run runs the demo. It returns nil if every connection was answered except
// those that a killed node carried, ErrUnanswered if not, and any other error
// if the demo could not run.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return err
	}
	// 1. The sweeper, which cleans up however this process ends.
	s, err := newSweeper(o.Executable, dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer s.sweep()
	// 2. The services, and the addresses of everything else.
	w, err := newFixtures(dir)
	if err != nil {
		return err
	}
	defer w.close()
	f, err := newCluster(ctx, o.Executable, dir)
	if err != nil {
		return err
	}
	defer f.close()
	// 3. Status polling and the balancer's health probes.
	polling, stopPolling := context.WithCancel(context.Background())
	var pollers sync.WaitGroup
	defer pollers.Wait()
	defer stopPolling()
	for i, n := range f.nodes {
		pollers.Go(func() { n.pollReports(polling) })
		pollers.Go(func() { f.balancer.probe(polling, i, "http://"+n.http+"/readyz") })
	}
	// 4. The nodes.
	began := time.Now()
	if err := f.bootstrap(ctx); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	v := &view{
		out: o.Out, screen: o.Screen, fixtures: w, cluster: f, program: program(o.Executable),
		began: began, health: map[string]string{},
	}
	err = play(ctx, &o, v)
	// 6. The clients have ended. Stop the nodes before the services that they
	// forward to.
	if err := errors.Join(err, f.stop()); err != nil {
		return err
	}
	return v.verdict()
}

// play runs from the first resource to the end of the last client.
func play(ctx context.Context, o *Options, v *view) error {
	s := newScenario(v.fixtures, v.cluster, v.event)
	frontPort, _ := strconv.Atoi(portText(v.cluster.kafka))
	kafka, err := v.fixtures.kafkaResources(v.cluster.ports, frontPort)
	if err != nil {
		return err
	}
	n, _, _, err := s.apply(ctx, v.fixtures.resources(v.cluster.ports, 100-firstV2)+"---\n"+kafka)
	if err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	for i, n := range v.cluster.nodes {
		if err := v.cluster.await(ctx, n, "is not listening", n.listens); err != nil {
			return err
		}
		v.event("%s serves at %s (process %d), ready: %t", n.name, n.host, n.pid(), v.cluster.balancer.counts(i).up)
	}
	// 5. Clients, events and the screen, until the time is up.
	t := newTraffic(v.fixtures, v.cluster)
	k := &kafkaTraffic{fixtures: v.fixtures, cluster: v.cluster}
	stopKafka, err := k.start(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return fmt.Errorf("kafka: %w", err)
	}
	defer stopKafka()
	v.traffic, v.scenario, v.kafka = t, s, k
	v.event("traffic starts, %s after the first node", seconds(time.Since(v.began)))
	stop := t.start()
	running, end := context.WithCancel(ctx)
	defer end()
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() {
		failed = s.run(running)
		end()
	})
	wg.Go(func() { v.watchEndpoints(running) })
	wg.Go(func() { s.changeTenants(running, k) })
	if o.For > 0 {
		wg.Go(func() {
			pause(running, o.For)
			select {
			case <-s.firstRound:
			case <-running.Done():
			}
			end()
		})
	}
	v.run(running)
	wg.Wait()
	stop()
	stopKafka()
	v.printSummary()
	return failed
}

// listens reports whether all listeners of the node are listening.
func (n *node) listens() bool {
	r := n.lastReport()
	if r == nil {
		return false
	}
	on := 0
	for _, l := range r.listeners {
		if l.State == "listening" {
			on++
		}
	}
	return on == listeners
}
