package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// canaryOf returns a listener on every node on port 9100, a service of two
// versions, and a rollout from the first to the second.
func canaryOf(v1, v2, abort, steps string) string {
	return fmt.Sprintf(`kind: Listener
name: front
spec: {address: ":9100", service: apps}
---
kind: Service
name: apps
spec:
  connect: {attempts: 1, timeout: 2s}
  endpoints: [{address: %q, tags: {version: v1}}, {address: %q, tags: {version: v2}}]
---
kind: MeshTCPRoute
name: canary
spec:
  to:
  - targetRef: {kind: MeshService, name: apps}
    rules:
    - default: {backendRefs: [{kind: MeshServiceSubset, name: apps, tags: {version: v1}},`+
		` {kind: MeshServiceSubset, name: apps, tags: {version: v2}}]}
  rollout:
    backend: {name: apps, tags: {version: v2}}
    abort: %s
    steps: %s
`, v1, v2, abort, steps)
}

// rollout returns the rollout as a node reports it.
func (m *member) rollout() api.Rollout {
	m.t.Helper()
	var r api.Rollout
	if err := json.Unmarshal([]byte(m.must("rollout", "status", "canary", "-o", "json")), &r); err != nil {
		m.t.Fatal(err)
	}
	return r
}

// waitRollout waits until the rollout is in a phase and at a step.
func (m *member) waitRollout(phase string, step int) {
	m.t.Helper()
	testkit.WaitFor(m.t, fmt.Sprintf("step %d, %s", step, phase), func() bool {
		var r api.Rollout
		out := m.run("rollout", "status", "canary", "-o", "json", "--stale")
		return out.code == 0 && json.Unmarshal([]byte(out.out), &r) == nil && r.Phase == phase && r.Step == step && !r.Since.IsZero()
	})
}

// versionConn is a connection and the name that its endpoint sent.
type versionConn struct {
	net.Conn
	*bufio.Reader
	name string
}

// closedConn is a closed connection.
type closedConn struct{ net.Conn }

func (closedConn) Close() error { return nil }

func (g *versionConn) Read(p []byte) (int, error) { return g.Reader.Read(p) }

// dialVersion opens a connection through a node. name is "" if it is closed,
// perhaps before connect has returned.
func (m *member) dialVersion() *versionConn {
	m.t.Helper()
	c, err := net.DialTimeout("tcp", m.ip+":9100", testkit.Patience)
	if errors.Is(err, syscall.ECONNRESET) {
		return &versionConn{Conn: closedConn{}}
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	g := &versionConn{Conn: c, Reader: bufio.NewReader(c)}
	line, _ := g.ReadString('\n')
	g.name = strings.TrimSpace(line)
	return g
}

// countVersions opens n connections through a node and counts the versions
// reached.
func (m *member) countVersions(n int) map[string]int {
	m.t.Helper()
	got := map[string]int{}
	for range n {
		g := m.dialVersion()
		got[g.name]++
		g.Close()
	}
	return got
}

// wantShares checks that exactly v2 of 100 new connections through each running
// node reach v2.
func (f *cluster) wantShares(v2 int) {
	f.t.Helper()
	for _, m := range f.up() {
		if got := m.countVersions(100); got["v2"] != v2 || got["v1"] != 100-v2 {
			f.t.Errorf("%s: of 100 connections %v, want %d at v2", m.name, got, v2)
		}
	}
}

// holdConnections keeps a few connections through every node, to either version.
func (f *cluster) holdConnections() (held []*versionConn) {
	f.t.Helper()
	for _, m := range f.up() {
		for range 10 {
			held = append(held, m.dialVersion())
		}
	}
	return held
}

// mustStillEcho checks that connections still reach their endpoints.
func mustStillEcho(t *testing.T, held []*versionConn, after string) {
	t.Helper()
	buf := make([]byte, 16)
	for i, g := range held {
		if err := exchange(g, buf); err != nil {
			t.Errorf("after %s: connection %d, at %s: %v", after, i, g.name, err)
		}
	}
}

// rolloutHistory returns the history of the rollout, oldest first: step, phase
// and weight, and the times.
func (m *member) rolloutHistory() (what []string, at []time.Time) {
	m.t.Helper()
	var all []api.Revision
	if err := json.Unmarshal([]byte(m.must("history", "rollout", "canary", "-o", "json")), &all); err != nil {
		m.t.Fatal(err)
	}
	slices.Reverse(all)
	for _, r := range all {
		what, at = append(what, r.What), append(at, r.At)
	}
	return what, at
}

// If the leader is killed in the middle of a step, the next one continues: no
// step is skipped, repeated or shortened. The rollout is paused and resumed
// through any node. Established connections stay.
func TestRolloutSurvivesItsLeader(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	first := f.waitLeader()
	follower := f.up()[0]
	if follower == first {
		follower = f.up()[1]
	}
	const inFirst, inSecond = 15 * time.Second, 8 * time.Second
	out := follower.apply(canaryOf(named(t, "v1"), named(t, "v2"), "{window: 1s}", fmt.Sprintf(
		"[{weight: 20, for: %v}, {weight: 60, for: %v}, {weight: 100}]", inFirst, inSecond)))
	if !strings.Contains(out, "MeshTCPRoute/canary created") {
		t.Errorf("apply says %q", out)
	}
	f.wantShares(20)
	follower.waitRollout("running", 1)
	var held []*versionConn
	for _, g := range f.holdConnections() {
		if !strings.HasPrefix(g.RemoteAddr().String(), first.ip+":") {
			held = append(held, g) // those through the leader break with it
		}
	}
	first.kill()
	testkit.WaitFor(t, "another leader", func() bool { l := f.leader(); return l != nil && l != first })
	testkit.WaitFor(t, "the new leader to miss the old one", func() bool {
		r := follower.rollout()
		if r.Phase != "running" { // its course shows at which step
			t.Fatalf("without its leader it is at %+v", r)
		}
		return len(r.Silent) == 1 && strings.HasPrefix(r.Silent[0], first.name+": ")
	})
	follower.waitRollout("running", 2)
	for _, m := range f.up() {
		if out := m.must("rollout", "pause", "canary"); m == f.up()[0] && !strings.Contains(out,
			"paused at step 2 of 3, apps {version=v2} gets 60 %") {
			t.Errorf("pause says %q", out)
		}
		f.wantShares(60)
		if s := m.status().Rollouts; len(s) != 1 || s[0].Phase != "paused" || s[0].Weight != 60 {
			t.Errorf("status of %s has %+v", m.name, s)
		}
		m.must("rollout", "resume", "canary")
	}
	mustStillEcho(t, held, "the second step")
	if r := follower.run("rollout", "status", "canary", "--wait"); r.code != 0 {
		t.Errorf("waiting for the end gives code %d: %s%s", r.code, r.out, r.err)
	}
	f.wantShares(100)
	mustStillEcho(t, held, "the last step")
	what, at := follower.rolloutHistory()
	want := []string{
		"rollout running: step 1 of 3, 20 %", "rollout running: step 2 of 3, 60 %",
		"rollout paused: step 2 of 3, 60 %", "rollout running: step 2 of 3, 60 %",
		"rollout paused: step 2 of 3, 60 %", "rollout running: step 2 of 3, 60 %",
		"rollout running: step 3 of 3, 100 %", "rollout done: step 3 of 3, 100 %",
	}
	if !slices.Equal(what, want) {
		t.Fatalf("what happened:\n%s\nwant:\n%s", strings.Join(what, "\n"), strings.Join(want, "\n"))
	}
	if lasted := at[1].Sub(at[0]); lasted < inFirst {
		t.Errorf("the first step lasted %v, want %v at least", lasted, inFirst)
	}
	if lasted := at[2].Sub(at[1]) + at[4].Sub(at[3]) + at[6].Sub(at[5]); lasted < inSecond {
		t.Errorf("the second step lasted %v without its pauses, want %v at least", lasted, inSecond)
	}
	// A node that was away learns the current step.
	first.launch()
	first.waitRollout("done", 3)
	f.wantShares(100)
}

// If a new version refuses connections, it loses its share on all nodes, based
// on the counts of all of them together; established connections stay after the
// rollback.
func TestRolloutToRefusingBackendIsAborted(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	m := f.up()[1]
	v1, v2 := named(t, "v1"), named(t, "v2")
	m.apply(canaryOf(v1, closedPort(t), "{connections: 30, window: 1m}", "[{weight: 50, for: 1h}, {weight: 100}]"))
	m.waitRollout("running", 1)
	// No node alone sees enough: 20 of the 60 failures.
	for range 20 {
		for _, m := range f.up() {
			_ = m.countVersions(2)
		}
	}
	m.waitRollout("aborted", 1)
	for _, m := range f.up() {
		m.waitRollout("aborted", 1)
	}
	f.wantShares(0)
	r := m.rollout()
	if !strings.Contains(r.Reason, "connects within 1m failed or were reset, more than 5 %") || r.Weight != 0 {
		t.Errorf("aborted: %+v", r)
	}
	if out := m.must("status"); !strings.Contains(out, "aborted") || !strings.Contains(out, "failed or were reset") {
		t.Errorf("status does not tell:\n%s", out)
	}
	if out := m.run("rollout", "status", "canary", "--wait"); out.code != 1 {
		t.Errorf("waiting for its end gives code %d", out.code)
	}
	if out := m.run("rollout", "resume", "canary"); out.code != 1 || !strings.Contains(out.err, "restart starts it over") {
		t.Errorf("it is resumed: %d %s%s", out.code, out.out, out.err)
	}
	// Applied again it stays aborted; repaired and restarted it continues.
	m.apply(canaryOf(v1, v2, "{connections: 30, window: 1m}", "[{weight: 50, for: 1h}, {weight: 100}]"))
	f.wantShares(0)
	m.must("rollout", "restart", "canary")
	f.wantShares(50)
	testkit.WaitFor(t, "all nodes to tell of the restarted rollout", func() bool {
		r := m.rollout()
		if r.Phase != "running" || r.Failed != 0 {
			t.Fatalf("restarted it is at %+v", r)
		}
		return r.Nodes == 3 && r.Endpoints == 3
	})
	held := f.holdConnections()
	m.must("rollout", "rollback", "canary")
	f.wantShares(0)
	mustStillEcho(t, held, "the rollback")
	if !slices.ContainsFunc(held, func(g *versionConn) bool { return g.name == "v2" }) {
		t.Error("no connection was at v2 when it was rolled back")
	}
}
