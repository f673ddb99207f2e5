package node

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

func (n *testNode) connections(t *testing.T, r api.ConnectionsRequest) *api.Connections {
	t.Helper()
	r.Limit = max(r.Limit, 100)
	list, err := rpc.Call[api.Connections](t.Context(), n.client, api.MethodConnections, r)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// canaryResources returns a tcp and a tls listener of a service with two versions, of
// which a route sends all connections to v2.
func canaryResources(one, two string) string {
	return fmt.Sprintf(`
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: apps}
---
kind: Listener
name: named
spec: {address: "127.0.0.1:0", protocol: tls, service: apps}
---
kind: Service
name: apps
spec: {endpoints: [{address: %q, tags: {version: v1}}, {address: %q, tags: {version: v2}}]}
---
kind: MeshTCPRoute
name: canary
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: apps}
    rules: [{default: {backendRefs: [{kind: MeshServiceSubset, name: apps, weight: 1, tags: {version: v2}}]}}]
`, one, two)
}

// Any node lists, traces and closes the connections of all, sums up where they go, and
// names a node that has gone.
func TestConnectionsOfTheCluster(t *testing.T) {
	t.Parallel()
	one, two := nodetest.NewBackend(t, "one"), nodetest.NewBackend(t, "two")
	nodes := threeMembers(t)
	nodes[0].mustApply(t, canaryResources(one.At(), two.At()))
	for _, n := range nodes {
		testkit.WaitFor(t, "the listeners are there", func() bool { return len(n.data.Engine.Listeners()) == 2 })
	}
	conns := map[string]net.Conn{}
	for _, n := range nodes {
		conns[n.cfg.Name], _ = nodetest.Dial(t, n.at(t, "edge"))
		nodetest.Echo(t, conns[n.cfg.Name])
	}
	all := nodes[2].connections(t, api.ConnectionsRequest{ConnectionFilter: api.ConnectionFilter{Listener: "edge"}})
	if len(all.Connections) != 3 || all.Total != 3 || len(all.Missing) != 0 {
		t.Fatalf("listed %+v", all)
	}
	for _, c := range all.Connections {
		if c.Service != "apps" || c.Destination != "apps" || c.Route != "MeshTCPRoute/canary" || c.Subset != "version=v2" || c.Endpoint != two.At() ||
			c.Client != conns[c.Node].LocalAddr().String() || c.BytesIn != 5 {
			t.Errorf("listed %+v", c)
		}
	}
	flow, err := rpc.Call[api.FlowResult](t.Context(), nodes[1].client, api.MethodFlow, api.FlowRequest{Service: "apps"})
	if err != nil || len(flow.Streams) != 1 || flow.Streams[0].Connections != 3 || flow.Streams[0].Subset != "version=v2" {
		t.Errorf("flow %+v (%v)", flow, err)
	}

	last := all.Connections[0]
	trace, err := rpc.Call[api.Trace](t.Context(), nodes[0].client, api.MethodTrace, api.TraceRequest{Node: last.Node, ID: last.ID})
	if err != nil || trace.Connection.Client != last.Client {
		t.Fatalf("trace %+v (%v)", trace, err)
	}
	if got := namesOf(trace.Events); got != "accepted identified decided connecting connected firstByteIn firstByteOut" &&
		got != "accepted identified decided connecting connected firstByteOut firstByteIn" {
		t.Errorf("events %s", got)
	}
	if d := trace.Decision; d == nil || d.Endpoint != two.At() || d.Service != "apps" {
		t.Errorf("decision %+v", trace.Decision)
	}

	closed, err := rpc.Call[api.ClosedConnections](t.Context(), nodes[0].client, api.MethodConnectionsClose,
		api.CloseConnectionsRequest{ConnectionFilter: api.ConnectionFilter{Node: last.Node, ID: last.ID}})
	if err != nil || closed.Closing != 1 {
		t.Fatalf("closed %+v (%v)", closed, err)
	}
	if _, err := io.ReadAll(conns[last.Node]); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	testkit.WaitFor(t, "it is remembered", func() bool {
		ended := nodes[1].connections(t, api.ConnectionsRequest{Ended: true, ConnectionFilter: api.ConnectionFilter{Reason: "closed_by_operator"}})
		return len(ended.Connections) == 1 && ended.Connections[0].ID == last.ID
	})
	trace, err = rpc.Call[api.Trace](t.Context(), nodes[0].client, api.MethodTrace, api.TraceRequest{Node: last.Node, ID: last.ID})
	if err != nil || trace.Events[len(trace.Events)-1].Name != api.EventClosed || trace.Events[len(trace.Events)-1].Text != "closed_by_operator" {
		t.Errorf("trace of the end %+v (%v)", trace, err)
	}

	nodes[1].halt()
	rest := nodes[0].connections(t, api.ConnectionsRequest{})
	if len(rest.Missing) != 1 || !strings.HasPrefix(rest.Missing[0], "n2: ") {
		t.Errorf("missing %v, want n2", rest.Missing)
	}
}

func namesOf(events []api.TraceEvent) string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = e.Name
	}
	return strings.Join(names, " ")
}

// What a client sends as its name is shown as it is, and a failure says why.
func TestConnectionsThatFailed(t *testing.T) {
	t.Parallel()
	own := certs.SelfSigned("x")
	end := nodetest.ServeBackend(t, "one", &tls.Config{Certificates: []tls.Certificate{own.TLS}})
	n := startNode(t, canaryResources(testkit.FreeAddress(t), end.At()))
	odd := "a<b>\x1b[31m"
	raw, err := net.Dial("tcp", n.at(t, "named"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	_ = tls.Client(raw, &tls.Config{ServerName: odd, InsecureSkipVerify: true}).Handshake()
	var c api.Connection
	testkit.WaitFor(t, "it has ended", func() bool {
		list := n.connections(t, api.ConnectionsRequest{Ended: true, Failures: true, ConnectionFilter: api.ConnectionFilter{Who: odd}})
		if len(list.Connections) == 1 {
			c = list.Connections[0]
		}
		return len(list.Connections) == 1
	})
	if c.Reason != "bad_sni" || c.SNI != odd || c.Listener != "named" {
		t.Errorf("it is %+v", c)
	}
	var trace *api.Trace
	testkit.WaitFor(t, "the line of the log in the trace", func() bool { // it is written behind the end
		if trace, err = rpc.Call[api.Trace](t.Context(), n.client, api.MethodTrace, api.TraceRequest{ID: c.ID}); err != nil {
			t.Fatal(err)
		}
		return len(trace.Logs) > 0
	})
	if trace.Decision == nil || string(trace.Decision.Reason) != c.Reason {
		t.Errorf("trace %+v", trace)
	}
	if one := trace.Logs[0]; len(trace.Logs) != 1 || one.Message != "connection closed" ||
		!slices.Contains(one.Attrs, api.LogAttr{Key: "id", Value: fmt.Sprint(c.ID)}) || !slices.Contains(one.Attrs, api.LogAttr{Key: "sni", Value: odd}) {
		t.Errorf("lines of the log %+v", trace.Logs)
	}

	for path, want := range map[string]int{
		"/v1/connections?ended&failures&limit=1":      http.StatusOK,
		fmt.Sprintf("/v1/connections/n9/%d", c.ID):    http.StatusNotFound,
		"/v1/connections?limit=0":                     http.StatusBadRequest,
		"/v1/connections?client=x":                    http.StatusBadRequest,
		"/v1/connections?sort=x":                      http.StatusBadRequest,
		"/v1/connections?reason=client_fin":           http.StatusBadRequest,
		"/v1/connections?node=x":                      http.StatusNotFound,
		"/v1/connections/" + n.cfg.Name + "/99999999": http.StatusNotFound,
		"/v1/connections/" + n.cfg.Name + "/x":        http.StatusBadRequest,
		"/v1/flow":                                    http.StatusOK,
	} {
		if status, body := n.get(t, path); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, body, want)
		}
	}
	_, body := n.get(t, "/v1/connections?ended&who="+"a%3Cb%3E%1B%5B31m")
	var list api.Connections
	if err := json.Unmarshal([]byte(body), &list); err != nil || list.Total != 1 || list.Connections[0].SNI != odd || strings.Contains(body, "\x1b") {
		t.Errorf("%s (%v)", body, err)
	}

	for body, want := range map[string]int{
		`{}`:                              http.StatusBadRequest,
		`{"reason":"client_fin"}`:         http.StatusBadRequest,
		`{"service":"apps","over":-1}`:    http.StatusBadRequest,
		`{"service":"apps","x":1}`:        http.StatusBadRequest,
		`{"client":"127.0.0.0/8"}`:        http.StatusOK,
		`{"client":"127.0.0.0/8/x"}`:      http.StatusBadRequest,
		`{"service":"apps","over":1e300}`: http.StatusBadRequest,
	} {
		resp, err := http.Post("http://"+n.HTTPAddr()+"/v1/connections/close", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("close %s: %d, want %d", body, resp.StatusCode, want)
		}
	}
}
