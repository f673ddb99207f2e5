package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// A cluster forms by pasting the line that the first node prints.
func TestThreeNodesFormAClusterByHand(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	backend := named(t, "b")
	for i, m := range f.members {
		name, port := fmt.Sprint("svc", i), fmt.Sprint(9100+i)
		out := m.apply(serviceOnAll(name, port, backend))
		if !strings.Contains(out, "Listener/"+name+" created") {
			t.Errorf("apply on %s says %q", m.name, out)
		}
		// When apply returns, every node acts on the change.
		for _, other := range f.members {
			c, err := net.DialTimeout("tcp", other.ip+":"+port, testkit.Patience)
			if err != nil {
				t.Fatalf("applied at %s, asked at %s: %v", m.name, other.name, err)
			}
			c.Close()
		}
	}
	for _, m := range f.members {
		testkit.WaitFor(t, m.name+" to see all of them, each with everything", func() bool { // status is gossiped with a delay
			s := m.status()
			return len(s.Nodes) == 3 && s.Leader != "" && s.Alone == "" && !slices.ContainsFunc(s.Nodes, func(n api.NodeStatus) bool {
				return n.Lag != 0 || n.State != "serving" || n.Resources != 6
			})
		})
	}
	list, _ := f.members[0].membersSeen()
	for i, x := range list {
		m := f.members[i]
		if x.Name != m.name || len(x.ID) != 16 || x.Address != m.ip+":"+clusterPort {
			t.Errorf("member %d: %+v, want %s at %s", i, x, m.name, m.ip)
		}
	}
}

// Nodes form a cluster with identical command lines, started in any order.
func TestExpectFormsCluster(t *testing.T) {
	t.Parallel()
	token := strings.TrimSpace(command(t, "", "token", "new").out)
	f := &cluster{t: t}
	prefix := newNetwork()
	var join []string
	for i := range 3 {
		f.add(fmt.Sprintf("n%d", i+1), fmt.Sprint(prefix, i+1))
		join = append(join, fmt.Sprint(prefix, i+1, ":", clusterPort))
	}
	f.join = []string{"--expect", "3", "--join", strings.Join(join, ","), "--token", token}
	for _, i := range []int{2, 0, 1} {
		f.members[i].startProcess(f.join...)
	}
	for _, m := range f.members {
		m.waitReady()
	}
	f.waitSettled(3)
	// A late node joins with the same line.
	late := f.add("n4", prefix+"4")
	late.launch(f.join...)
	f.waitSettled(3)
}

// After its first start a node needs only its data folder, even at another
// address.
func TestNodesReturnAtOtherAddresses(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	f.members[1].apply(serviceOnAll("svc", "9100", named(t, "b")))
	for _, m := range f.members {
		m.stop()
	}
	prefix := newNetwork()
	for i, m := range f.members {
		m.moveTo(fmt.Sprint(prefix, i+1))
	}
	// If all nodes have moved, --join must name one of their addresses.
	f.members[0].startProcess()
	f.members[1].startProcess("--join", prefix+"1:"+clusterPort)
	f.members[2].startProcess("--join", prefix+"1:"+clusterPort)
	for _, m := range f.members {
		m.waitReady()
	}
	f.waitSettled(3)
	f.members[2].apply(serviceOnAll("more", "9101", named(t, "b")))
	for _, m := range f.members {
		for _, port := range []string{"9100", "9101"} {
			c, err := net.DialTimeout("tcp", m.ip+":"+port, testkit.Patience)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
	}
}

// kill -9 of the leader, of a follower and of all nodes, under traffic, breaks
// only the connections of the killed nodes.
func TestKilledNodesBreakOnlyTheirConnections(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	f.members[0].apply(serviceOnAll("svc", "9100", testkit.Serve(t, echo)))
	tr := startTraffic(f, "9100", 100)
	for _, who := range []string{"leader", "follower"} {
		victim := f.waitLeader()
		if who == "follower" {
			for _, m := range f.members {
				if m != victim {
					victim = m
					break
				}
			}
		}
		tr.excuseNode(victim)
		victim.kill()
		f.waitLeader()
		f.up()[0].apply(serviceOnAll("during-"+who, map[string]string{"leader": "9101", "follower": "9102"}[who], testkit.Serve(t, echo)))
		victim.launch()
		f.waitSettled(3)
	}
	tr.mustBeUnbroken()

	for _, m := range f.members {
		m.kill()
	}
	for _, m := range f.members {
		m.startProcess()
	}
	for _, m := range f.members {
		m.waitReady()
	}
	f.waitSettled(3)
	if got := f.members[0].must("get", "listeners"); !strings.Contains(got, "during-leader") || !strings.Contains(got, "during-follower") {
		t.Errorf("what was applied is gone:\n%s", got)
	}
}

// A node whose peers are all gone serves from its disk, reports that it is
// alone and refuses writes with a reason.
func TestIsolatedNodeKeepsServing(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	f.members[0].apply(serviceOnAll("svc", "9100", testkit.Serve(t, echo)))
	for _, m := range f.members {
		m.kill()
	}
	m := f.members[1]
	m.launch()
	c, err := net.DialTimeout("tcp", m.ip+":9100", testkit.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := exchange(c, make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if code, body := m.fetch("/readyz"); code != 200 || !strings.Contains(body, "leader") {
		t.Errorf("/readyz: %d %q, want ready with a warning", code, body)
	}
	testkit.WaitFor(t, "status to say that the node is alone", func() bool { return m.status().Alone != "" })
	r := m.pipe(serviceOnAll("more", "9101", "127.0.0.1:1"), "apply", "-f", "-", "--timeout", "3s")
	if r.code == 0 || !strings.Contains(r.err, "leader") {
		t.Errorf("apply without a leader: %d %q", r.code, r.err)
	}
	if got := m.must("get", "listeners", "--stale"); !strings.Contains(got, "svc") {
		t.Errorf("get --stale: %q", got)
	}
	for _, command := range []string{"get services", "rollout list"} {
		args := append(strings.Fields(command), "--timeout", "1s")
		if r := m.run(args...); r.code == 0 || !strings.Contains(r.err, "--stale shows what this node has") {
			t.Errorf("%s: %d %s", command, r.code, r.err)
		}
		if r := m.run(append(args, "--stale")...); r.code != 0 {
			t.Errorf("%s --stale: %d %s", command, r.code, r.err)
		}
	}
	if m.metric("cluster_alone") != 1 {
		t.Error("the metric does not say that the node is alone")
	}
}

// drain, leave and remove work from any node.
func TestMembersLeaveAndAreRemoved(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	one, two, three := f.members[0], f.members[1], f.members[2]
	one.must("drain", "n3", "--over", "0s")
	testkit.WaitFor(t, "n3 not to be ready", func() bool { code, _ := three.fetch("/readyz"); return code == 503 })
	one.must("drain", "n3", "--undo")
	testkit.WaitFor(t, "n3 to be ready again", func() bool { code, _ := three.fetch("/readyz"); return code == 200 })

	two.must("leave")
	two.down = true
	two.wantExit(0)
	testkit.WaitFor(t, "two members", func() bool {
		list, ok := one.membersSeen()
		return ok && len(list) == 2
	})
	f.waitLeader()
	one.apply(serviceOnAll("svc", "9100", "127.0.0.1:1"))
	r := command(t, "", two.argv()[1:]...)
	if r.code == 0 || !strings.Contains(r.err, "left") {
		t.Errorf("a node that left starts again: %d %q", r.code, r.err)
	}
}

// The documents of an apply are one change, and a conflict with a concurrent
// change is reported.
func TestChangesAreAtomicAndVersioned(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	one, three := f.members[0], f.members[2]
	r := one.pipe(serviceOnAll("svc", "9100", "127.0.0.1:1")+"---\n"+
		"kind: Listener\n"+
		"name: bad\n"+
		"spec: {address: \":9101\", service: nothing}\n", "apply", "-f", "-")
	if r.code != 1 || !strings.Contains(r.err, "nothing") {
		t.Errorf("%d %q", r.code, r.err)
	}
	if got := three.must("get", "services"); strings.Contains(got, "svc") {
		t.Errorf("a part of a refused change is there: %s", got)
	}
	one.apply(serviceOnAll("svc", "9100", "127.0.0.1:1"))
	before := three.must("get", "service", "svc", "-o", "yaml")
	three.apply(serviceOnAll("svc", "9100", "127.0.0.1:2"))
	r = one.pipe(strings.Replace(before, "127.0.0.1:1", "127.0.0.1:3", 1), "apply", "-f", "-")
	if r.code != 1 || !strings.Contains(r.err, "version") {
		t.Errorf("a stale version was taken: %d %q", r.code, r.err)
	}
	history := one.must("history", "service", "svc")
	if n := len(strings.Split(strings.TrimSpace(history), "\n")); n != 3 {
		t.Errorf("history has %d lines, want a header and two revisions:\n%s", n, history)
	}
	one.must("rollback", "service", "svc")
	if got := three.must("get", "service", "svc", "-o", "yaml"); !strings.Contains(got, "127.0.0.1:1") {
		t.Errorf("after the rollback:\n%s", got)
	}
}

// A snapshot of one cluster restores its state in another.
func TestSnapshotMovesToAnotherCluster(t *testing.T) {
	t.Parallel()
	a, b := startCluster(t, 1), startCluster(t, 1)
	a.members[0].apply(serviceOnAll("svc", "9100", testkit.Serve(t, echo)))
	file := a.members[0].file("saved", "")
	a.members[0].must("snapshot", "save", file, "--force")
	m := b.members[0]
	m.apply(serviceOnAll("other", "9101", "127.0.0.1:1"))
	m.must("snapshot", "restore", file, "--yes")
	if got := m.must("get", "services"); !strings.Contains(got, "svc") || strings.Contains(got, "other") {
		t.Errorf("after the restore:\n%s", got)
	}
	c, err := net.DialTimeout("tcp", m.ip+":9100", testkit.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := exchange(c, make([]byte, 16)); err != nil {
		t.Error(err)
	}
}

// A remote command shows a token, whose role limits what it may do.
func TestTokenRoles(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	m := f.members[0]
	addr := m.ip + ":" + clusterPort
	remote := func(token string, args ...string) result {
		return command(t, serviceOnAll("svc", "9100", "127.0.0.1:1"), append(args, "--addr", addr, "--token", token)...)
	}
	tokens := map[string]string{}
	for _, role := range []string{"reader", "operator", "admin"} {
		tokens[role] = strings.TrimSpace(m.must("token", "create", "--name", "the-"+role, "--role", role))
	}
	apply, status := []string{"apply", "-f", "-"}, []string{"status"}
	for _, c := range []struct {
		token string
		args  []string
		code  int
		says  string
	}{
		{tokens["reader"], status, 0, ""},
		{tokens["reader"], apply, 1, "admin"},
		{tokens["operator"], apply, 1, "admin"},
		{tokens["operator"], []string{"token", "list"}, 1, "admin"},
		{tokens["admin"], apply, 0, ""},
		{"", status, 1, "token"},
		{tokens["admin"][:len(tokens["admin"])-3], status, 2, "token"},
	} {
		r := remote(c.token, c.args...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit code %d, want %d: %q must have %q", c.args, r.code, c.code, r.err, c.says)
		}
		if c.token != "" && strings.Contains(r.err+r.out, c.token) {
			t.Errorf("%v tells the token", c.args)
		}
	}
	if got := m.must("history", "service", "svc"); !strings.Contains(got, "the-admin") {
		t.Errorf("history does not name who did it:\n%s", got)
	}
	m.must("token", "revoke", "the-reader")
	if r := remote(tokens["reader"], "status"); r.code == 0 || !strings.Contains(r.err, "revoked") {
		t.Errorf("a revoked token: %d %q", r.code, r.err)
	}
	other := startCluster(t, 1)
	foreign := strings.TrimSpace(other.members[0].must("token", "create", "--name", "x", "--role", "admin"))
	if r := remote(foreign, "status"); r.code == 0 {
		t.Error("a token of another cluster was taken")
	}
	var list api.Tokens
	if err := json.Unmarshal([]byte(m.must("token", "list", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{m.log(), m.must("token", "list")} {
		for role, token := range tokens {
			if strings.Contains(text, token) {
				t.Errorf("the token of the %s is told", role)
			}
		}
	}
}
