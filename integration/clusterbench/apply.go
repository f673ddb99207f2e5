package main

import (
	"bytes"
	"fmt"
	"time"

	"penstock/node/api"
)

// measureApply measures the time from sending a change until all three nodes
// act on it, as reported by an apply that waits for all, on an otherwise idle
// cluster. The changes go to each node in turn, so two of three are forwarded
// to the leader.
func measureApply(e *env) error {
	for _, where := range []struct {
		name, dir string
		p50, p99  float64
	}{{"in memory", e.base, 10, 50}, {"on disk", e.disk, 0, 0}} {
		if err := applyIn(e, where.name, where.dir, where.p50, where.p99); err != nil {
			return err
		}
	}
	return nil
}

func applyIn(e *env, name, dir string, p50, p99 float64) error {
	f, err := startCluster(e, plan{size: 3, dir: dir})
	if err != nil {
		return err
	}
	defer f.stop()
	const warm = 60
	var times []time.Duration
	for i := range warm + 200*e.rounds {
		n := f.nodes[i%len(f.nodes)]
		began := time.Now()
		r, err := ask[api.ApplyResult](n, 30*time.Second, api.MethodApply, api.ApplyRequest{Documents: [][]byte{service("svc", i)}})
		if err != nil {
			return err
		}
		took := time.Since(began)
		if r.Reached.Nodes != 3 || len(r.Reached.Late) > 0 {
			return fmt.Errorf("change %d reached %d nodes: %v", i, r.Reached.Nodes, r.Reached.Late)
		}
		if i >= warm {
			times = append(times, took)
		}
		if i%50 == 0 {
			if err := f.actsOn("svc", fmt.Sprintf("127.0.0.1:%d", 1024+i%60000)); err != nil {
				return err
			}
		}
		// Back-to-back changes would find caches and connections warm.
		time.Sleep(5 * time.Millisecond)
	}
	e.atMost("apply -> active on 3 nodes, "+name+", p50", "ms", ms(percentile(times, 50)), p50)
	e.atMost("apply -> active on 3 nodes, "+name+", p99", "ms", ms(percentile(times, 99)), p99)
	e.note("apply -> active on 3 nodes, "+name+", most", "ms", ms(percentile(times, 100)))
	return nil
}

// actsOn checks that each node, asked for its local state, has a service with
// that endpoint.
func (f *cluster) actsOn(name, endpoint string) error {
	for _, n := range f.nodes {
		r, err := ask[api.GetResult](n, 5*time.Second, api.MethodGet, api.GetRequest{Kind: "Service", Name: name, Stale: true})
		if err != nil {
			return err
		}
		if len(r.Documents) != 1 || !bytes.Contains(r.Documents[0].Data, []byte(endpoint)) {
			return fmt.Errorf("%s was said to act on %s of %s, and has %+v", n.name, endpoint, name, r.Documents)
		}
	}
	return nil
}
