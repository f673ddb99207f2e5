package node

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

// audited returns the lines of the audit log.
func (n *testNode) audited(t *testing.T) (all []api.AuditEntry) {
	t.Helper()
	err := rpc.Stream(t.Context(), n.client, api.MethodAudit, api.AuditRequest{}, func(i *api.AuditItem) error {
		all = append(all, i.Entries...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAnApplyHasOneAuditEntryInItsOwnBatch: whatever the number of resources, the log
// of changes grows by one batch with one entry of the audit log.
func TestAnApplyHasOneAuditEntryInItsOwnBatch(t *testing.T) {
	n := startNode(t, "")
	before, index := len(n.audited(t)), n.store.Snapshot().Index()
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "---\nkind: Service\nname: s%03d\nspec: {endpoints: [{address: \"192.0.2.1:80\"}]}\n", i)
	}
	n.mustApply(t, many.String())
	n.mustApply(t, many.String()) // changes nothing
	all := n.audited(t)
	if len(all) != before+1 || n.store.Snapshot().Index() != index+1 {
		t.Fatalf("%d entries, want %d; index %d, want %d", len(all), before+1, n.store.Snapshot().Index(), index+1)
	}
	if e := all[before]; e.Act != "apply" || e.Outcome != "done" || !strings.HasPrefix(e.What, "Service/s000, Service/s001, ") ||
		!strings.HasSuffix(e.What, ", 992 more") || e.Node != "n1" || e.Role != "admin" {
		t.Errorf("recorded %+v", e)
	}
}

// lockedBuffer is written by a node and read by a test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestDenialsAreAuditedWithoutAnAccessLog: connections and requests that a permission
// denies have a line in the node's log and in the audit log, and a metric counts them.
func TestDenialsAreAuditedWithoutAnAccessLog(t *testing.T) {
	var log lockedBuffer
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b"))+nodetest.WebListener+
		nodetest.WebService("shop", "", nodetest.NamedServer(t, "s"))+`
---
kind: TrafficPermission
name: no-apps
spec: {to: [{services: [apps]}], action: deny}
---
kind: TrafficPermission
name: no-admin
spec: {to: [{services: [shop], http: [{paths: [/admin]}]}], action: deny}
`, func(c *Config) { c.AccessLog, c.Log = AccessOff, slog.New(slog.NewTextHandler(&log, nil)) })
	for range 2 {
		resp, err := http.Get("http://" + n.at(t, "web") + "/admin?token=secret")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Fatal(resp.Status)
		}
	}
	if c, err := net.Dial("tcp", n.at(t, "edge")); err == nil { // the reset may come before Dial returns
		_, _ = io.ReadAll(c)
		c.Close()
	}
	found := map[string]api.AuditEntry{}
	testkit.WaitFor(t, "the denials", func() bool {
		for _, e := range n.audited(t) {
			if e.Outcome == api.AuditDenied {
				found[e.Act] = e
			}
		}
		return found["request"].Count == 2 && found["connect"].Count == 1
	})
	if e := found["request"]; e.What != "shop at web" || e.From != "127.0.0.1" || !strings.HasPrefix(e.Rule, "no-admin") || e.First.IsZero() ||
		e.Request != "GET /admin" || !strings.Contains(e.Error, "TrafficPermission no-admin") {
		t.Errorf("a request: %+v", e)
	}
	if e := found["connect"]; e.What != "apps at edge" || e.Rule != "no-apps" && !strings.HasPrefix(e.Rule, "no-apps ") {
		t.Errorf("a connection: %+v", e)
	}
	testkit.WaitFor(t, "the lines of the log", func() bool { return strings.Count(log.String(), "msg=denied") >= 3 }) // after they count
	if got := log.String(); strings.Count(got, "msg=denied") != 3 || !strings.Contains(got, "no-admin") || !strings.Contains(got, "act=connect") ||
		!strings.Contains(got, `request="GET /admin"`) || strings.Contains(got, "secret") {
		t.Errorf("the node's log:\n%s", got)
	}
	if got := n.metric(t, "penstock_audit_lines"); got != "2" {
		t.Errorf("%s lines are counted", got)
	}
}
