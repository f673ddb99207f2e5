package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

func TestChangesKeepEstablishedConnections(t *testing.T) {
	v1, v2 := nodetest.NewBackend(t, "v1"), nodetest.NewBackend(t, "v2")
	n := startNode(t, nodetest.OneService(v1))
	edge := n.at(t, "edge")
	var old []net.Conn
	expect := func(want string) {
		t.Helper()
		conn, got := nodetest.Dial(t, edge)
		if got != want {
			t.Fatalf("a new connection came to %s, want %s", got, want)
		}
		old = append(old, conn)
		for _, c := range old {
			nodetest.Echo(t, c)
		}
	}
	expect("v1")
	n.mustApply(t, strings.Replace(nodetest.OneService(v1), v1.At(), v2.At(), 1))
	expect("v2")
	n.mustApply(t, fmt.Sprintf(`
kind: Service
name: other
spec: {endpoints: [{address: "%s"}], connect: {timeout: 2s}}
---
kind: MeshTCPRoute
name: all
spec:
  to:
  - targetRef: {kind: MeshService, name: apps}
    rules: [{default: {backendRefs: [{kind: MeshService, name: other}]}}]
`, v1.At()))
	expect("v1")
	n.mustDelete(t, "meshtcproute", "all")
	expect("v2")
	n.mustApply(t, strings.Replace(nodetest.OneService(v2), "service: apps}",
		"service: apps, limits: {perSource: 100}, timeouts: {hello: 3s}}", 1))
	expect("v2")
	n.mustApply(t, strings.Replace(nodetest.OneService(v2), `name: edge`, `name: edge2`, 1))
	expect("v2")
	n.mustDelete(t, "listener", "edge")
	for _, c := range old {
		nodetest.Echo(t, c)
	}
	testkit.WaitFor(t, "the deleted listener to refuse connections", func() bool {
		c, err := net.Dial("tcp", edge)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	for _, c := range old {
		nodetest.Echo(t, c)
	}
}

func TestFailedConnectIsRetriedOnAnotherEndpoint(t *testing.T) {
	good := nodetest.NewBackend(t, "good")
	n := startNode(t, strings.Replace(nodetest.OneService(good), "[{address:", `[{address: "127.0.0.1:1"}, {address:`, 1))
	for range 4 {
		if _, name := nodetest.Dial(t, n.at(t, "edge")); name != "good" {
			t.Errorf("came to %q", name)
		}
	}
}

func TestReasonIsThatOfTheLastAttempt(t *testing.T) {
	n := startNode(t, `
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: apps}
---
kind: Service
name: apps
spec: {endpoints: [{address: "127.0.0.1:1"}]}
`)
	if got := nodetest.Attempt(n.at(t, "edge")); got != "" {
		t.Errorf("%q came from nowhere", got)
	}
	testkit.WaitFor(t, "the line of the access log", func() bool {
		return strings.Contains(n.lines.String(), `reason=connect_refused error="connection refused"`)
	})
	testkit.WaitFor(t, "the connection to be counted", func() bool {
		return n.metric(t, `penstock_connections_total{listener="edge",result="connect_refused",service="apps"}`) == "1"
	})
}

// TestEarlyResetsEject: an endpoint that accepts connections and resets them
// before its first byte is ejected.
func TestEarlyResetsEject(t *testing.T) {
	bad := testkit.Serve(t, func(c *net.TCPConn) { c.SetLinger(0) })
	good := nodetest.NewBackend(t, "good")
	n := startNode(t, fmt.Sprintf(`
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: apps}
---
kind: Service
name: apps
spec:
  ejection: {failures: 2, window: 1h, duration: 1h}
  endpoints: [{address: "%s"}, {address: "%s"}]
`, bad, good.At()))
	edge := n.at(t, "edge")
	testkit.WaitFor(t, "the ejection", func() bool {
		nodetest.Attempt(edge)
		return n.mustStatus(t).Services[0].Endpoints[0].Health == "ejected"
	})
	for range 4 {
		if _, name := nodetest.Dial(t, edge); name != "good" {
			t.Errorf("came to %q", name)
		}
	}
	n.waitMetric(t, fmt.Sprintf(`penstock_endpoint_ejected{endpoint="%s",service="apps"}`, bad), "1")
}

func TestAddressInUseFailsOnlyItsListener(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	taken := testkit.Listen(t)
	n := startNode(t, nodetest.OneService(b)+fmt.Sprintf(`
---
kind: Listener
name: blocked
spec: {address: "%s", service: apps}
`, taken.Addr()))
	status := n.mustStatus(t).Listeners
	if len(status) != 2 || status[0].State != "failed" || !strings.Contains(status[0].Error, "in use") || status[1].State != "listening" {
		t.Errorf("status %+v", status)
	}
	n.waitMetric(t, `penstock_listener_up{listener="blocked"}`, "0")
	if _, name := nodetest.Dial(t, n.at(t, "edge")); name != "b" {
		t.Errorf("the other listener came to %q", name)
	}
	taken.Close()
	testkit.WaitFor(t, "the listener to get its address", func() bool { return n.mustStatus(t).Listeners[0].State == "listening" })
}

func TestUnixSocketsOnBothSides(t *testing.T) {
	dir := t.TempDir()
	testkit.ServeOn(t, testkit.ListenOn(t, "unix", filepath.Join(dir, "b.sock")), func(c net.Conn) { io.WriteString(c, "unix\n") })
	n := startNode(t, fmt.Sprintf(`
kind: Listener
name: edge
spec: {address: "unix:%s/edge.sock", service: apps}
---
kind: Service
name: apps
spec: {endpoints: [{address: "unix:%s/b.sock"}]}
`, dir, dir))
	conn, err := net.Dial("unix", n.at(t, "edge"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if got := nodetest.ReadLine(t, conn); got != "unix" {
		t.Errorf("came to %q", got)
	}
}

func TestHostNamesAreResolved(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	_, port, _ := net.SplitHostPort(b.At())
	n := startNode(t, strings.Replace(nodetest.OneService(b), b.At(), "localhost:"+port, 1))
	edge := n.at(t, "edge")
	testkit.WaitFor(t, "the name to be resolved", func() bool { return nodetest.Attempt(edge) == "b\n" })
}

func TestStatusReportsUnresolvedNames(t *testing.T) {
	n := startNode(t, strings.Replace(nodetest.OneService(nodetest.NewBackend(t, "b")),
		"[{address:", `[{address: "nowhere.invalid:1"}, {address:`, 1))
	testkit.WaitFor(t, "the lookup to fail", func() bool {
		s := n.mustStatus(t).Services[0]
		e := s.Endpoints[len(s.Endpoints)-1]
		return s.State == "1/2 usable" && e.Address == "nowhere.invalid:1" && e.Health == "unresolved" && e.Error != ""
	})
}

func TestListenersRunOnNodesWithTheirTags(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, nodetest.OneService(b)+`
---
kind: Listener
name: elsewhere
spec: {address: "127.0.0.1:0", service: apps, nodes: {zone: b}}
---
kind: Listener
name: here
spec: {address: ":0", service: apps, nodes: {zone: a}}
`, func(c *Config) { c.Tags, c.Bind = map[string]string{"zone": "a"}, "127.0.0.2" })
	names := ""
	for _, l := range n.mustStatus(t).Listeners {
		names += l.Name + " "
	}
	if names != "edge here " {
		t.Errorf("this node runs %q", names)
	}
	if at := n.at(t, "here"); !strings.HasPrefix(at, "127.0.0.2:") {
		t.Errorf("an address without a host listens at %s, want the node's --bind", at)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, nodetest.OneService(b), func(c *Config) { c.DrainWait, c.DrainTimeout = 10*time.Second, 200*time.Millisecond })
	edge := n.at(t, "edge")
	conn, _ := nodetest.Dial(t, edge)
	if code, body := n.get(t, "/readyz"); code != 200 {
		t.Fatalf("readyz before: %d %s", code, body)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop(context.Background()) }()
	testkit.WaitFor(t, "the node not to be ready", func() bool { return n.state.NotReady() != "" })
	if code, body := n.get(t, "/readyz"); code != 503 || !strings.Contains(body, "draining") {
		t.Errorf("readyz while draining: %d %s", code, body)
	}
	n.waitMetric(t, `penstock_state{state="draining"}`, "1")
	nodetest.Dial(t, edge) // still accepted
	nodetest.Echo(t, conn) // still relayed
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlives the drain")
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop: %v", err)
	}
	if got := strings.Count(n.lines.String(), "reason=drained"); got != 2 {
		t.Errorf("%d connections were drained, want 2:\n%s", got, n.lines.String())
	}
}

func TestStopEndsWithItsContext(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, nodetest.OneService(b), func(c *Config) { c.DrainWait, c.DrainTimeout = time.Hour, time.Hour })
	nodetest.Dial(t, n.at(t, "edge"))
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop(ctx) }()
	testkit.WaitFor(t, "the drain to begin", func() bool { return n.state.NotReady() != "" })
	cancel()
	if err := <-stopped; err != nil {
		t.Errorf("Stop: %v", err)
	}
	if !strings.Contains(n.lines.String(), "reason=shutdown") {
		t.Errorf("the connection did not end by the shutdown:\n%s", n.lines.String())
	}
}

func TestDrainCommandKeepsProcessRunning(t *testing.T) {
	b := nodetest.NewBackend(t, "b")
	n := startNode(t, nodetest.OneService(b))
	conn, _ := nodetest.Dial(t, n.at(t, "edge"))
	over := time.Duration(0)
	if _, err := rpc.Call[api.DrainResult](t.Context(), n.client, api.MethodDrain, api.DrainRequest{Node: "n2"}); err == nil {
		t.Error("another node's drain was taken")
	}
	r, err := rpc.Call[api.DrainResult](t.Context(), n.client, api.MethodDrain, api.DrainRequest{Node: "n1", Over: &over})
	if err != nil || r.Connections != 1 {
		t.Fatalf("drain: %+v, %v", r, err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlives the drain")
	}
	testkit.WaitFor(t, "the end of the drain", func() bool { return n.mustStatus(t).Nodes[0].State == "drained" })
}

func TestDataDirIsLockedAndPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	n := startNode(t, "", func(c *Config) { c.DataDir, c.withClients = dir, true })
	info, err := os.Stat(filepath.Join(dir, SocketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want mode 0600", info, err)
	}
	if _, err := Start(t.Context(), Config{
		Dev: true, Cluster: "127.0.0.1:0", HTTP: "127.0.0.1:0", DataDir: dir,
	}); !errors.Is(err, errDataDirInUse) {
		t.Errorf("a second node in the same folder: %v", err)
	}
	c, err := rpc.Dial(t.Context(), "unix:"+filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if v, err := rpc.Call[api.Version](t.Context(), c, api.MethodVersion, api.Empty{}); err != nil || v.Version != "test" {
		t.Errorf("version over the socket: %+v, %v", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.Stop(ctx)
	// The socket that a killed node leaves behind does not prevent a start.
	if err := os.WriteFile(filepath.Join(dir, SocketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startNode(t, "", func(c *Config) { c.DataDir = dir })
}

func TestStartRefusesInvalidConfig(t *testing.T) {
	taken := testkit.Listen(t)
	base := Config{Dev: true, Cluster: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"cluster taken":     {func(c *Config) { c.Cluster = taken.Addr().String() }, "--cluster: "},
		"http taken":        {func(c *Config) { c.HTTP = taken.Addr().String() }, "--http: "},
		"open to the world": {func(c *Config) { c.Cluster = "0.0.0.0:0" }, "--cluster 0.0.0.0:0: --dev"},
		"http for all":      {func(c *Config) { c.HTTP = "[::]:0" }, "use a loopback address"},
		"bad bind":          {func(c *Config) { c.Bind = "localhost" }, "--bind localhost"},
		"bad loops":         {func(c *Config) { c.Loops = -1 }, "--loops -1"},
		"small budget":      {func(c *Config) { c.MemoryBudget = 1 }, "--memory-budget"},
		"bad access log":    {func(c *Config) { c.AccessLog = "some" }, "--access-log some"},
		"bad name":          {func(c *Config) { c.Name = "a b" }, "--name"},
		"no data folder":    {func(c *Config) { c.Dev = false }, "--data-dir"},
		"negative wait":     {func(c *Config) { c.DrainWait = -1 }, "--drain-wait"},
		"negative window":   {func(c *Config) { c.DrainTimeout = -1 }, "--drain-timeout"},
		"broken reference": {func(c *Config) {
			c.Resources = nodetest.Objects(t, "kind: Listener\nname: edge\nspec: {address: \"127.0.0.1:0\", service: nobody}")
		}, "Listener/edge spec.service: there is no such Service (nobody)"},
	} {
		cfg := base
		c.change(&cfg)
		if n, err := Start(t.Context(), cfg); err == nil {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			n.Stop(ctx)
			t.Errorf("%s: started", name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
