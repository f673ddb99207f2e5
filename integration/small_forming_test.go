package integration

import (
	"net/http"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

// A node that waits for others answers its owner at once, with the nodes that
// it waits for and has seen.
func TestFormingNodeNamesMissingNodes(t *testing.T) {
	t.Parallel()
	token := strings.TrimSpace(command(t, "", "token", "new").out)
	f, prefix := &cluster{t: t}, newNetwork()
	flags := []string{"--expect", "3", "--token", token, "--join", prefix + "1:7947," + prefix + "2:7947," + prefix + "3:7947"}
	var all []*member
	for i, name := range []string{"n1", "n2", "n3"} {
		all = append(all, f.add(name, prefix+string(rune('1'+i)), flags...))
	}
	all[0].startProcess()
	all[1].startProcess()
	const want = "forming a cluster: waiting for 1 of 3 nodes; seen: n1, n2"
	testkit.WaitFor(t, "n1 to have seen n2", func() bool {
		all[0].mustBeRunning()
		return strings.Contains(all[0].run("status", "--timeout", "5s").out, "ALONE: "+want+"\n")
	})
	// On a busy machine n2 may be silent for a while; both report that.
	for _, m := range all[:2] {
		testkit.WaitFor(t, "members to list "+m.name+" as forming", func() bool {
			r := all[0].run("members", "--timeout", "5s")
			for line := range strings.Lines(r.out) {
				fields := strings.Fields(line)
				if r.code == 0 && len(fields) > 3 && fields[0] == m.name &&
					strings.Contains(line, " forming ") && strings.Contains(line, m.ip+":7947") {
					return true
				}
			}
			return false
		})
	}
	testkit.WaitFor(t, "/readyz to say the same", func() bool {
		code, body := all[0].fetch("/readyz")
		return code == http.StatusServiceUnavailable && body == "starting: "+want+"\n"
	})
	testkit.WaitFor(t, "apply to say the same", func() bool {
		r := all[0].pipe("kind: Service\nname: s\nspec: {}\n", "apply", "-f", "-", "--timeout", "5s")
		return r.code == 1 && strings.Contains(r.err, want)
	})
	all[2].startProcess()
	for _, m := range all {
		m.waitReady()
	}
	f.waitSettled(3)
	all[0].apply("kind: Service\nname: s\nspec: {}\n")
	if r := all[0].run("token", "list"); !strings.Contains(r.out, " expect ") || strings.Contains(r.out, "init") {
		t.Errorf("the token that all were given is listed as another: %s", r.out)
	}
	// Each log describes the formation; on a busy machine it may take more than
	// one attempt.
	logs := all[0].log() + all[1].log() + all[2].log()
	for line, want := range map[string]int{
		`"msg":"confirmed the first members of the cluster"`: 2, // all but the node that sent the request
		`"msg":"starting the cluster"`:                       3,
	} {
		if n := strings.Count(logs, line); n < want {
			t.Errorf("%d lines with %s, want %d at least:\n%s", n, line, want, logs)
		}
	}
	// The audit logs of the nodes asked name the token.
	if n := strings.Count(logs, `"msg":"audit","who":"expect","role":"join","method":"charter"`); n < 2 {
		t.Errorf("%d nodes confirmed the cluster by the token, as the logs have it:\n%s", n, logs)
	}
}

// The same for a node that waits to be admitted.
func TestJoiningNodeNamesRefusingNodes(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	first := f.members[0]
	first.kill()
	m := f.add("n2", newNetwork()+"1", f.join...)
	m.startProcess()
	testkit.WaitFor(t, "n2 to say what it waits for", func() bool {
		m.mustBeRunning()
		r := m.run("status", "--timeout", "5s")
		return strings.Contains(r.out, "ALONE: joining a cluster: no node at "+first.ip+":7947 has admitted this one yet") &&
			strings.Contains(r.out, "refused")
	})
	first.launch()
	m.waitReady()
	f.waitSettled(1)
}
