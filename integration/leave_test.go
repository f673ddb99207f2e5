package integration

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"penstock/internal/testkit"
)

// A node that the majority depends on does not leave, and the attempt costs
// neither the cluster its majority nor the node its traffic.
func TestNodeThatCannotLeaveStaysInService(t *testing.T) {
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
	m.leaveBeforeDetection(f, rest[0], "--wait-timeout", "2s")
	testkit.WaitFor(t, m.name+" to be in service", func() bool {
		m.mustBeRunning()
		code, _ := m.fetch("/readyz")
		list, ok := m.membersSeen()
		for _, x := range list {
			ok = ok && (x.Name != m.name || x.State == "serving" && x.Role != "non-voter")
		}
		return ok && code == http.StatusOK && strings.Contains(m.log(), "cannot leave the cluster; returning to service")
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

// leaveBeforeDetection makes a node leave while another one is gone and no node
// has noticed yet. A node that has noticed refuses at once, which is not the
// case under test.
func (m *member) leaveBeforeDetection(f *cluster, gone *member, args ...string) (r result) {
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

// apply waits for the nodes that are up, but not long for one that hangs.
func TestApplyDoesNotWaitForHungNode(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	lead := f.waitLeader()
	var hung *member
	for _, m := range f.members {
		if m != lead {
			hung = m
		}
	}
	lead.apply("kind: Service\nname: before\nspec: {}\n") // ensures that both are connected
	hung.signal(syscall.SIGSTOP)
	defer hung.signal(syscall.SIGCONT)
	// Waiting for the hung node would take minutes; the output says why it ended.
	r := lead.pipe("kind: Service\nname: s\nspec: {}\n", "apply", "-f", "-", "--wait-timeout", "5m", "--timeout", "6m")
	if r.code != 0 || !strings.Contains(r.err, "2 of 3 nodes") || !strings.Contains(r.err, hung.name+": is no longer reachable") {
		t.Errorf("apply: %+v", r)
	}
}

// A joining node is ready only when it has applied the configuration: otherwise
// a balancer would send it connections before it has listeners.
func TestJoiningNodeIsReadyWithItsListeners(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	f.members[0].apply(serviceOnAll("edge", "9102", named(t, "b")))
	prefix := newNetwork()
	for i := range 3 {
		m := f.add(fmt.Sprint("j", i), fmt.Sprint(prefix, i+1))
		m.startProcess(f.join...)
		testkit.WaitFor(t, m.name+" to be ready", func() bool {
			m.mustBeRunning()
			code, _ := m.fetch("/readyz")
			return code == http.StatusOK
		})
		c, err := net.DialTimeout("tcp", m.ip+":9102", testkit.Patience)
		if err != nil {
			t.Errorf("%s is ready: %v", m.name, err)
			continue
		}
		c.Close()
	}
}
