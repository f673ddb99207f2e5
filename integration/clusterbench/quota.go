package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"penstock/integration/lab"
	"penstock/node/api"
)

const (
	quotaRate  = 200 // connections a second, of all nodes together
	quotaBurst = 100
	quotaMoves = 40 * time.Second // while demand moves
	quotaCut   = 15 * time.Second // while a node is cut off
	quotaLease = 2                // seconds: quota.LeaseTime
	quotaPort  = ":7100"
	bucket     = 100 * time.Millisecond
)

// measureQuota measures a RateLimit with scope cluster on 3 and on 10 nodes, each in its
// own network namespace: how much of the budget is used while demand moves from node to
// node, how much more than it while a node is cut off, and whether connections are
// admitted while nobody leads. It requires root.
func measureQuota(e *env) error {
	for _, nodes := range []int{3, 10} {
		if err := measureQuotaOn(e, nodes); err != nil {
			return fmt.Errorf("%d nodes: %w", nodes, err)
		}
	}
	return nil
}

func measureQuotaOn(e *env, nodes int) error {
	network, err := lab.New(nodes)
	if err != nil {
		return err
	}
	defer network.Close()
	f, err := startCluster(e, plan{size: nodes, prefix: network.Prefix(), together: true,
		inside: func(i int) []string { return network.Inside(i + 1) }})
	if err != nil {
		return err
	}
	defer f.stop()
	backend, err := greet(network.Outside())
	if err != nil {
		return err
	}
	defer backend.Close()
	if _, err := ask[api.ApplyResult](f.nodes[0], 30*time.Second, api.MethodApply, api.ApplyRequest{Documents: [][]byte{
		fmt.Appendf(nil, `{"kind":"Service","name":"greet","spec":{"endpoints":[{"address":%q}]}}`, backend.Addr()),
		fmt.Appendf(nil, `{"kind":"Listener","name":"in","spec":{"address":%q,"service":"greet"}}`, quotaPort),
		fmt.Appendf(nil, `{"kind":"RateLimit","name":"all","spec":{"scope":"cluster","connections":{"rate":%d,"burst":%d}}}`,
			quotaRate, quotaBurst),
	}}); err != nil {
		return err
	}
	c := newCrowd(e.ctx, f.nodes)
	defer c.stop()
	return errors.Join(c.moves(e), c.cutOff(e, f, network), c.leaderless(e, network))
}

// greet accepts connections, sends a byte on each and closes it.
func greet(host string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Write([]byte("x"))
				c.Close()
			}()
		}
	}()
	return ln, nil
}

// crowd is clients of all nodes. Each node has a demand, in connections a second, which
// clients attempt evenly, whatever becomes of them.
type crowd struct {
	nodes  []*node
	demand []atomic.Int64
	began  time.Time
	done   context.CancelFunc
	all    sync.WaitGroup

	mu   sync.Mutex
	used []int   // admitted, in each bucket of time since began
	of   []int64 // admitted, by node
}

func newCrowd(ctx context.Context, nodes []*node) *crowd {
	ctx, cancel := context.WithCancel(ctx)
	c := &crowd{nodes: nodes, demand: make([]atomic.Int64, len(nodes)), of: make([]int64, len(nodes)), began: time.Now(), done: cancel}
	for i := range nodes {
		c.all.Go(func() { c.attempt(ctx, i) })
	}
	return c
}

func (c *crowd) stop() {
	c.done()
	c.all.Wait()
}

// attempt opens connections to a node at its demand.
func (c *crowd) attempt(ctx context.Context, node int) {
	const pause = 5 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	due, last := 0.0, time.Now()
	for {
		select {
		case now := <-tick.C:
			due += float64(c.demand[node].Load()) * now.Sub(last).Seconds()
			last = now
		case <-ctx.Done():
			return
		}
		for ; due >= 1; due-- {
			c.all.Go(func() {
				if admitted(ctx, c.nodes[node]) {
					c.count(node)
				}
			})
		}
	}
}

// admitted opens a connection and reports whether the backend's byte came.
func admitted(ctx context.Context, n *node) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.ip+quotaPort)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	got, _ := conn.Read(make([]byte, 1))
	return got == 1
}

func (c *crowd) count(node int) {
	at := int(time.Since(c.began) / bucket)
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.used) <= at {
		c.used = append(c.used, 0)
	}
	c.used[at]++
	c.of[node]++
}

// since returns what was admitted in each bucket of time from a moment to now.
func (c *crowd) since(from time.Time) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := make([]int, time.Since(c.began)/bucket-from.Sub(c.began)/bucket)
	copy(used, c.used[min(int(from.Sub(c.began)/bucket), len(c.used)):])
	return used
}

// moves has demand of one and a half budgets move: all of it from node to node every ten
// seconds, then in steps that overlap.
func (c *crowd) moves(e *env) error {
	const all = quotaRate * 3 / 2
	began := time.Now()
	settled := began.Add(5 * time.Second)
	for at := time.Duration(0); at < quotaMoves+5*time.Second; at = time.Since(began) {
		turn := int(at/(10*time.Second)) % len(c.nodes)
		for i := range c.demand {
			switch {
			case at < quotaMoves/2:
				c.demand[i].Store(int64(all * btoi(i == turn)))
			default: // half of it everywhere, half of it where it steps to
				c.demand[i].Store(int64(all/2/len(c.nodes) + all/2*btoi(i == int(at/(5*time.Second))%len(c.nodes))))
			}
		}
		if err := sleep(e.ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	used := c.since(settled)
	least, most := math.Inf(1), 0.0
	const width = int(10 * time.Second / bucket)
	for i := width; i <= len(used); i++ {
		sum := 0
		for _, n := range used[i-width : i] {
			sum += n
		}
		part := 100 * float64(sum) / (quotaRate * 10)
		least, most = min(least, part), max(most, part)
	}
	name := fmt.Sprintf("cluster's limit, %d nodes, demand moves: used in any 10 s, ", len(c.nodes))
	e.add(name+"least", "% of the budget", least, 95, true)
	e.atMost(name+"most", "% of the budget", most, 105)
	return nil
}

// cutOff cuts a node that does not lead off from all others, while all have demand.
func (c *crowd) cutOff(e *env, f *cluster, network *lab.Lab) error {
	leader, err := f.leader()
	if err != nil {
		return err
	}
	cut := 0
	for i, n := range f.nodes {
		if n != leader {
			cut = i
		}
		c.demand[i].Store(int64(quotaRate * 3 / 2 / len(f.nodes)))
	}
	if err := sleep(e.ctx, 5*time.Second); err != nil {
		return err
	}
	for i := range f.nodes {
		if i != cut {
			if err := network.Cut(cut+1, i+1); err != nil {
				return err
			}
		}
	}
	began := time.Now()
	if err := sleep(e.ctx, quotaCut); err != nil {
		return err
	}
	c.mu.Lock()
	before := c.of[cut]
	c.mu.Unlock()
	used := c.since(began)
	if err := sleep(e.ctx, 2*time.Second); err != nil {
		return err
	}
	c.mu.Lock()
	after := c.of[cut]
	c.mu.Unlock()
	sum, over := 0, 0.0
	for i, n := range used {
		sum += n
		over = max(over, float64(sum)-quotaRate*float64(i+1)*bucket.Seconds())
	}
	name := fmt.Sprintf("cluster's limit, %d nodes, one cut off: ", len(f.nodes))
	e.atMost(name+"most beyond the budget", "connections", over, quotaRate*quotaLease)
	e.note(name+"used in all", "% of the budget", 100*float64(sum)/(quotaRate*quotaCut.Seconds()))
	e.note(name+"it admits afterwards, by its floor", "connections/s", float64(after-before)/2)
	return network.Heal()
}

// leaderless cuts all nodes off from each other, and counts those that admit connections
// when they know of no leader.
func (c *crowd) leaderless(e *env, network *lab.Lab) error {
	for a := range c.nodes {
		c.demand[a].Store(0)
		for b := range a {
			if err := network.Cut(a+1, b+1); err != nil {
				return err
			}
		}
	}
	if err := until("nobody to lead", time.Minute, func() error {
		for _, n := range c.nodes {
			list, err := ask[api.Members](n, 5*time.Second, api.MethodMembers, api.Empty{})
			if err != nil {
				return nil //nolint:nilerr // what it cannot list without a leader
			}
			for _, m := range *list {
				if m.Name == n.name && m.Role == "leader" {
					return fmt.Errorf("%s leads", n.name)
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	serve := 0
	for _, n := range c.nodes {
		serve += btoi(admitted(e.ctx, n))
	}
	e.add(fmt.Sprintf("cluster's limit, %d nodes, nobody leads: nodes that admit at once", len(c.nodes)), "nodes",
		float64(serve), float64(len(c.nodes)), true)
	return network.Heal()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
