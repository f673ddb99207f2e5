package main

import (
	"context"
	"fmt"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

// measureFailover kills the leader of three nodes and sends a change to both
// others repeatedly until one succeeds. Timeouts are the defaults.
func measureFailover(e *env) error {
	f, err := startCluster(e, plan{size: 3})
	if err != nil {
		return err
	}
	defer f.stop()
	var first, both []float64
	for i := range 2 * e.rounds {
		leader, err := f.leader()
		if err != nil {
			return err
		}
		began := time.Now()
		if err := leader.kill(); err != nil {
			return err
		}
		accepted := make(chan error, 2)
		for _, n := range f.nodes {
			if n != leader {
				go func() { accepted <- n.untilWritten(fmt.Sprintf("svc-%s-%d", n.name, i)) }()
			}
		}
		var took []float64
		for range 2 {
			if err := <-accepted; err != nil {
				return err
			}
			took = append(took, time.Since(began).Seconds())
		}
		e.say("%d: %s killed, writes again after %.2f s, on both nodes after %.2f s", i+1, leader.name, took[0], took[1])
		first, both = append(first, took[0]), append(both, took[1])
		if err := leader.begin(); err != nil {
			return err
		}
		if err := f.waitSettled(60 * time.Second); err != nil {
			return err
		}
	}
	e.atMost("leader killed -> writes accepted again, median", "s", median(first), 2)
	e.note("leader killed -> writes accepted again, most", "s", percentile(first, 100))
	e.note("leader killed -> writes accepted on both other nodes, median", "s", median(both))
	return nil
}

// untilWritten retries a change at a node until it succeeds, on a separate
// connection.
func (n *node) untilWritten(name string) error {
	c, err := n.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return untilEvery(5*time.Millisecond, n.name+" to write", 60*time.Second, func() error {
		ctx, cancel := context.WithTimeout(n.e.ctx, 20*time.Second)
		defer cancel()
		_, err := rpc.Call[api.ApplyResult](ctx, c, api.MethodApply,
			api.ApplyRequest{Documents: [][]byte{service(name, 1)}, Wait: api.Wait{Nodes: -1}})
		return err
	})
}
