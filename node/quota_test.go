package node

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

// Clients move from one node of three to another; the budget goes with them, and
// together they never get more than it.
func TestABudgetOfTheClusterFollowsClientsFromNodeToNode(t *testing.T) {
	const rate, burst = 40, 10 // a busy machine can make as many connections in a second
	nodes := threeMembers(t)
	first := nodes[0]
	first.mustApply(t, nodetest.OneService(nodetest.NewBackend(t, "ok"))+fmt.Sprintf(`
---
kind: RateLimit
name: all
spec: {scope: cluster, floor: 10, connections: {rate: %d, burst: %d}}
`, rate, burst))
	began := time.Now()
	var served atomic.Int64
	for _, n := range []*testNode{nodes[1], nodes[2], nodes[0], nodes[1]} {
		ctx, stop := context.WithCancel(t.Context())
		done, address := make(chan struct{}), n.at(t, "edge")
		go func() {
			defer close(done)
			connectUntil(ctx, address, &served)
		}()
		testkit.WaitFor(t, "most of the budget on "+n.cfg.Name, func() bool { return shareOf(t, nodes[2], n.cfg.Name) > 0.9*rate })
		stop()
		<-done
	}
	most := float64(rate)*time.Since(began).Seconds() + burst + float64(len(nodes))
	if got := float64(served.Load()); got > most {
		t.Errorf("%v connections were served, the budget allows %.0f", got, most)
	} else if got < burst/3 {
		t.Errorf("only %v connections were served", got)
	}
	if got := first.metric(t, "penstock_rate_limit_leases_given_total"); got == "0" {
		t.Error("no leases are counted")
	}
}

// threeMembers starts a cluster of three nodes.
func threeMembers(t *testing.T) []*testNode {
	t.Helper()
	first := member(t, Config{Name: "n1", Init: true})
	testkit.WaitFor(t, "a leader", func() bool { return first.cluster.Store().Leadership().Ready })
	made, err := rpc.Call[api.TokenCreated](t.Context(), first.client, api.MethodTokenNew,
		&api.TokenCreateRequest{Name: "join", Role: api.RoleJoin, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	nodes := []*testNode{first}
	for _, name := range []string{"n2", "n3"} {
		nodes = append(nodes, member(t, Config{Name: name, Join: []string{first.AdminAddr()}, Token: made.Token}))
	}
	return nodes
}

// shareOf returns what the leader last gave a node of the only budget.
func shareOf(t *testing.T, ask *testNode, node string) float64 {
	list, err := rpc.Call[api.Shares](t.Context(), ask.client, api.MethodShares, &api.SharesRequest{Limit: "all"})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list.Budgets {
		for _, s := range b.Shares {
			if s.Node == node {
				return s.Share
			}
		}
	}
	return 0
}

// connectUntil opens connections one after the other, and counts those that a backend
// answers.
func connectUntil(ctx context.Context, address string, served *atomic.Int64) {
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			continue
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			served.Add(1)
		}
		conn.Close()
	}
}
