package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

const (
	// changeRate is the number of changes per second.
	changeRate = 100
	// pairs is the number of connections that exchange 256 bytes.
	pairs = 64
)

// measureDataPath measures the CPU time of a node per round trip of 256 bytes,
// idle and while 100 changes per second are applied. The CPU time of the
// changes themselves is measured separately; the raw figure includes it, the
// net figure does not.
func measureDataPath(e *env) error {
	l, err := (&net.ListenConfig{}).Listen(e.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go echo(l)
	f, err := startCluster(e, plan{size: 3, flags: []string{"--loops", "1"}})
	if err != nil {
		return err
	}
	defer f.stop()
	docs := [][]byte{
		[]byte(`{"kind":"Listener","name":"plain","spec":{"address":":7001","service":"echo"}}`),
		fmt.Appendf(nil, `{"kind":"Service","name":"echo","spec":{"endpoints":[{"address":%q}]}}`, l.Addr()),
	}
	if _, err := ask[api.ApplyResult](f.nodes[0], 10*time.Second, api.MethodApply, api.ApplyRequest{Documents: docs}); err != nil {
		return err
	}
	leader, err := f.leader()
	if err != nil {
		return err
	}
	var follower, other *node
	for _, n := range f.nodes {
		if n != leader {
			follower, other = n, follower
		}
	}
	if err := dataPathOf(e, "a follower", follower, other); err != nil {
		return err
	}
	return dataPathOf(e, "the leader", leader, other)
}

// dataPathOf measures one node while another one is sent changes.
func dataPathOf(e *env, name string, n, changed *node) error {
	var raw, net, quiet, alone []float64
	for round := range e.rounds + 1 {
		calm, err := n.cost(e.window, nil)
		if err != nil {
			return err
		}
		busy, err := n.cost(e.window, changed)
		if err != nil {
			return err
		}
		stream, err := n.changesAlone(e.window, changed)
		if err != nil {
			return err
		}
		if round == 0 {
			continue // warm-up
		}
		perTrip := func(u usage, less float64) float64 { return (u.cpu - less) / u.trips }
		quiet = append(quiet, perTrip(calm, 0)/1e3)
		alone = append(alone, stream.cpu/stream.changes/1e3)
		raw = append(raw, perTrip(busy, 0)/perTrip(calm, 0))
		net = append(net, perTrip(busy, stream.cpu/stream.changes*busy.changes)/perTrip(calm, 0))
		e.say("%s: quiet %.2f us, busy %.2f us of %.0f trips and %.0f changes; changes alone %.0f us each", name,
			quiet[round-1], perTrip(busy, 0)/1e3, busy.trips, busy.changes, alone[round-1])
	}
	e.note("CPU per 256 B round trip, "+name+", quiet", "us", median(quiet))
	e.note("CPU per change at 100 a second, "+name+", without traffic", "us", median(alone))
	e.note("CPU per round trip while 100 changes a second come, "+name+", raw", "x", median(raw))
	e.atMost("CPU per round trip while 100 changes a second come, "+name+", net of the changes' own", "x", median(net), 1.1)
	return nil
}

// usage is the work of a node in an interval, and its CPU time in nanoseconds.
type usage struct{ cpu, trips, changes float64 }

// cost loads a node with round trips while changed, if not nil, is sent
// changes.
func (n *node) cost(d time.Duration, changed *node) (usage, error) {
	var u usage
	var made atomic.Int64
	ctx, cancel := context.WithCancel(n.e.ctx)
	defer cancel()
	ended := make(chan error, 1)
	if changed != nil {
		go func() { ended <- changed.changes(ctx, &made) }()
	}
	before := n.proc.CPU()
	rate, err := writers(pairs, d, func(int) (func() error, func(), error) { return dialTrip(n) })
	if err != nil {
		return u, err
	}
	u.cpu, u.trips, u.changes = float64(n.proc.CPU()-before), rate*d.Seconds(), float64(made.Load())
	cancel()
	if changed != nil {
		err = <-ended
	}
	return u, err
}

// changesAlone measures the CPU time of changes on an otherwise idle node.
func (n *node) changesAlone(d time.Duration, changed *node) (usage, error) {
	var made atomic.Int64
	ctx, cancel := context.WithTimeout(n.e.ctx, d)
	defer cancel()
	before := n.proc.CPU()
	err := changed.changes(ctx, &made)
	return usage{cpu: float64(n.proc.CPU() - before), changes: float64(made.Load())}, err
}

// changes sends changes to a node at a steady rate until ctx ends. They concern
// services without traffic.
func (n *node) changes(ctx context.Context, made *atomic.Int64) error {
	c, err := n.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(time.Second / changeRate)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		turn := int(turns.Add(1))
		limited, cancel := context.WithTimeout(n.e.ctx, 30*time.Second)
		_, err := rpc.Call[api.ApplyResult](limited, c, api.MethodApply, api.ApplyRequest{
			Documents: [][]byte{service(fmt.Sprintf("svc-%d", turn%100), turn)}, Wait: api.Wait{Nodes: -1},
		})
		cancel()
		if err != nil {
			return err
		}
		made.Add(1)
	}
}

func dialTrip(n *node) (func() error, func(), error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(n.e.ctx, "tcp", n.ip+":7001")
	if err != nil {
		return nil, nil, err
	}
	msg, buf := bytes.Repeat([]byte("penstock"), 32), make([]byte, 256)
	return func() error {
		if _, err := c.Write(msg); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
		if !bytes.Equal(msg, buf) {
			return errors.New("the echo differs from what was sent")
		}
		return nil
	}, func() { _ = c.Close() }, nil
}

// echo serves until the listener closes.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) // copies without splice: the messages are small
		}()
	}
}
