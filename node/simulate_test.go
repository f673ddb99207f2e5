package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"

	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/routing"
	"penstock/routing/resource/codec"
)

// A simulation reports the effect of a change, and changes neither the
// configuration nor the open connections.
func TestSimulationChangesNothing(t *testing.T) {
	a, b := nodetest.NewBackend(t, "a"), nodetest.NewBackend(t, "b")
	n := startNode(t, nodetest.OneService(a)+
		fmt.Sprintf("---\nkind: Service\nname: other\nspec: {endpoints: [{address: %q}]}\n", b.At()))
	conn, err := net.Dial("tcp", n.at(t, "edge"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	ask := func(doc string, change ...func(*api.SimulateRequest)) (*api.SimulateResult, error) {
		r := api.SimulateRequest{Connections: 100}
		for _, o := range nodetest.Objects(t, doc) {
			r.Documents = append(r.Documents, codec.EncodeWithSecrets(o))
		}
		for _, c := range change {
			c(&r)
		}
		return rpc.Call[api.SimulateResult](ctx, n.client, api.MethodSimulate, r)
	}
	const canary = `
kind: MeshTCPRoute
name: canary
spec:
  to: [{targetRef: {kind: MeshService, name: apps}, rules: [{default: {backendRefs: [` +
		`{kind: MeshService, name: apps, weight: 9}, {kind: MeshService, name: other}]}}]}]
`
	r, err := ask(canary)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{
		"canary: 10 % of new connections to apps move from all endpoints of apps to other; 1 established connection stays",
	}; !slices.Equal(r.Words, want) {
		t.Errorf("words %q, want %q", r.Words, want)
	}
	if got := r.Simulation.Runs; len(got) != 1 || got[0].Destination != "apps" || len(got[0].Outcomes) != 2 ||
		got[0].Outcomes[0].Before != 100 || got[0].Outcomes[0].After != 90 ||
		got[0].Outcomes[1].Service != "other" || got[0].Outcomes[1].After != 10 {
		t.Errorf("played %+v", got)
	}
	r, err = ask(canary, func(r *api.SimulateRequest) {
		r.Connection = &api.ExplainRequest{Listener: "edge", Client: "10.0.0.1"}
	})
	if err != nil || r.Simulation.Runs[0].Listener != "edge" || r.Simulation.Runs[0].Outcomes[0].After != 90 {
		t.Errorf("through a listener: %+v, %v", r, err)
	}
	if r, err = ask(canary, func(r *api.SimulateRequest) { r.Connections = 0 }); err != nil || r.Simulation != nil || len(r.Words) != 1 {
		t.Errorf("words alone: %+v, %v", r, err)
	}
	if r, err = ask(nodetest.OneService(a)); err != nil || len(r.Words) != 0 || len(r.Simulation.Runs) != 0 {
		t.Errorf("what is there already: %+v, %v", r, err)
	}
	for name, c := range map[string]struct {
		doc    string
		change func(*api.SimulateRequest)
		code   api.Code
	}{
		"a fault": {
			"kind: Listener\nname: edge\nspec: {address: \"127.0.0.1:0\", service: nobody}\n",
			func(*api.SimulateRequest) {}, api.Invalid,
		},
		"too many connections": {canary, func(r *api.SimulateRequest) { r.Connections = routing.MaxSimulatedConnections + 1 }, api.Invalid},
		"no address":           {canary, func(r *api.SimulateRequest) { r.Connection = &api.ExplainRequest{Client: "me"} }, api.Invalid},
		"no such node":         {canary, func(r *api.SimulateRequest) { r.Node = "nobody" }, api.NotFound},
	} {
		var refusal *api.Error
		if _, err := ask(c.doc, c.change); !errors.As(err, &refusal) || refusal.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if got, err := rpc.Call[api.GetResult](ctx, n.client, api.MethodGet,
		api.GetRequest{Kind: "MeshTCPRoute"}); err != nil || len(got.Documents) != 0 {
		t.Errorf("after it there are %d routes, %v", len(got.Documents), err)
	}
	if s, _ := n.data.Router.Table().Service("apps"); s.Members()[0].Active() != 1 {
		t.Errorf("the endpoint counts %d connections, there is 1", s.Members()[0].Active())
	}
}
