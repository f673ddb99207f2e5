package main

import (
	"fmt"
	"time"

	"penstock/node/api"
)

// measureWide forms a cluster of many nodes, all started at once, and applies
// changes to all of them.
func measureWide(e *env) error {
	began := time.Now()
	f, err := startCluster(e, plan{size: e.nodes, together: true, flags: []string{"--loops", "1"}})
	if err != nil {
		return err
	}
	defer f.stop()
	e.atMost(fmt.Sprintf("%d nodes, 5 voters: formed, each seen by each", e.nodes), "s", time.Since(began).Seconds(), 30)
	e.note(fmt.Sprintf("%d nodes: CPU of all until then", e.nodes), "s", f.cpu().Seconds())
	var times []float64
	for i := range 2 * e.rounds {
		began := time.Now()
		n := f.nodes[(7*i+3)%len(f.nodes)]
		r, err := ask[api.ApplyResult](n, 60*time.Second, api.MethodApply, api.ApplyRequest{Documents: [][]byte{service("svc", i)}})
		if err != nil {
			return err
		}
		if r.Reached.Nodes != e.nodes || len(r.Reached.Late) > 0 {
			return fmt.Errorf("change %d reached %d nodes: %v", i, r.Reached.Nodes, r.Reached.Late)
		}
		times = append(times, time.Since(began).Seconds())
		e.say("change %d by %s: %.0f ms", i, n.name, 1e3*times[i])
	}
	if err := f.actsOn("svc", fmt.Sprintf("127.0.0.1:%d", 1024+2*e.rounds-1)); err != nil {
		return err
	}
	// The first change opens connections between nodes.
	e.atMost(fmt.Sprintf("%d nodes: the first change acts on all", e.nodes), "s", times[0], 1)
	e.atMost(fmt.Sprintf("%d nodes: a change acts on all, median", e.nodes), "s", median(times[1:]), 1)
	before, from := f.cpu(), time.Now()
	select {
	case <-time.After(10 * time.Second):
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
	share := 100 * float64(f.cpu()-before) / float64(time.Since(from)) / float64(e.nodes)
	e.note(fmt.Sprintf("%d nodes, idle: CPU of each", e.nodes), "% of a core", share)
	rss := int64(0)
	for _, n := range f.nodes {
		rss += n.proc.RSS()
	}
	e.note(fmt.Sprintf("%d nodes: RSS of each", e.nodes), "MiB", float64(rss)/float64(e.nodes)/(1<<20))
	return nil
}
