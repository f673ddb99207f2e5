package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// startSkewedCluster starts three nodes whose clocks are an hour ahead, an hour
// behind and right, and forms a cluster with --init and --join or with
// --expect.
func startSkewedCluster(t *testing.T, expect bool) *cluster {
	t.Helper()
	f := &cluster{t: t}
	prefix := newNetwork()
	var join []string
	for i, hours := range []int{1, -1, 0} {
		m := f.add(fmt.Sprintf("n%d", i+1), fmt.Sprint(prefix, i+1))
		m.skewClock(hours)
		join = append(join, m.ip+":"+clusterPort)
	}
	if expect {
		token := strings.TrimSpace(command(t, "", "token", "new").out)
		f.join = []string{"--expect", "3", "--join", strings.Join(join, ","), "--token", token}
		for _, m := range f.members {
			m.startProcess(f.join...)
		}
		for _, m := range f.members {
			m.waitReady()
		}
	} else {
		f.members[0].launch("--init")
		f.join = f.members[0].joinFlags()
		f.members[1].launch(f.join...)
		f.members[2].launch(f.join...)
	}
	f.waitSettled(3)
	for i, hours := range []int{1, -1, 0} {
		f.members[i].mustBeSkewedBy(time.Duration(hours) * time.Hour)
	}
	return f
}

// skewClock sets the clock error of a node that has not started yet.
func (m *member) skewClock(hours int) {
	m.t.Helper()
	m.bin, m.inside = skewedClock.program(m.t), []string{"env", fmt.Sprint("PENSTOCK_TEST_CLOCK=", hours*3600)}
}

// clockEnv returns the clock error, as an environment variable.
func (m *member) clockEnv() string { return m.inside[1] }

// mustBeSkewedBy checks the timestamps in a node's log: without the clock error
// the test would prove nothing.
func (m *member) mustBeSkewedBy(want time.Duration) {
	m.t.Helper()
	var last struct{ Time time.Time }
	for line := range strings.Lines(m.log()) {
		var one struct{ Time time.Time }
		if json.Unmarshal([]byte(line), &one) == nil && !one.Time.IsZero() {
			last = one
		}
	}
	if off := time.Until(last.Time) - want; off.Abs() > 10*time.Minute {
		m.t.Fatalf("the clock of %s says %v, want it wrong by %v", m.name, last.Time, want)
	}
}

// token creates a token at a node.
func (m *member) token(args ...string) string {
	m.t.Helper()
	return strings.TrimSpace(m.must(append([]string{"token", "create"}, args...)...))
}

// remote runs a command over TCP with a token.
func (m *member) remote(token, in string, args ...string) result {
	m.t.Helper()
	return command(m.t, in, append(args, "--addr", m.ip+":"+clusterPort, "--token", token)...)
}

// A cluster whose clocks are two hours apart forms, commits changes, renews its
// certificates and elects leaders as usual.
func TestClockSkewIsHarmless(t *testing.T) {
	t.Parallel()
	f := startSkewedCluster(t, false)
	f.members[0].apply(serviceOnAll("plain", "9100", testkit.Serve(t, echo)))
	tr := startTraffic(f, "9100", 100)
	for i, m := range f.members {
		m.apply(serviceOnAll(fmt.Sprint("at-", m.name), fmt.Sprint(9101+i), "127.0.0.1:1"))
		testkit.WaitFor(t, m.name+" to see three nodes and who leads", func() bool { // a busy machine may lose the leader
			list, ok := m.membersSeen()
			s := m.status()
			return ok && len(list) == 3 && len(s.Nodes) == 3 && s.Leader != "" && s.Alone == ""
		})
	}
	f.mustResumeAnywhere()
	// Rotate the certificates of all nodes at the current leader.
	lead := f.waitLeader()
	lead.must("rotate", "ca")
	testkit.WaitFor(t, "every node to have a certificate of the new CA", func() bool {
		return slices.ContainsFunc(f.members, func(m *member) bool { return strings.Contains(m.log(), "the old CA is no longer trusted") })
	})
	lead.must("rotate", "gossip")
	// Each node leads at most once: the current leader is killed.
	for i := range 2 {
		victim := f.waitLeader()
		tr.excuseNode(victim)
		victim.kill()
		now := f.waitLeader()
		now.apply(serviceOnAll("plain", "9100", testkit.Serve(t, echo)))
		f.up()[0].apply(serviceOnAll(fmt.Sprint("after-", i), fmt.Sprint(9110+i), "127.0.0.1:1"))
		victim.launch()
		f.waitSettled(3)
	}
	tr.mustBeUnbroken()
	// The history is in chronological order.
	past := f.members[1].must("history", "service", "plain")
	if n := strings.Count(past, "\n"); n != 4 {
		t.Errorf("the history has %d lines, want a header and 3 revisions:\n%s", n, past)
	}
	t.Logf("the history:\n%s", past)
	f.members[2].must("rollback", "service", "plain")
	f.mustAgree()
}

// Token expiry is decided by the leader's clock on all nodes, although the
// nodes' clocks are two hours apart.
func TestTokensExpireByOneClock(t *testing.T) {
	t.Parallel()
	f := startSkewedCluster(t, true)
	nodes := f.members[:3:3]
	day := nodes[0].token("--name", "day", "--role", "admin", "--ttl", "24h")
	for n, m := range nodes {
		reader := m.token("--name", "minutes-"+m.name, "--role", "reader", "--ttl", "10m")
		brief := m.token("--name", "brief-"+m.name, "--role", "reader", "--ttl", "2s")
		for _, at := range nodes {
			for _, token := range []string{day, reader} {
				if r := at.remote(token, "", "members"); r.code != 0 {
					t.Errorf("a token made at %s, shown to %s: %d %q", m.name, at.name, r.code, r.err)
				}
			}
			change := fmt.Sprintf("kind: Service\nname: %s-%s\nspec: {}\n", m.name, at.name)
			if r := at.remote(day, change, "apply", "-f", "-"); r.code != 0 {
				t.Errorf("apply at %s: %+v", at.name, r)
			}
			testkit.WaitFor(t, fmt.Sprintf("a token of 2 s, made at %s, to have ended at %s", m.name, at.name), func() bool {
				r := at.remote(brief, "", "members")
				return r.code != 0 && strings.Contains(r.err, "expired")
			})
			// The list uses the node's estimate of the leader's clock, which may be
			// slightly behind.
			testkit.WaitFor(t, fmt.Sprintf("%s to list %d as expired", at.name, n+1), func() bool {
				return strings.Count(at.must("token", "list"), "expired") == n+1
			})
		}
	}
	// A joining node shows its token to a single node, whatever that one's clock.
	join := nodes[2].token("--name", "minutes", "--role", "join", "--ttl", "10m")
	for i, at := range nodes {
		late := f.add(fmt.Sprint("late", i), newNetwork()+"1")
		late.skewClock([]int{0, 1, -1}[i])
		late.startProcess("--join", at.ip+":"+clusterPort, "--token", join)
		late.waitReady()
	}
	testkit.WaitFor(t, "all six to see each other", func() bool {
		for _, m := range f.up() {
			if list, ok := m.membersSeen(); !ok || len(list) != 6 {
				return false
			}
		}
		return true
	})
	f.waitSettled(5)
	testkit.WaitFor(t, "all whose clock is another than the leader's to say so", func() bool {
		lead := f.leader()
		return lead != nil && !slices.ContainsFunc(f.members, func(m *member) bool {
			return m.clockEnv() != lead.clockEnv() && !strings.Contains(m.log(), "clock and the leader's are apart")
		})
	})
	for _, m := range f.members {
		if log := m.log(); strings.Contains(log, day) || strings.Contains(log, join) {
			t.Errorf("the log of %s has a token", m.name)
		}
	}
}
