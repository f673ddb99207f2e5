package dataplane

import (
	"crypto/tls"
	"database/sql"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"penstock/internal/testkit/certs"
	"penstock/mysql/mysqltest"
	"penstock/node/nodetest"
)

// mysqlChange is a change of the configuration that concerns sessions which are open.
type mysqlChange struct {
	name, apply  string
	kind, delete string // of a resource to delete in place of apply
}

// dbListener returns the listener db with a part of its spec.
func dbListener(more string) string {
	return "---\nkind: Listener\nname: db\nspec: {protocol: mysql, " + more + "}\n"
}

// dbService returns the service tidb with a part of its spec.
func dbService(more string) string {
	return "---\nkind: Service\nname: tidb\nspec: {protocol: mysql, " + more + "}\n"
}

// mysqlChanges are the edits of a day. a is the server of the sessions.
func mysqlChanges(a, b string, ca *certs.CA) []mysqlChange {
	const secure = `address: "127.0.0.1:0", tls: {mode: terminate, certificateRefs: [db]}, `
	at := func(server string, more string) string {
		return fmt.Sprintf("endpoints: [{address: %q%s}]", server, more)
	}
	both := fmt.Sprintf("endpoints: [{address: %q}, {address: %q}]", a, b)
	all := []mysqlChange{
		{name: "a user", apply: dbListener(secure + `service: tidb, mysql: {users: [{names: [root], service: other}]}`)},
		{name: "the session's own user leads elsewhere", apply: dbListener(secure + `service: tidb, mysql: {users: [{names: [app], service: other}]}`)},
		{name: "no users", apply: dbListener(secure + `service: tidb`)},
		{name: "the service of the listener", apply: dbListener(secure + `service: other`)},
		{name: "hosts", apply: dbListener(secure + `service: tidb, hosts: [{names: [db.test], service: other}]`)},
		{name: "TLS is required", apply: dbListener(secure + `service: tidb, mysql: {requireTLS: true}`)},
		{name: "the version in the greeting", apply: dbListener(secure + `service: tidb, mysql: {serverVersion: "8.4.0"}`)},
		{name: "a bound on connections below what is open", apply: dbListener(secure + `service: tidb, limits: {connections: 1, perSource: 1}`)},
		{name: "timeouts", apply: dbListener(secure + `service: tidb, timeouts: {handshake: 1s, hello: 1s}`)},
		{name: "PROXY headers are required", apply: dbListener(secure + `service: tidb, proxyProtocol: {accept: [127.0.0.0/8]}`)},
		{name: "client certificates are required", apply: dbListener(`address: "127.0.0.1:0", service: tidb, tls: {mode: terminate, certificateRefs: [db], clientAuth: {mode: require, ca: "` + escaped(ca.PEM) + `"}}`)},
		{name: "no TLS", apply: dbListener(`address: "127.0.0.1:0", service: tidb`)},
		{name: "another address", apply: dbListener(`address: "127.0.0.2:0", service: tidb`)},
		{name: "the listener is gone", kind: "Listener", delete: "db"},
		{name: "the listener is back", apply: dbListener(secure + `service: tidb`)},
		{name: "the certificate is replaced", apply: nodetest.Certificate("db", ca.Issue("db.test"))},
		{name: "a certificate for another name", apply: nodetest.Certificate("db", ca.Issue("other.test"))},
		{name: "a weight", apply: dbService(at(a, ", weight: 7"))},
		{name: "weight 0", apply: dbService(at(a, ", weight: 0"))},
		{name: "a server more", apply: dbService(both)},
		{name: "tags", apply: dbService(at(a, ", tags: {group: oltp}"))},
		{name: "a group that the server is not of", apply: dbService("balancing: {matchTag: group}, " + at(a, ", tags: {group: olap}"))},
		{name: "priorities", apply: dbService(fmt.Sprintf("endpoints: [{address: %q, backup: true}, {address: %q, priority: 1}]", a, b))},
		{name: "balancing", apply: dbService("balancing: {policy: leastConnections, slowStart: 30s}, " + both)},
		{name: "a health check", apply: dbService("healthCheck: {type: mysql}, " + both)},
		{name: "a health check that fails", apply: dbService("mysql: {move: never}, healthCheck: {type: http, path: /none, interval: 100ms, fall: 1}, " + both)},
		{name: "no health check, and panic", apply: dbService("allUnhealthy: panic, " + both)},
		{name: "ejection", apply: dbService("ejection: {failures: 1, window: 10s, duration: 10s}, " + both)},
		{name: "a circuit breaker below what is open", apply: dbService("circuitBreaker: {service: {connections: 1}, endpoint: {connections: 1}}, " + both)},
		{name: "connecting", apply: dbService("connect: {timeout: 100ms, attempts: 1}, " + both)},
		{name: "moves", apply: dbService("mysql: {movesPerSecond: 1}, " + both)},
		{name: "no moves", apply: dbService("mysql: {move: never}, " + both)},
		{name: "TLS towards the servers", apply: dbService(fmt.Sprintf("tls: {serverName: db.test, ca: %q}, mysql: {requireTLS: true}, ", ca.PEM) + both)},
		{name: "a PROXY header towards the servers", apply: dbService("proxyProtocol: {send: v2}, " + both)},
		{name: "an idle timeout, for new sessions", apply: dbService("idleTimeout: 1s, maxAge: 1s, " + both)},
		{name: "the drain of endpoints", apply: dbService("endpointDrain: {timeout: 1h}, " + both)},
		{name: "no drain of endpoints", apply: dbService(both)},
		{name: "the server is gone from a service that neither drains nor moves", apply: dbService("mysql: {move: never}, " + at(b, ""))},
		{name: "no server at all", apply: dbService("mysql: {move: never}, endpoints: []")},
		{name: "the server is back", apply: dbService(both)},
	}
	return append(all, policyChanges()...)
}

// policyChanges are those of other resources than the listener and the service.
func policyChanges() []mysqlChange {
	permission := func(name, spec string) string {
		return "---\nkind: TrafficPermission\nname: " + name + "\nspec: {onChange: close, " + spec + "}\n"
	}
	return []mysqlChange{
		{name: "a permission that allows the client", apply: permission("own", "to: {service: tidb}, rules: [{action: allow, from: [{networks: [127.0.0.0/8]}]}]")},
		{name: "a permission that denies others", apply: permission("others", "to: {service: tidb}, rules: [{action: deny, from: [{networks: [10.0.0.0/8]}]}]")},
		{name: "a permission for another service", apply: permission("elsewhere", "to: {service: other}, rules: [{action: deny, from: [{networks: [127.0.0.0/8]}]}]")},
		{name: "a permission is gone", kind: "TrafficPermission", delete: "others"},
		{name: "a limit of new connections", apply: "---\nkind: RateLimit\nname: few\nspec: {by: network, connections: {rate: 1}}\n"},
		{name: "a limit below what is open", apply: "---\nkind: RateLimit\nname: few\nspec: {by: network, concurrent: 1}\n"},
		{name: "no limit", kind: "RateLimit", delete: "few"},
		{name: "a route to another service", apply: "---\nkind: MeshTCPRoute\nname: shift\nspec: {to: [{targetRef: {kind: MeshService, name: tidb}, " +
			"rules: [{default: {backendRefs: [{kind: MeshService, name: other}]}}]}]}\n"},
		{name: "no route", kind: "MeshTCPRoute", delete: "shift"},
		{name: "another listener", apply: "---\nkind: Listener\nname: more\nspec: {address: \"127.0.0.1:0\", protocol: mysql, service: other}\n"},
	}
}

func escaped(text string) string {
	quoted := fmt.Sprintf("%q", text)
	return quoted[1 : len(quoted)-1]
}

// Changes of the configuration end no session that a policy does not end: neither one in
// a transaction nor an idle one, and none moves.
func TestMySQLSessionsOutliveChanges(t *testing.T) {
	ca := certs.NewCA("test CA")
	servers := mysqlServers(t, 3, func(c *mysqltest.Config) {
		c.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue("db.test").TLS}} //nolint:gosec // a test server
	})
	p := start(t, dbListener(`address: "127.0.0.1:0", tls: {mode: terminate, certificateRefs: [db]}, service: tidb`)+
		nodetest.Certificate("db", ca.Issue("db.test"))+
		dbService(fmt.Sprintf("endpoints: [{address: %q}]", servers[0].Addr()))+mysqlService("other", "", servers[2]))
	secure := func(c *mysql.Config) { c.TLS = &tls.Config{ServerName: "db.test", RootCAs: ca.Pool} }
	busy, idle, plain := mustOpenMySQL(t, p, secure), mustOpenMySQL(t, p, secure), mustOpenMySQL(t, p, nil)
	mustExec(t, idle, "SET @a = 'kept'")
	tx, err := busy.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	insert, err := tx.PrepareContext(t.Context(), "INSERT INTO counter VALUES (?, 1)")
	if err != nil {
		t.Fatal(err)
	}

	changes := mysqlChanges(servers[0].Addr(), servers[1].Addr(), ca)
	for i, change := range changes {
		if change.delete != "" {
			p.mustDelete(t, change.kind, change.delete)
		} else {
			p.mustApply(t, change.apply)
		}
		if _, err := insert.ExecContext(t.Context(), fmt.Sprint("row", i)); err != nil {
			t.Fatalf("%s: in the transaction: %v", change.name, err)
		}
		for name, c := range map[string]*sql.Conn{"idle": idle, "plain": plain} {
			if err := c.PingContext(t.Context()); err != nil {
				t.Fatalf("%s: the %s session: %v", change.name, name, err)
			}
		}
		if open, moved, stayed := p.Sessions(); open != 3 || moved != 0 || stayed != 0 {
			t.Fatalf("%s: %d sessions are open, %d have moved, %d have not; want 3, 0 and 0", change.name, open, moved, stayed)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	mustQuery(t, idle, "SELECT @a", "kept")
	rows := servers[0].Store().Counters()
	for i, change := range changes {
		if rows[fmt.Sprint("row", i)] != 1 {
			t.Errorf("%s: its row is there %d times", change.name, rows[fmt.Sprint("row", i)])
		}
	}
	if len(changes) < 30 || servers[0].Store().Commits() != 1 {
		t.Errorf("%d changes and %d commits, want at least 30 and 1", len(changes), servers[0].Store().Commits())
	}
}
