package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

func (n *testNode) problems(t *testing.T) *api.Problems {
	t.Helper()
	p, err := rpc.Call[api.Problems](t.Context(), n.client, api.MethodProblems, api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// waitProblem waits for a problem that matches all of its parts.
func (n *testNode) waitProblem(t *testing.T, severity, about, text, command string) {
	t.Helper()
	want := regexp.MustCompile("^" + cmp.Or(text, ".*") + "$")
	var got *api.Problems
	if !testkit.Poll(testkit.Patience, func() bool {
		got = n.problems(t)
		for _, p := range got.Problems {
			if regexp.MustCompile("^"+severity+"$").MatchString(p.Severity) && p.About == about && want.MatchString(p.Text) && p.Command == command {
				return true
			}
		}
		return false
	}) {
		t.Errorf("want %s %s: %s [%s], there is %+v", severity, about, text, command, got)
	}
}

// What is wrong is said in words, about what it is, with the command that tells more; what
// is in order is not mentioned.
func TestProblemsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	taken := testkit.Listen(t)
	good := nodetest.NewBackend(t, "b").At()
	refuses := testkit.FreeAddress(t)
	n := startNode(t, fmt.Sprintf(`
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: apps}
---
kind: Listener
name: fine
spec: {address: "127.0.0.1:0", service: fine}
---
kind: Listener
name: blocked
spec: {address: "%s", service: fine}
---
kind: Service
name: apps
spec: {endpoints: [{address: "%s"}]}
---
kind: Service
name: checked
spec:
  healthCheck: {type: tcp, interval: 100ms, timeout: 1s, rise: 1, fall: 1}
  endpoints: [{address: "%s"}]
---
kind: Service
name: half
spec:
  healthCheck: {type: tcp, interval: 100ms, timeout: 1s, rise: 1, fall: 1}
  endpoints: [{address: "%s"}, {address: "%s"}]
---
kind: Service
name: empty
spec: {}
---
kind: Service
name: fine
spec: {endpoints: [{address: "%s"}]}
`, taken.Addr(), refuses, refuses, refuses, good, good))
	n.waitProblem(t, "error", "Listener/blocked", "Listener blocked does not listen: .*address already in use.*", "penstock status")
	n.waitProblem(t, "error", "Service/checked", regexp.QuoteMeta("Service checked has no healthy endpoint of 1: "+refuses+" is unhealthy (")+".*connection refused.*",
		"penstock get endpoints checked")
	n.waitProblem(t, "warning", "Service/half", "1 of 2 endpoints of Service half is unhealthy: "+refuses+".", "penstock get endpoints half")
	n.waitProblem(t, "error", "Service/empty", "Service empty has no endpoint.", "penstock get endpoints empty")
	for range 10 {
		nodetest.Attempt(n.at(t, "edge"))
		nodetest.Attempt(n.at(t, "fine"))
	}
	n.waitProblem(t, "error", "Service/apps", `100 % of new connections to Service apps failed with connect_refused in the last minute \(10 of 10\).`,
		"penstock logs --service apps --reason connect_refused --since 1m")
	all := n.problems(t)
	if text := fmt.Sprint(all.Problems); strings.Contains(text, "fine") || len(all.Missing) > 0 {
		t.Errorf("%+v", all)
	}
	for i := range all.Problems[1:] {
		if all.Problems[i].Severity > all.Problems[i+1].Severity {
			t.Errorf("a warning comes before an error: %+v", all.Problems)
		}
	}
	status, body := n.get(t, "/v1/problems")
	var over api.Problems
	if err := json.Unmarshal([]byte(body), &over); err != nil || status != http.StatusOK || len(over.Problems) < 5 {
		t.Errorf("/v1/problems: %d %s", status, body)
	}
}

// A node that is gone is a problem on the others, and so is what only one of them sees.
func TestProblemsOfACluster(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, "")
	if got := nodes[0].problems(t); len(got.Problems) > 0 || len(got.Missing) > 0 {
		t.Errorf("a healthy cluster has %+v", got)
	}
	nodes[0].mustApply(t, "kind: Service\nname: empty\nspec: {}\n")
	for _, n := range nodes {
		n.waitProblem(t, "error", "Service/empty", "Service empty has no endpoint.", "penstock get endpoints empty")
	}
	if _, err := rpc.Call[api.DrainResult](t.Context(), nodes[1].client, api.MethodDrain, &api.DrainRequest{}); err != nil {
		t.Fatal(err)
	}
	nodes[0].waitProblem(t, "warning", "Node/n2", "Node n2 is drain(ing|ed): load balancers are told to send it no new connections.", "penstock status")
	nodes[2].halt()
	nodes[0].waitProblem(t, "(error|warning)", "Node/n3", "", "penstock members")
}

// The parts of /v1 for the dashboard answer as the commands do, with the roles of commands.
func TestV1ForTheDashboard(t *testing.T) {
	t.Parallel()
	n := founder(t, Config{Name: "n1"})
	n.mustApply(t, nodetest.OneService(nodetest.NewBackend(t, "b")))
	reader, admin := &page{t: t}, &page{t: t}
	for p, role := range map[*page]api.Role{reader: api.RoleReader, admin: api.RoleAdmin} {
		if got := p.login(n, newToken(t, n, role, time.Hour).Token); got != http.StatusOK {
			t.Fatalf("login: %d", got)
		}
	}
	const more = `{"kind":"Service","name":"more","spec":{"endpoints":[{"address":"127.0.0.1:9"}]}}`
	for _, c := range []struct {
		who                *page
		method, path, body string
		status             int
		says               string
	}{
		{reader, "GET", "/v1/problems", "", 200, `"problems":[]`},
		{reader, "GET", "/v1/audit", "", 403, "audit requires role admin"},
		{admin, "GET", "/v1/audit", "", 200, `"act":"token.create"`},
		{admin, "GET", "/v1/audit?since=1h&limit=1", "", 200, `"more":true`},
		{admin, "GET", "/v1/audit?since=yesterday", "", 400, "want a duration"},
		{admin, "GET", "/v1/audit?limit=0", "", 400, "want 1 to 5000"},
		{reader, "GET", "/v1/limits", "", 200, `{"node":"n1","limits":[]}`},
		{reader, "GET", "/v1/limits?node=n9", "", 404, "n9"},
		{reader, "GET", "/v1/permissions", "", 200, `{"node":"n1","permissions":[]}`},
		{reader, "GET", "/v1/progress", "", 200, `[]`},
		{reader, "GET", "/v1/progress/none", "", 404, `no MeshTCPRoute \"none\"`},
		{reader, "GET", "/v1/history/service/apps", "", 200, `"revisions":[{"version":`},
		{reader, "POST", "/v1/explain", `{"listener":"edge"}`, 200, `"service":"apps"`},
		{reader, "POST", "/v1/explain", `{"listener":"none"}`, 404, "none"},
		{reader, "POST", "/v1/explain", `{"listner":"edge"}`, 400, `unknown field \"listner\"`},
		{reader, "POST", "/v1/explain", `{"listener":"edge"}{}`, 400, "nothing after it"},
		{reader, "POST", "/v1/simulate", `{"documents":[` + more + `]}`, 200, `"words":`},
		{reader, "POST", "/v1/simulate", `{"documents":["` + "eyJraW5kIjoiU2VydmljZSJ9" + `"]}`, 400, "name"},
		{reader, "POST", "/v1/simulate", `{"documents":[3]}`, 400, "faults"},
		{reader, "POST", "/v1/diff", more, 403, "requires role admin"},
		{admin, "POST", "/v1/diff", more, 200, `"action":"created"`},
		{reader, "GET", "/v1/services/more", "", 404, "more"},
		{admin, "POST", "/v1/apply", more, 200, `"action":"created"`},
		{admin, "POST", "/v1/apply", strings.Replace(more, ":9", ":10", 1), 200, `"action":"configured"`},
		{reader, "POST", "/v1/rollback/service/more", `{"version":0}`, 403, "requires role admin"},
		{admin, "POST", "/v1/rollback/service/more", `{"version":0}`, 200, `"action":"configured"`},
		{reader, "GET", "/v1/services/more", "", 200, "127.0.0.1:9"},
		{reader, "POST", "/v1/progress/canary", `{"do":"pause"}`, 403, "requires role operator"},
		{admin, "POST", "/v1/progress/canary", `{"do":"dance"}`, 400, "dance"},
		{reader, "POST", "/v1/drain", `{}`, 403, "requires role operator"},
		{admin, "POST", "/v1/drain", `{"node":"n9"}`, 404, "n9"},
		{admin, "POST", "/v1/drain", `{"over":0}`, 200, `"node":"n1"`},
	} {
		resp, text := c.who.request(n, c.method, c.path, c.body)
		if resp.StatusCode != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s %s %s: %d %s, want %d with %q", c.who.session.Role, c.method, c.path, c.body, resp.StatusCode, text, c.status, c.says)
		}
	}
}
