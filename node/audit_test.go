package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/node/trust"
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
	n.waitMetric(t, "penstock_audit_lines", "2")
}

// No secret gets into the audit log: not those of resources that are applied or refused,
// nor the tokens that are made, used and revoked, nor the keys of certificates.
func TestAuditLogHasNoSecrets(t *testing.T) {
	n := founder(t, Config{Name: "n1"})
	secrets := map[string]string{"a password": "correct-horse-battery", "a provider's token": "provider-bearer-token"}
	pair := certs.NewCA("audited").Issue("audited.example")
	for _, line := range strings.Split(pair.Key, "\n") {
		if len(line) > 40 {
			secrets["a private key"] = line
			break
		}
	}
	text := nodetest.Certificate("edge", pair) + `---
kind: EndpointProvider
name: etcd
spec: {type: etcd, etcd: {endpoints: ["http://127.0.0.1:1"], prefix: /shop/, username: u, password: correct-horse-battery}}
---
kind: EndpointProvider
name: consul
spec: {type: consul, consul: {address: "http://127.0.0.1:1", token: provider-bearer-token}}
`
	n.mustApply(t, text)
	// The leader refuses all of them for one.
	own := fmt.Sprintf("---\nkind: TrustBundle\nname: own\nspec: {trustDomain: %q, bundle: %q}\n", n.cluster.TrustDomain(), n.bundlePEM(t))
	if err := n.apply(t, strings.ReplaceAll(text, "/shop/", "/other/")+own); err == nil {
		t.Error("a bundle for the cluster's own trust domain is applied")
	}
	for _, role := range []api.Role{api.RoleAdmin, api.RoleJoin, api.RoleReader} {
		made, err := rpc.Call[api.TokenCreated](t.Context(), n.client, api.MethodTokenNew, &api.TokenCreateRequest{Name: string(role), Role: role})
		if err != nil {
			t.Fatal(err)
		}
		secrets["a token of role "+string(role)] = made.Token
		parsed, err := trust.ParseToken(made.Token)
		if err != nil {
			t.Fatal(err)
		}
		client, err := rpc.DialConfig{TLS: trust.TokenConfig(parsed), Token: made.Token}.Dial(t.Context(), n.AdminAddr())
		if err == nil { // join is no role for commands
			_, _ = rpc.Call[api.Empty](t.Context(), client, api.MethodRotate, api.RotateRequest{What: "nothing"})
			client.Close()
		}
		// By its text, as someone does who has just found it in a file.
		_, _ = rpc.Call[api.Token](t.Context(), n.client, api.MethodRevoke, &api.TokenRevokeRequest{Token: made.Token})
	}
	issue(t.Context(), t, n.client, "/ns/web")
	n.mustDelete(t, "EndpointProvider", "etcd")

	var log bytes.Buffer
	acts := map[string]bool{}
	for _, e := range n.audited(t) {
		acts[e.Act] = true
		if err := json.NewEncoder(&log).Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	if len(acts) < 4 {
		t.Errorf("the log has only %v", acts)
	}
	for what, secret := range secrets {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the audit log has %s:\n%s", what, log.String())
		}
	}
	if t.Failed() {
		t.Log(log.String())
	}
}
