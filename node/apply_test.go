package node

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/routing"
	"penstock/routing/resource/codec"
)

// TestApplyWarnsOfAListenerThatCannotListen: the listener is created, the node
// keeps trying to listen, and the answer has a warning.
func TestApplyWarnsOfAListenerThatCannotListen(t *testing.T) {
	n := startNode(t, "kind: Service\nname: apps\nspec: {}")
	taken := testkit.Listen(t)
	var docs [][]byte
	for _, o := range nodetest.Objects(t, fmt.Sprintf("kind: Listener\nname: busy\nspec: {address: %q, service: apps}\n---\n"+
		"kind: Listener\nname: free\nspec: {address: \"127.0.0.1:0\", service: apps}", taken.Addr())) {
		docs = append(docs, codec.EncodeWithSecrets(o))
	}
	for _, want := range []string{api.Created, api.Unchanged} {
		r, err := rpc.Call[api.ApplyResult](t.Context(), n.client, api.MethodApply, api.ApplyRequest{Documents: docs})
		if err != nil {
			t.Fatal(err)
		}
		if r.Changes[0].Action != want {
			t.Errorf("busy is %s, want %s", r.Changes[0].Action, want)
		}
		if len(r.Warnings) != 1 || r.Warnings[0].Key != "Listener/busy" || r.Warnings[0].Path != "spec.address" ||
			!strings.Contains(r.Warnings[0].Message, "address already in use") {
			t.Errorf("warnings: %+v", r.Warnings)
		}
	}
}

// TestApplyWarnsOfAGatewayThatCannotListen: apply and rollback both warn, and
// identify the Gateway's listener by its address.
func TestApplyWarnsOfAGatewayThatCannotListen(t *testing.T) {
	n := startNode(t, "kind: Service\nname: apps\nspec: {}")
	taken := testkit.Listen(t)
	at := taken.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	doc := func(class string) [][]byte {
		return [][]byte{[]byte("kind: Gateway\nname: edge\nspec: {gatewayClassName: " + class +
			", addresses: [{value: 127.0.0.1}], listeners: [{name: tcp, port: " + port + ", protocol: TCP}]}")}
	}
	checkWarning := func(r *api.ApplyResult, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		warnings := slices.DeleteFunc(slices.Clone(r.Warnings), func(f api.Fault) bool { return !strings.Contains(f.Message, "listen") })
		if len(warnings) != 1 || warnings[0].Key != "Gateway/edge" || warnings[0].Path != "spec.listeners" || warnings[0].Value != at ||
			!strings.Contains(warnings[0].Message, "address already in use") {
			t.Errorf("%s: warnings: %+v", r.Changes[0].Action, r.Warnings)
		}
	}
	for _, class := range []string{"one", "one", "two"} {
		checkWarning(rpc.Call[api.ApplyResult](t.Context(), n.client, api.MethodApply, api.ApplyRequest{Documents: doc(class)}))
	}
	checkWarning(rpc.Call[api.ApplyResult](t.Context(), n.client, api.MethodRollback,
		api.RollbackRequest{Kind: "Gateway", Name: "edge"}))
}

// TestApplyWarnsOfFramesLargerThanMemory: a maxFrame above the memory budget can
// never take effect. A dry run warns as well.
func TestApplyWarnsOfFramesLargerThanMemory(t *testing.T) {
	n := startNode(t, "kind: PhysicalCluster\nname: big\nspec: {bootstrap: [\"127.0.0.1:1\"]}")
	for _, size := range []string{"", "maxFrame: 48MiB, ", "maxFrame: 49MiB, "} {
		for _, dry := range []bool{true, false} {
			text := "kind: VirtualCluster\nname: v\nspec: {physicalClusterRef: big, " + size +
				"brokers: {discover: {address: 127.0.0.1, bootstrapPort: 19090, brokerPorts: 19091-19092}}}"
			docs := [][]byte{codec.EncodeWithSecrets(nodetest.Objects(t, text)[0])}
			r, err := rpc.Call[api.ApplyResult](t.Context(), n.client, api.MethodApply, api.ApplyRequest{Documents: docs, DryRun: dry})
			if err != nil {
				t.Fatal(err)
			}
			var warnings []string
			for _, w := range r.Warnings {
				if w.Path == "spec.maxFrame" {
					warnings = append(warnings, w.Key+" "+w.Value+" "+w.Message)
				}
			}
			if warned := len(warnings) == 1 &&
				strings.HasPrefix(warnings[0], "VirtualCluster/v 49MiB exceeds the share of frames in the memory budget of node ") &&
				strings.Contains(warnings[0], ", 48MiB: "); warned != strings.Contains(size, "49") || len(warnings) > 1 {
				t.Errorf("%q: warnings: %q", size, warnings)
			}
		}
	}
}

// TestOldestRouteWinsConflict: the order of names does not
// matter. A resource applied without an age gets the time of its creation.
func TestOldestRouteWinsConflict(t *testing.T) {
	taken := testkit.Listen(t)
	n := startNode(t, fmt.Sprintf("kind: Gateway\nname: edge\nspec: {gatewayClassName: any, addresses: [{value: 127.0.0.1}], "+
		"listeners: [{name: tcp, port: %d, protocol: TCP}]}", taken.Addr().(*net.TCPAddr).Port))
	for _, name := range []string{"tcproute-attach-older", "tcproute-attach-newer", "tcproute-attach-older"} {
		if err := n.apply(t, "kind: TCPRoute\nname: "+name+
			"\nspec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: a}]}]}"); err != nil {
			t.Fatal(err)
		}
		e, err := rpc.Call[routing.Explanation](t.Context(), n.client, api.MethodExplain,
			api.ExplainRequest{Listener: "edge/" + taken.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		if text := e.Text(); !strings.Contains(text, "TCPRoute/tcproute-attach-older") || strings.Contains(text, "newer") {
			t.Errorf("with %s:\n%s", name, text)
		}
	}
}
