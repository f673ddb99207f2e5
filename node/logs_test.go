package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/ops"
	"penstock/node/rpc"
)

// logLines returns what a node answers for all.
func (n *testNode) logLines(t *testing.T, r api.LogsRequest) (all api.LogsItem) {
	t.Helper()
	r.Limit = max(r.Limit, 1000)
	err := rpc.Stream(t.Context(), n.client, api.MethodLogs, r, func(i *api.LogsItem) error {
		all.Entries = append(all.Entries, i.Entries...)
		all.Missing = append(all.Missing, i.Missing...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func valueOf(e *api.LogEntry, key string) string {
	for _, a := range e.Attrs {
		if a.Key == key {
			return a.Value
		}
	}
	return ""
}

// Failures are in memory even without an access log, and ordinary connections are not.
func TestFailuresAreKeptWithoutAnAccessLog(t *testing.T) {
	t.Parallel()
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b"))+`
---
kind: Listener
name: nowhere
spec: {address: "127.0.0.1:0", service: missing}
---
kind: Service
name: missing
spec: {}
`, func(c *Config) { c.AccessLog = AccessOff })
	conn, _ := nodetest.Dial(t, n.at(t, "edge"))
	nodetest.Echo(t, conn)
	conn.Close()
	if c, err := net.Dial("tcp", n.at(t, "nowhere")); err == nil {
		c.Close()
	}
	var failures []api.LogEntry
	testkit.WaitFor(t, "the failure", func() bool {
		failures = n.logLines(t, api.LogsRequest{LogFilter: api.LogFilter{Access: true}}).Entries
		return len(failures) > 0
	})
	n.waitMetric(t, `penstock_connections_total{listener="edge",result="client_fin",service="apps"}`, "1")
	failures = n.logLines(t, api.LogsRequest{LogFilter: api.LogFilter{Access: true}}).Entries
	if len(failures) != 1 || valueOf(&failures[0], "listener") != "nowhere" || valueOf(&failures[0], "reason") != "no_endpoint" || failures[0].Node != "n1" {
		t.Errorf("%+v", failures)
	}
	if own := n.logLines(t, api.LogsRequest{LogFilter: api.LogFilter{Own: true, Text: "STARTED"}}).Entries; len(own) != 1 {
		t.Errorf("the node's own lines: %+v", own)
	}
	if text := n.lines.String(); text != "" {
		t.Errorf("written:\n%s", text)
	}
	n.waitMetric(t, `penstock_log_memory_lines{ring="failures"}`, "1")
	n.waitMetric(t, `penstock_log_memory_lines{ring="access"}`, "0")
}

// Several sinks at once, each with its format; sampled.
func TestAccessLogGoesToSeveralSinks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.log")
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b")), func(c *Config) {
		c.AccessTo = []string{"stderr", "file:" + path + "?format=haproxy"}
		c.AccessFields, c.AccessSample = []string{"service", "reason", "sampled"}, "client_fin=2"
	})
	for range 4 {
		conn, _ := nodetest.Dial(t, n.at(t, "edge"))
		nodetest.Echo(t, conn)
		conn.Close()
	}
	n.waitMetric(t, `penstock_access_log_lines_total{sink="stderr"}`, "2")
	n.waitMetric(t, `penstock_access_log_lines_total{sink="file:`+path+`"}`, "2")
	if got, want := n.lines.String(), strings.Repeat("service=apps reason=client_fin sampled=2\n", 2); got != want {
		t.Errorf("stderr has %q", got)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), " edge apps/127.0.0.1:") != 2 {
		t.Errorf("the file has %q: %v", text, err)
	}
	// The memory has all of them.
	testkit.WaitFor(t, "all lines in memory", func() bool {
		return len(n.logLines(t, api.LogsRequest{LogFilter: api.LogFilter{Reason: "client_fin"}}).Entries) == 4
	})
	// A file that another program moves is opened anew.
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	n.Reread()
	testkit.WaitFor(t, "a new file", func() bool {
		conn, _ := nodetest.Dial(t, n.at(t, "edge"))
		conn.Close()
		_, err := os.Stat(path)
		return err == nil
	})
}

func TestLogsByHTTP(t *testing.T) {
	t.Parallel()
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b")))
	conn, _ := nodetest.Dial(t, n.at(t, "edge"))
	nodetest.Echo(t, conn)
	conn.Close()
	get := func(query string) (int, api.LogsItem) {
		status, body := n.get(t, "/v1/logs?"+query)
		var item api.LogsItem
		if status == 200 {
			if err := json.Unmarshal([]byte(body), &item); err != nil {
				t.Fatal(err)
			}
		}
		return status, item
	}
	var item api.LogsItem
	testkit.WaitFor(t, "the connection", func() bool {
		_, item = get("reason=client_fin&service=apps&listener=edge&access&since=10m&limit=5&level=info")
		return len(item.Entries) == 1
	})
	id := valueOf(&item.Entries[0], "id")
	for query, want := range map[string]int{
		"connection=" + id: 1, "connection=n1/" + id: 1, "connection=n1/999999": 0, "own&text=started": 1, "access": 1, "limit=1": 1,
		"reason=no_route": 0, "since=2099-01-01T00:00:00Z": 0, "node=n1&access": 1, "level=error": 0,
	} {
		if status, item := get(query); status != 200 || len(item.Entries) != want {
			t.Errorf("%s: %d, %d lines", query, status, len(item.Entries))
		}
	}
	for query, want := range map[string]int{
		"connection=x": 400, "connection=0": 400, "node=n2&connection=n1/1": 400, "since=yesterday": 400, "limit=x": 400, "limit=0": 400,
		"limit=10001": 400, "level=loud": 400, "own&access": 400, "node=n2": 404,
	} {
		if status, _ := get(query); status != want {
			t.Errorf("%s: %d, want %d", query, status, want)
		}
	}
}

// threeNodes starts a cluster.
func threeNodes(t *testing.T, resources string) (nodes []*testNode) {
	t.Helper()
	nodes = []*testNode{founder(t, Config{Name: "n1"})}
	made := newToken(t, nodes[0], api.RoleJoin, time.Hour)
	for _, name := range []string{"n2", "n3"} {
		nodes = append(nodes, member(t, Config{Name: name, Join: []string{nodes[0].AdminAddr()}, Token: made.Token, AccessLog: AccessClosed}))
		nodes[len(nodes)-1].mustStatus(t) // a client that asks nothing is disconnected
	}
	if resources != "" {
		nodes[0].mustApply(t, resources)
	}
	return nodes
}

// Any node has the lines of all, in order of time; while some are followed and a node
// dies, it is named, and the lines of the others go on.
func TestLogsOfTheCluster(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, nodetest.OneService(nodetest.NewBackend(t, "b")))
	connect := func(n *testNode) {
		t.Helper()
		conn, _ := nodetest.Dial(t, n.at(t, "edge"))
		nodetest.Echo(t, conn)
		conn.Close()
	}
	for _, n := range nodes {
		testkit.WaitFor(t, "the listener of "+n.cfg.Name, func() bool { return len(n.mustStatus(t).Listeners) == 1 })
	}
	for range 3 {
		for _, n := range nodes {
			connect(n)
		}
	}
	access := api.LogsRequest{LogFilter: api.LogFilter{Access: true}}
	for _, n := range nodes {
		testkit.WaitFor(t, "the lines of all at "+n.cfg.Name, func() bool {
			got := n.logLines(t, access)
			by := map[string]int{}
			for _, e := range got.Entries {
				by[e.Node]++
			}
			return len(got.Missing) == 0 && fmt.Sprint(by) == "map[n1:3 n2:3 n3:3]"
		})
		got := n.logLines(t, access).Entries
		if !slices.IsSortedFunc(got, func(a, b api.LogEntry) int { return a.At.Compare(b.At) }) {
			t.Errorf("at %s the lines are in another order: %+v", n.cfg.Name, got)
		}
	}
	last := access
	last.Limit = 2
	err := rpc.Stream(t.Context(), nodes[1].client, api.MethodLogs, last, func(i *api.LogsItem) error {
		if len(i.Entries) != 2 || i.More {
			t.Errorf("the last two: %+v", i)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	var mu sync.Mutex
	seen, missing := map[string]int{}, []string{}
	count := func(node string) int {
		mu.Lock()
		defer mu.Unlock()
		return seen[node]
	}
	follow := access
	follow.Follow, follow.Limit = true, 100
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		_ = rpc.Stream(ctx, nodes[0].client, api.MethodLogs, follow, func(i *api.LogsItem) error {
			mu.Lock()
			defer mu.Unlock()
			missing = append(missing, i.Missing...)
			for _, e := range i.Entries {
				seen[e.Node]++
			}
			return nil
		})
	})
	defer following.Wait()
	defer stop()
	testkit.WaitFor(t, "what is there", func() bool { return count("n1")+count("n2")+count("n3") == 9 })
	connect(nodes[1])
	testkit.WaitFor(t, "a new line", func() bool { return count("n2") == 4 })
	nodes[2].halt()
	testkit.WaitFor(t, "the node that died to be named", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, "n3: ") })
	})
	connect(nodes[1])
	testkit.WaitFor(t, "lines of the others", func() bool { return count("n2") == 5 })
	if n := count("n1"); n != 3 {
		t.Errorf("n1 has %d lines, want 3: lines are sent again", n)
	}
}

// A reader's token reads logs, a join token does not.
func TestLogsTakeAReader(t *testing.T) {
	t.Parallel()
	n := founder(t, Config{Name: "n1"})
	read := func(role api.Role) error {
		c, err := opsClient(t, n, role)
		if err != nil {
			return err
		}
		return rpc.Stream(t.Context(), c, api.MethodLogs, api.LogsRequest{Limit: 1}, func(*api.LogsItem) error { return nil })
	}
	if err := read(api.RoleReader); err != nil {
		t.Errorf("a reader: %v", err)
	}
	if err := read(api.RoleJoin); err == nil {
		t.Error("a join token reads logs")
	}
	c, err := opsClient(t, n, api.RoleAdmin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.Call[api.LogsHere](t.Context(), c, api.MethodLogsHere, api.LogsHereRequest{Limit: 1}); err == nil {
		t.Error("logs.here, which is for nodes, answers an admin")
	}
}

// opsClient connects to a node with a role.
func opsClient(t *testing.T, n *testNode, role api.Role) (*rpc.Client, error) {
	t.Helper()
	c, err := ops.ConnectLocal(t.Context(), n.admin, api.Principal{Name: "test", Role: role})
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}
