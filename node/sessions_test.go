package node

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
	"penstock/node/api"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// mysqlResources returns a listener and a service; more sets fields of the service.
func mysqlResources(more string, servers ...*mysqltest.Server) string {
	var list []string
	for _, s := range servers {
		list = append(list, fmt.Sprintf("{address: %q}", s.Addr()))
	}
	return "kind: Listener\nname: db\nspec: {address: \"127.0.0.1:0\", protocol: mysql, service: tidb}\n" +
		"---\nkind: Service\nname: tidb\nspec: {protocol: mysql, " + more + "endpoints: [" + strings.Join(list, ", ") + "]}\n"
}

// session opens a session at the listener db of a node.
func (n *testNode) session(t *testing.T) *sql.Conn {
	t.Helper()
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.Logger = "root", "tcp", n.at(t, "db"), &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (n *testNode) sessions(t *testing.T, r api.SessionsRequest) *api.Sessions {
	t.Helper()
	r.Limit = max(r.Limit, 1)
	list, err := rpc.Call[api.Sessions](t.Context(), n.client, api.MethodSessions, r)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (n *testNode) move(t *testing.T, r api.MoveSessionsRequest) *api.MovedSessions {
	t.Helper()
	out, err := rpc.Call[api.MovedSessions](t.Context(), n.client, api.MethodSessionsMove, r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func twoMySQLServers(t *testing.T) (a, b *mysqltest.Server) {
	t.Helper()
	c := mysqltest.Config{Signer: mysqltest.NewSigner(t), Store: mysqltest.NewStore()}
	return mysqltest.New(t, c), mysqltest.New(t, c)
}

// Sessions are listed and moved by hand, on every node that has some.
func TestSessionsOfTheCluster(t *testing.T) {
	t.Parallel()
	a, b := twoMySQLServers(t)
	nodes := threeMembers(t)
	nodes[0].mustApply(t, mysqlResources("", a))
	for _, n := range nodes[:2] {
		testkit.WaitFor(t, "the listener is there", func() bool {
			for _, l := range n.data.Engine.Listeners() {
				if l.Name == "db" && l.Err == nil {
					return true
				}
			}
			return false
		})
	}
	conns := map[*testNode][]*sql.Conn{}
	for _, n := range nodes[:2] {
		for range 2 {
			conns[n] = append(conns[n], n.session(t))
		}
	}
	tx, err := conns[nodes[1]][0].BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO counter VALUES ('t', 1)"); err != nil {
		t.Fatal(err)
	}
	nodes[0].mustApply(t, mysqlResources("", a, b))

	all := nodes[2].sessions(t, api.SessionsRequest{Limit: 10})
	if len(all.Sessions) != 4 || all.Total != 4 || len(all.Missing) != 0 {
		t.Fatalf("listed %+v", all)
	}
	if s := all.Sessions[0]; s.User != "root" || s.Listener != "db" || s.Service != "tidb" || s.Endpoint != a.Addr() || s.Client == "" || s.State != "idle" || s.Cause != "" {
		t.Errorf("listed %+v", s)
	}
	if part := nodes[2].sessions(t, api.SessionsRequest{Limit: 3}); len(part.Sessions) != 3 || part.Total != 4 {
		t.Errorf("%d of %d are listed, want 3 of 4", len(part.Sessions), part.Total)
	}
	one := api.SessionsRequest{SessionFilter: api.SessionFilter{Node: all.Sessions[3].Node, ID: all.Sessions[3].ID}}
	if got := nodes[2].sessions(t, one); len(got.Sessions) != 1 || got.Sessions[0].ID != one.ID {
		t.Errorf("by node and ID: %+v", got)
	}

	out := nodes[2].move(t, api.MoveSessionsRequest{SessionFilter: api.SessionFilter{Endpoint: a.Addr()}, To: b.Addr(), Count: 1, Wait: testkit.Patience})
	if out.Asked != 1 || out.Moved != 1 {
		t.Errorf("one by its address: %+v", out)
	}
	testkit.WaitFor(t, "it has moved", func() bool { return a.Conns() == 3 && b.Conns() == 1 })
	out = nodes[2].move(t, api.MoveSessionsRequest{SessionFilter: api.SessionFilter{Service: "tidb", Endpoint: a.Addr()}})
	if out.Asked != 3 {
		t.Errorf("the rest: %+v", out)
	}
	testkit.WaitFor(t, "one is in a transaction", func() bool { return a.Conns() == 1 && b.Conns() == 3 })
	stuck := nodes[0].sessions(t, api.SessionsRequest{Stuck: true, Limit: 10})
	if len(stuck.Sessions) != 1 || stuck.Sessions[0].Node != nodes[1].cfg.Name || stuck.Sessions[0].Cause != "ordered" ||
		stuck.Sessions[0].Why != "in a transaction" || stuck.Sessions[0].State != "transaction" || stuck.Sessions[0].Since == nil {
		t.Errorf("stuck: %+v", stuck)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "all have moved", func() bool { return a.Conns() == 0 && b.Conns() == 4 })
}

// Orders that no session can follow are refused; those that one does not follow say why.
func TestSessionMovesAreRefused(t *testing.T) {
	t.Parallel()
	a, b := twoMySQLServers(t)
	n := startNode(t, mysqlResources("", a))
	n.session(t)
	n.mustApply(t, mysqlResources("mysql: {move: never}, ", a, b))
	for name, tt := range map[string]struct {
		r    api.MoveSessionsRequest
		says string
	}{
		"everything": {api.MoveSessionsRequest{}, "which sessions"},
		"never":      {api.MoveSessionsRequest{SessionFilter: api.SessionFilter{Service: "tidb"}}, "mysql.move: never"},
		"service":    {api.MoveSessionsRequest{SessionFilter: api.SessionFilter{Service: "none"}}, "there is no Service/none"},
		"endpoint":   {api.MoveSessionsRequest{SessionFilter: api.SessionFilter{User: "root"}, To: "127.0.0.1:1"}, "is no endpoint"},
		"node":       {api.MoveSessionsRequest{SessionFilter: api.SessionFilter{Node: "n9"}}, "there is no node"},
		"count":      {api.MoveSessionsRequest{Count: -1}, "invalid count"},
		"wait":       {api.MoveSessionsRequest{Count: 1, Wait: time.Hour}, "invalid wait"},
	} {
		if _, err := rpc.Call[api.MovedSessions](t.Context(), n.client, api.MethodSessionsMove, tt.r); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
	}
	testkit.WaitFor(t, "the service is in force", func() bool {
		out := n.move(t, api.MoveSessionsRequest{SessionFilter: api.SessionFilter{User: "root"}})
		return out.Stayed == 1 && len(out.Why) == 1 && strings.Contains(out.Why[0].Reason, "mysql.move: never")
	})
}

// Sessions are moved by operators, not by readers, and the audit log has both.
func TestSessionMovesTakeAnOperator(t *testing.T) {
	t.Parallel()
	a, b := twoMySQLServers(t)
	n := founder(t, Config{Name: "n1"})
	n.mustApply(t, mysqlResources("", a, b))
	order := api.MoveSessionsRequest{SessionFilter: api.SessionFilter{Service: "tidb"}}
	for role, code := range map[api.Role]api.Code{api.RoleReader: api.Forbidden, api.RoleOperator: ""} {
		made, err := rpc.Call[api.TokenCreated](t.Context(), n.client, api.MethodTokenNew, &api.TokenCreateRequest{Name: "as-" + string(role), Role: role})
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := trust.ParseToken(made.Token)
		if err != nil {
			t.Fatal(err)
		}
		client, err := rpc.DialConfig{TLS: trust.TokenConfig(parsed), Token: made.Token}.Dial(t.Context(), n.AdminAddr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if _, err := rpc.Call[api.Sessions](t.Context(), client, api.MethodSessions, api.SessionsRequest{Limit: 1}); err != nil {
			t.Errorf("%s: the list: %v", role, err)
		}
		for _, limit := range []int{0, api.MaxSessions + 1} {
			if _, err := rpc.Call[api.Sessions](t.Context(), client, api.MethodSessions, api.SessionsRequest{Limit: limit}); err == nil {
				t.Errorf("%s: a list of up to %d sessions", role, limit)
			}
		}
		var refusal *api.Error
		switch _, err := rpc.Call[api.MovedSessions](t.Context(), client, api.MethodSessionsMove, order); {
		case code == "" && err != nil, code != "" && (!errors.As(err, &refusal) || refusal.Code != code):
			t.Errorf("%s: the move: %v, want %q", role, err, code)
		}
		outcome := map[bool]string{true: "done", false: "refused"}[code == ""]
		// The entry of an act that was done follows its answer.
		testkit.WaitFor(t, fmt.Sprintf("the entry of a move by an %s that was %s", role, outcome), func() bool {
			return slices.ContainsFunc(n.audited(t), func(e api.AuditEntry) bool {
				return e.Act == api.MethodSessionsMove && e.Who == "as-"+string(role) && e.Outcome == outcome
			})
		})
	}
}

// TiProxy's request to redirect moves the sessions of the node that gets it.
func TestTiProxyRedirects(t *testing.T) {
	t.Parallel()
	a, b := twoMySQLServers(t)
	n := startNode(t, mysqlResources("", a))
	n.session(t)
	n.mustApply(t, mysqlResources("", a, b))
	post := func(origin string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+n.HTTPAddr()+"/api/debug/redirect", nil)
		if err != nil {
			t.Fatal(err)
		}
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if status := post("http://evil.test"); status != http.StatusForbidden {
		t.Errorf("a web page: %d, want 403", status)
	}
	if moves := n.data.MoveCounts(); moves.Wanted["ordered"]+int(moves.Moved) != 0 {
		t.Errorf("a web page moves sessions: %+v", moves)
	}
	if status := post(""); status != http.StatusOK {
		t.Errorf("redirect: %d, want 200", status)
	}
	testkit.WaitFor(t, "the session has moved", func() bool { return a.Conns() == 0 && b.Conns() == 1 })
	if status := post(""); status != http.StatusOK {
		t.Errorf("redirect: %d, want 200", status)
	}
	testkit.WaitFor(t, "and back", func() bool { return a.Conns() == 1 && b.Conns() == 0 })
	status, text := n.get(t, "/v1/sessions?service=tidb&limit=5")
	if status != http.StatusOK || !strings.Contains(text, `"moves":2`) || !strings.Contains(text, `"total":1`) {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := n.get(t, "/v1/sessions?limit=x"); status != http.StatusBadRequest {
		t.Errorf("a limit that is no number: %d", status)
	}
}
