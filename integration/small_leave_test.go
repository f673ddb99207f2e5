package integration

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

// leave reports why the node stays, even if that is known only after its drain.
func TestFailedLeaveReportsReason(t *testing.T) {
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
	r := m.leaveBeforeDetection(f, rest[0])
	if r.code != 1 || !strings.Contains(r.err, m.name+" has not left and stays in service: ") || strings.Contains(r.out, "left") {
		t.Errorf("leave of a node that is needed: %+v", r)
	}
	if !strings.Contains(r.err, "voters") {
		t.Errorf("it does not say what is missing: %s", r.err)
	}
	if code, body := m.fetch("/readyz"); code != http.StatusOK {
		t.Errorf("the node that stayed is not ready: %d %s", code, body)
	}
	rest[0].launch()
	f.waitSettled(3)
	if r := lead.run("leave", m.name); r.code != 0 || strings.TrimSpace(r.out) != m.name+" left" {
		t.Errorf("leave when all are there: %+v", r)
	}
	m.wantExit(0)
	m.down = true
	// The data folder is unusable, and the exit code tells a supervisor not to
	// retry.
	m.startProcess()
	m.wantExit(4)
	m.down = true
}

// A removed node ends with a distinct exit code, at every start, which the
// systemd units handle.
func TestRemovedNodeExitsForGood(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	lead := f.waitLeader()
	var m *member
	for _, x := range f.members {
		if x != lead {
			m = x
		}
	}
	if r := lead.run("remove", m.name, "--force"); r.code != 0 {
		t.Fatalf("remove: %+v", r)
	}
	m.wantExit(4)
	m.startProcess()
	m.wantExit(4)
	m.down = true
	for _, unit := range []string{"deploy/penstock.service", "deploy/penstock@.service"} {
		if !regexp.MustCompile(`(?m)^RestartPreventExitStatus=4$`).MatchString(readDocument(t, unit)) {
			t.Errorf("%s starts a removed node again and again", unit)
		}
	}
}

// A killed node is not reported as serving, however soon the request comes.
func TestKilledNodeIsNotShownAsServing(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	lead := f.waitLeader()
	var m *member
	for _, x := range f.members {
		if x != lead {
			m = x
		}
	}
	m.kill()
	testkit.WaitFor(t, "a look at the members that was not made before", func() bool {
		list, ok := lead.membersSeen()
		for _, x := range list {
			if x.Name == m.name {
				ok = ok && (x.State == "suspect" || x.State == "unreachable")
			} else { // may be too busy to answer now and then
				ok = ok && x.State == "serving"
			}
		}
		return ok
	})
}
