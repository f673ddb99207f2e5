package node

import (
	"slices"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/ops"
	"penstock/node/rpc"
	"penstock/routing/provider"
)

// endpointsOf returns the addresses of a service, each with its source.
func (n *testNode) endpointsOf(t *testing.T, service string) (list []string) {
	t.Helper()
	all, err := rpc.Call[api.Endpoints](t.Context(), n.client, api.MethodEndpoints, &api.EndpointsRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range *all {
		list = append(list, e.Address+" "+e.Source)
	}
	return list
}

func TestAnnouncedEndpointGetsConnections(t *testing.T) {
	t.Parallel()
	backend := nodetest.NewBackend(t, "ok").At()
	n := startNode(t, `
kind: Listener
name: shop
spec: {address: "127.0.0.1:0", protocol: tcp, service: shop}
---
kind: Service
name: shop
spec: {discovery: {announce: {port: 80}}}
`)
	withdraw := n.providers.Announce("shop", provider.Endpoint{Address: backend, Weight: 1})
	want := []string{backend + " announced"}
	testkit.WaitFor(t, "the endpoint", func() bool { return slices.Equal(n.endpointsOf(t, "shop"), want) })
	testkit.WaitFor(t, "a connection to reach it", func() bool { return nodetest.Attempt(n.at(t, "shop")) == "ok" })
	n.waitMetric(t, "penstock_announced_endpoints", "1")
	withdraw()
	testkit.WaitFor(t, "no endpoint", func() bool { return len(n.endpointsOf(t, "shop")) == 0 })
}

// member starts a node of a cluster.
func member(t *testing.T, cfg Config) *testNode {
	t.Helper()
	cfg.DataDir, cfg.Loops, cfg.Version = t.TempDir(), 1, "test"
	cfg.Cluster, cfg.Gossip, cfg.HTTP = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	n := &testNode{}
	var err error
	if n.Node, err = Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.halt)
	n.client, err = ops.ConnectLocal(t.Context(), n.admin, api.Principal{Name: "test", Role: api.RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.client.Close() })
	return n
}

// founder starts the first node of a cluster, keeps its access log and waits until it
// leads.
func founder(t *testing.T, cfg Config) *testNode {
	t.Helper()
	lines := &testkit.Log{}
	cfg.Init, cfg.AccessLog, cfg.AccessOut = true, AccessClosed, lines
	n := member(t, cfg)
	n.lines = lines
	testkit.WaitFor(t, "the node to lead", func() bool { return n.cluster.Store().Leadership().Ready })
	return n
}

// A node tells the leader over the cluster port what is announced to it.
func TestAnnouncedEndpointReachesTheLeader(t *testing.T) {
	t.Parallel()
	first := member(t, Config{Name: "n1", Init: true})
	testkit.WaitFor(t, "a leader", func() bool { return first.cluster.Store().Leadership().Ready })
	first.mustApply(t, "kind: Service\nname: shop\nspec: {discovery: {announce: {port: 80}}}\n")
	request := &api.TokenCreateRequest{Name: "join", Role: api.RoleJoin, TTL: time.Hour}
	made, err := rpc.Call[api.TokenCreated](t.Context(), first.client, api.MethodTokenNew, request)
	if err != nil {
		t.Fatal(err)
	}
	second := member(t, Config{Name: "n2", Join: []string{first.AdminAddr()}, Token: made.Token})
	withdraw := second.providers.Announce("shop", provider.Endpoint{Address: "10.0.0.1:80", Weight: 1})
	want := []string{"10.0.0.1:80 announced"}
	for _, n := range []*testNode{first, second} {
		testkit.WaitFor(t, "the endpoint on "+n.cfg.Name, func() bool { return slices.Equal(n.endpointsOf(t, "shop"), want) })
	}
	withdraw()
	testkit.WaitFor(t, "no endpoint", func() bool { return len(first.endpointsOf(t, "shop")) == 0 })
}
