package node

import (
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/rpc"
)

// A change by delete has the same warnings as one by apply: that of a single voter, and
// those about what is left.
func TestDeleteWarns(t *testing.T) {
	t.Parallel()
	n := member(t, Config{Name: "n1", Init: true})
	testkit.WaitFor(t, "a leader", func() bool { return n.cluster.Store().Leadership().Ready })
	n.mustApply(t, "kind: Service\nname: shop\nspec: {endpoints: [{address: \"127.0.0.1:1\"}]}\n")
	r, err := rpc.Call[api.DeleteResult](t.Context(), n.client, api.MethodDelete, &api.DeleteRequest{Kind: "service", Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Warnings) != 1 || r.Warnings[0].Key != "node n1" || !strings.Contains(r.Warnings[0].Message, "durable on its disk only") {
		t.Errorf("%+v", r.Warnings)
	}
}
