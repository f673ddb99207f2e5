package dataplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
	"penstock/mysql/wire"
)

// greetedAs returns the version in the greeting for a new client of the listener db.
func greetedAs(t *testing.T, p *testPlane) string {
	t.Helper()
	c, err := net.Dial("tcp", p.at(t, "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var header [wire.HeaderSize]byte
	if _, err := io.ReadFull(c, header[:]); err != nil {
		t.Fatal(err)
	}
	n, seq := wire.ParseHeader(header[:])
	payload := make([]byte, n)
	if _, err := io.ReadFull(c, payload); err != nil {
		t.Fatal(err)
	}
	g, err := wire.ParseGreeting(payload)
	if err != nil || seq != 0 {
		t.Fatalf("%q with number %d: %v", payload, seq, err)
	}
	return g.ServerVersion
}

const mariaVersion = "5.5.5-10.11.6-MariaDB"

func named(c *mysqltest.Config) { c.Version = mariaVersion }

// The first clients of a listener are greeted as its servers would, also when others of
// them are down, and together they ask only once.
func TestMySQLFirstClientsGetTheServersVersion(t *testing.T) {
	server := mysqlServers(t, 1, named)[0]
	var down []string
	for range 2 * maxAsked {
		down = append(down, fmt.Sprintf("{address: %q}", testkit.FreeAddress(t)))
	}
	p := start(t, mysqlListener+fmt.Sprintf("---\nkind: Service\nname: tidb\nspec: {protocol: mysql, endpoints: [%s, {address: %q}]}\n",
		strings.Join(down, ", "), server.Addr()))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got := greetedAs(t, p); got != mariaVersion {
				t.Errorf("the greeting says %q, want %q", got, mariaVersion)
			}
		})
	}
	all.Wait()
	if n := len(server.Record().Logins); n != 1 {
		t.Errorf("%d logins of the node at the server, want 1", n)
	}
}

// A version that is configured needs no server, and one that no server gives has a default.
func TestMySQLVersionWithoutServers(t *testing.T) {
	for want, listener := range map[string]string{
		"8.0.36-own":         strings.Replace(mysqlListener, "service: tidb", `service: tidb, mysql: {serverVersion: "8.0.36-own"}`, 1),
		defaultServerVersion: mysqlListener,
	} {
		p := start(t, listener+"---\nkind: Service\nname: tidb\nspec: {protocol: mysql, endpoints: []}\n")
		if got := greetedAs(t, p); got != want {
			t.Errorf("the greeting says %q, want %q", got, want)
		}
	}
}

// A server that is silent holds up nobody for long, and nobody behind the first: it is not
// asked again at once.
func TestMySQLVersionOfSilentServers(t *testing.T) {
	var asked atomic.Int32
	silent := testkit.Serve(t, func(c net.Conn) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, c)
	})
	p := start(t, mysqlListener+fmt.Sprintf("---\nkind: Service\nname: tidb\nspec: {protocol: mysql, endpoints: [{address: %q}]}\n", silent))
	for range 3 {
		if got := greetedAs(t, p); got != defaultServerVersion {
			t.Errorf("the greeting says %q, want %q", got, defaultServerVersion)
		}
	}
	v := &p.reconciler.sessions.versions
	// failedAt makes the question one that failed at a time.
	failedAt := func(at time.Time) *versionQuestion {
		v.mu.Lock()
		defer v.mu.Unlock()
		q := v.questions["db"]
		if q == nil || q.failed.IsZero() || len(q.waiting) > 0 {
			t.Fatalf("%+v: want a question that has failed", q)
		}
		q.failed = at
		return q
	}
	before, q := asked.Load(), failedAt(time.Now()) // however slow the machine is
	if got := greetedAs(t, p); got != defaultServerVersion || asked.Load() != before || failedAt(time.Now()) != q {
		t.Errorf("the greeting says %q, and the server was asked %d times more, want 0", got, asked.Load()-before)
	}
	failedAt(time.Now().Add(-versionRetry))
	greetedAs(t, p)
	if failedAt(time.Now()) == q {
		t.Error("the server is not asked again later")
	}
}

// A server that wants a PROXY header gets one before it is asked.
func TestMySQLVersionBehindProxyProtocol(t *testing.T) {
	behind := testkit.Serve(t, func(c net.Conn) {
		var header [16]byte
		if _, err := io.ReadFull(c, header[:]); err != nil || !strings.HasPrefix(string(header[:]), "\r\n\r\n\x00\r\nQUIT\n") {
			return
		}
		g := wire.Greeting{ServerVersion: "8.0.11-TiDB-behind", Capabilities: wire.Protocol41 | wire.PluginAuth, Plugin: "mysql_native_password"}
		_, _ = c.Write(wire.AppendPacket(nil, 0, wire.AppendGreeting(nil, &g)))
		_, _ = io.Copy(io.Discard, c)
	})
	p := start(t, mysqlListener+fmt.Sprintf("---\nkind: Service\nname: tidb\nspec: {protocol: mysql, proxyProtocol: {send: v2}, endpoints: [{address: %q}]}\n", behind))
	if got := greetedAs(t, p); got != "8.0.11-TiDB-behind" {
		t.Errorf("the greeting says %q", got)
	}
}

// No question begins once the data plane closes, and one under way ends.
func TestMySQLVersionsClose(t *testing.T) {
	var v mysqlVersions
	asked := make(chan struct{})
	v.init(func(ctx context.Context, _ string) string { close(asked); <-ctx.Done(); return "" })
	v.questions["db"] = new(versionQuestion)
	v.running.Go(func() { v.answer("db", v.questions["db"]) })
	<-asked
	v.close()
	if q := v.questions["db"]; q.failed.IsZero() {
		t.Error("the question has not ended")
	}
	if _, begins := v.question("other"); begins {
		t.Error("another question begins")
	}
}

// A version that is too long for a greeting, or none, is not passed on.
func TestMySQLVersionsAreBounded(t *testing.T) {
	var v mysqlVersions
	for _, version := range []string{"8.0.1", strings.Repeat("8", maxVersion+1), ""} {
		v.saw("db", version)
	}
	if got, _ := v.known.Load("db"); got != "8.0.1" {
		t.Errorf("%q is passed on", got)
	}
}
