package integration

import (
	"net/http"
	"strings"
	"testing"
)

// A node that cannot be done without does not leave, and loses nothing by the
// attempt: neither the cluster its majority nor the node its traffic.
func TestANodeThatCannotLeaveServesOn(t *testing.T) {
	f := startFleet(t, 3)
	lead := f.waitLeader()
	var rest []*member
	for _, m := range f.members {
		if m != lead {
			rest = append(rest, m)
		}
	}
	rest[0].kill() // and nobody has noticed yet
	m := rest[1]
	m.run("leave", "--wait-timeout", "2s")
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
	single := startFleet(t, 1).members[0]
	if r := single.run("leave"); r.code == 0 || !strings.Contains(r.err, "only node") {
		t.Errorf("the only node leaves: %+v", r)
	}
	if code, body := single.fetch("/readyz"); code != http.StatusOK {
		t.Errorf("the only node, which could not leave, is not ready: %d %s", code, body)
	}
}
