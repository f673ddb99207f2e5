package node

import (
	"slices"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
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
	backend := nodetest.NewBackend(t, "announced").At()
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
	if got := nodetest.Attempt(n.at(t, "shop")); got != "announced" {
		t.Errorf("the connection got %q", got)
	}
	if got := n.metric(t, "penstock_announced_endpoints"); got != "1" {
		t.Errorf("%s endpoints are counted", got)
	}
	withdraw()
	testkit.WaitFor(t, "no endpoint", func() bool { return len(n.endpointsOf(t, "shop")) == 0 })
}

// A node tells the leader over the cluster port what is announced to it.
func TestAnnouncedEndpointReachesTheLeader(t *testing.T) {
	t.Parallel()
	service := "kind: Service\nname: shop\nspec: {discovery: {announce: {port: 80}}}\n"
	member := func(name string, change func(*Config)) *testNode {
		return startNode(t, "", func(c *Config) {
			c.Name, c.Dev, c.DataDir, c.Gossip, c.Resources = name, false, t.TempDir(), "127.0.0.1:0", nil
			c.DrainWait, c.DrainTimeout = time.Millisecond, time.Millisecond
			change(c)
		})
	}
	first := member("n1", func(c *Config) { c.Init, c.Resources = true, nodetest.Objects(t, service) })
	made, err := rpc.Call[api.TokenCreated](t.Context(), first.client,
		api.MethodTokenNew, &api.TokenCreateRequest{Name: "join", Role: api.RoleJoin, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	second := member("n2", func(c *Config) { c.Join, c.Token = []string{first.AdminAddr()}, made.Token })
	withdraw := second.providers.Announce("shop", provider.Endpoint{Address: "10.0.0.1:80", Weight: 1})
	want := []string{"10.0.0.1:80 announced"}
	for _, n := range []*testNode{first, second} {
		testkit.WaitFor(t, "the endpoint on "+n.cfg.Name, func() bool { return slices.Equal(n.endpointsOf(t, "shop"), want) })
	}
	withdraw()
	testkit.WaitFor(t, "no endpoint", func() bool { return len(first.endpointsOf(t, "shop")) == 0 })
}
