package integration

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// A node that cannot be done without does not leave, and loses nothing by the
// attempt: neither the cluster its majority nor the node its traffic.
func TestANodeThatCannotLeaveServesOn(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	lead := f.waitLeader()
	var rest []*member
	for _, m := range f.members {
		if m != lead {
			rest = append(rest, m)
		}
	}
	m := rest[1]
	m.leaveUnawares(f, rest[0], "--wait-timeout", "2s")
	waitFor(t, m.name+" to be in service", func() bool {
		m.mustLive()
		code, _ := m.fetch("/readyz")
		list, ok := m.membersSeen()
		for _, x := range list {
			ok = ok && (x.Name != m.name || x.State == "serving" && x.Role != "non-voter")
		}
		return ok && code == http.StatusOK && strings.Contains(m.log(), "could not leave")
	})
	m.apply("kind: Service\nname: s\nspec: {endpoints: [{address: \"127.0.0.1:9\"}]}\n")
	// The last node is refused before it is drained.
	single := startCluster(t, 1).members[0]
	if r := single.run("leave"); r.code == 0 || !strings.Contains(r.err, "only voter") {
		t.Errorf("the only node leaves: %+v", r)
	}
	if code, body := single.fetch("/readyz"); code != http.StatusOK {
		t.Errorf("the only node, which could not leave, is not ready: %d %s", code, body)
	}
}

// leaveUnawares has a node leave when another is gone and nobody has noticed
// yet. One that has is refused at once, which is not what is asked for here.
func (m *member) leaveUnawares(f *cluster, gone *member, args ...string) (r result) {
	m.t.Helper()
	for range 5 {
		gone.kill()
		r = m.run(append([]string{"leave"}, args...)...)
		if !strings.Contains(r.err, "must be up to commit anything") || strings.Contains(r.err, "has not left") {
			return r
		}
		gone.launch()
		f.waitSettled(3)
	}
	m.t.Fatalf("it is always noticed that %s is gone: %+v", gone.name, r)
	return r
}

// Whoever applies waits for the nodes that are up, and one that hangs is not
// for long.
func TestAnApplyWaitsForNoNodeThatHangs(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	lead := f.waitLeader()
	var hung *member
	for _, m := range f.members {
		if m != lead {
			hung = m
		}
	}
	lead.apply("kind: Service\nname: before\nspec: {}\n") // so that the two are connected
	hung.signal(syscall.SIGSTOP)
	defer hung.signal(syscall.SIGCONT)
	// It would wait for minutes, and says itself why it did not.
	r := lead.pipe("kind: Service\nname: s\nspec: {}\n", "apply", "-f", "-", "--wait-timeout", "5m", "--timeout", "6m")
	if r.code != 0 || !strings.Contains(r.err, "2 of 3 nodes") || !strings.Contains(r.err, hung.name+": is not in reach any more") {
		t.Errorf("apply: %+v", r)
	}
}

// A node that joins is ready when it acts on what there is, not before: a
// balancer would send it connections that it has no listener for.
func TestANodeThatJoinsIsReadyWithItsListeners(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	f.members[0].apply(serviceOnAll("edge", "9102", named(t, "b")))
	prefix := freshNet()
	for i := range 3 {
		m := f.add(fmt.Sprint("j", i), fmt.Sprint(prefix, i+1))
		m.begin(f.join...)
		waitFor(t, m.name+" to be ready", func() bool {
			m.mustLive()
			code, _ := m.fetch("/readyz")
			return code == http.StatusOK
		})
		c, err := net.DialTimeout("tcp", m.ip+":9102", patience)
		if err != nil {
			t.Errorf("%s is ready: %v", m.name, err)
			continue
		}
		c.Close()
	}
}
