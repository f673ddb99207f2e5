package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/ops"
	"penstock/node/rpc"
)

// A member of the previous release would stop at a policy that it does not
// support, so policies are refused while there is such a member.
func TestPoliciesAreRefusedWithOlderMembers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := Start(ctx, Config{
		Name: "n1", Init: true, DataDir: t.TempDir(), Cluster: "127.0.0.1:0", Gossip: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		Loops: 1, Version: "v3",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.Stop(ctx)
	})
	testkit.WaitFor(t, "the node to lead", func() bool { return n.cluster.Store() != nil && n.cluster.Store().Leadership().Ready })
	const id = "00000000000000000000000000000001"
	note := func(level int) {
		t.Helper()
		r, err := json.Marshal(record.Node{
			Format: 1, ID: id, Name: "old", Version: "v2", Level: level, Cluster: "127.0.0.1:1", Gossip: "127.0.0.1:1",
		})
		if err != nil {
			t.Fatal(err)
		}
		p, err := n.cluster.Store().Propose(ctx, &store.Batch{Ops: []store.Op{{Key: store.Key{Kind: "_node", Name: id}, Value: r}}})
		if err == nil {
			_, err = p.Wait(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	apply := func(text string) error {
		c, err := ops.ConnectLocal(ctx, n.admin, api.Principal{Name: "test", Role: api.RoleAdmin})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = rpc.Call[api.ApplyResult](ctx, c, api.MethodApply, api.ApplyRequest{Documents: [][]byte{[]byte(text)}})
		return err
	}
	taken := testkit.Listen(t) // a Gateway is accepted although it cannot listen
	const tcp = "kind: MeshTCPRoute\nname: a\nspec: {to: [{targetRef: {kind: MeshService, name: a}, " +
		"rules: [{default: {backendRefs: [{kind: MeshService, name: b}]}}]}]}\n"
	for name, text := range map[string]string{
		"MeshHTTPRoute/a": "kind: MeshHTTPRoute\nname: a\nspec: {to: [{targetRef: {kind: MeshService, name: a}, " +
			"rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {}}]}]}\n",
		"Gateway/edge": fmt.Sprintf("kind: Gateway\nname: edge\nspec: {gatewayClassName: any, "+
			"addresses: [{value: 127.0.0.1}], listeners: [{name: tcp, port: %d, protocol: TCP}]}\n",
			taken.Addr().(*net.TCPAddr).Port),
		"TCPRoute/all": "kind: TCPRoute\nname: all\nspec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: a}]}]}\n",
		"TLSRoute/some": "kind: TLSRoute\nname: some\nspec: {parentRefs: [{name: edge}], hostnames: [a.example.com], " +
			"rules: [{backendRefs: [{name: a}]}]}\n",
		"ReferenceGrant/shop.g": "kind: ReferenceGrant\nname: shop.g\nspec: {origin: {namespace: shop}, " +
			"from: [{group: gateway.networking.k8s.io, kind: TLSRoute, namespace: default}], to: [{group: \"\", kind: Service}]}\n",
	} {
		note(record.LevelPolicies - 1)
		if err := apply(tcp); err != nil {
			t.Errorf("what the older release knows: %v", err)
		}
		want := name + ": these nodes run a version that does not support it: old (v2)"
		if err := apply(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		note(record.LevelPolicies)
		if err := apply(text); err != nil {
			t.Errorf("%s when all know it: %v", name, err)
		}
	}
}
