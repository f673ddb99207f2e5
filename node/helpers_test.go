package node

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/routing/resource/codec"
)

func TestMain(m *testing.M) {
	testkit.Parallel("5")
	// A memberlist that was shut down does not wait for its probe of a node, which ends
	// by its own timeout.
	// lumberjack's goroutine that removes old files lives as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"),
		goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// testNode is a running node with a client of its admin port.
type testNode struct {
	*Node
	client *rpc.Client
	lines  *testkit.Log // the access log
}

// startNode starts a node with these resources. At the end of the test it stops
// without a drain.
func startNode(t *testing.T, resources string, change ...func(*Config)) *testNode {
	t.Helper()
	n := &testNode{lines: &testkit.Log{}}
	cfg := Config{
		Name: "n1", Dev: true, Cluster: "127.0.0.1:0", HTTP: "127.0.0.1:0", Loops: 2, Version: "test",
		Resources: nodetest.Objects(t, resources), AccessLog: AccessClosed, AccessOut: n.lines,
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if n.Node, err = Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.halt)
	if n.client, err = rpc.Dial(t.Context(), n.AdminAddr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.client.Close() })
	return n
}

// halt stops the node without waiting for its connections.
func (n *testNode) halt() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n.Stop(ctx)
}

func (n *testNode) apply(t *testing.T, text string) error {
	t.Helper()
	var req api.ApplyRequest
	for _, o := range nodetest.Objects(t, text) {
		req.Documents = append(req.Documents, codec.EncodeWithSecrets(o))
	}
	_, err := rpc.Call[api.ApplyResult](t.Context(), n.client, api.MethodApply, req)
	return err
}

func (n *testNode) mustApply(t *testing.T, text string) {
	t.Helper()
	if err := n.apply(t, text); err != nil {
		t.Fatal(err)
	}
}

func (n *testNode) mustDelete(t *testing.T, kind, name string) {
	t.Helper()
	if _, err := rpc.Call[api.DeleteResult](t.Context(), n.client, api.MethodDelete,
		api.DeleteRequest{Kind: kind, Name: name}); err != nil {
		t.Fatal(err)
	}
}

func (n *testNode) mustStatus(t *testing.T) *api.Status {
	t.Helper()
	s, err := rpc.Call[api.Status](t.Context(), n.client, api.MethodStatus, api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// at returns the address of a listener.
func (n *testNode) at(t *testing.T, listener string) string {
	t.Helper()
	for _, l := range n.mustStatus(t).Listeners {
		if l.Name == listener && l.Error == "" {
			return l.Address
		}
	}
	t.Fatalf("listener %s does not listen", listener)
	return ""
}

// get sends a GET request to the node's HTTP address.
func (n *testNode) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	return n.getAs(t, path, n.HTTPAddr())
}

func (n *testNode) getAs(t *testing.T, path, host string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.HTTPAddr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// waitMetric waits until a series has a value.
func (n *testNode) waitMetric(t *testing.T, series, want string) {
	t.Helper()
	got := ""
	if !testkit.Poll(testkit.Patience, func() bool { got = n.metric(t, series); return got == want }) {
		t.Errorf("%s is %q, want %s", series, got, want)
	}
}

// metric returns the value of a series; "": there is none.
func (n *testNode) metric(t *testing.T, series string) string {
	t.Helper()
	_, body := n.get(t, "/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	return ""
}
