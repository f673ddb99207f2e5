package integration

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

// Most voters are lost for good: the test follows the procedure of
// docs/operations.md. The remaining node serves until the balancer has moved,
// and the new cluster has all of its state, including private keys.
func TestNewClusterAfterMajorityIsLost(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	ca := newAuthority(t, "ca")
	f.members[0].apply(serviceOnAll("plain", "9100", testkit.Serve(t, echo)))
	f.members[0].apply(tlsService(ca.issue("a.example.com"), "a.example.com", "9443", named(t, "b")))
	tr := startTraffic(f, "9100", 100)
	left := f.members[1]
	for _, m := range []*member{f.members[0], f.members[2]} {
		tr.excuseNode(m)
		m.kill()
	}
	const alone = "no leader: 1 of 3 voters reachable, 2 needed"
	testkit.WaitFor(t, left.name+" to say what is wrong", func() bool { return strings.HasPrefix(left.status().Alone, alone) })
	if code, body := left.fetch("/readyz"); code != 200 || !strings.Contains(body, "leader") {
		t.Errorf("/readyz: %d %q, want ready with a warning", code, body)
	}
	for _, args := range [][]string{{"remove", "n1", "--force"}, {"rollback", "service", "plain"}} {
		if r := left.run(append(args, "--timeout", "2s")...); r.code == 0 {
			t.Errorf("%v without a majority: %+v", args, r)
		}
	}

	// 1. Save the state.
	file := filepath.Join(left.dir, "last.snap")
	if r := left.run("snapshot", "save", filepath.Join(left.dir, "never.snap"), "--timeout", "2s"); r.code == 0 ||
		!strings.Contains(r.err, "--stale") {
		t.Errorf("a snapshot without --stale: %+v", r)
	}
	left.must("snapshot", "save", file, "--stale")

	// 2. Start a new cluster.
	anew := &cluster{t: t}
	prefix := newNetwork()
	first := anew.add("m1", prefix+"1")
	first.launch("--init")
	anew.join = first.joinFlags()

	// 3. Restore, and join the other nodes.
	first.must("snapshot", "restore", file, "--yes")
	for i := 2; i <= 3; i++ {
		anew.add(fmt.Sprint("m", i), fmt.Sprint(prefix, i)).launch(anew.join...)
	}
	anew.waitSettled(3)
	after := startTraffic(anew, "9100", 100)
	for _, m := range anew.members {
		c := dialTLS(t, m.ip+":9443", ca.Client("a.example.com"))
		mustRead(t, c, "b\n")
		c.Close()
	}
	want := left.must("get", "listeners", "--stale", "-o", "json")
	if got := first.must("get", "listeners", "-o", "json"); !sameNames(got, want) {
		t.Errorf("the new cluster has\n%s\nthe old one had\n%s", got, want)
	}
	if r := command(t, "", "members", "--addr", first.ip+":"+clusterPort, "--token", f.join[3]); r.code == 0 {
		t.Error("the new cluster takes a token of the old one")
	}

	// 4. Move the balancer; then stop the old node and delete its folder.
	if c, err := net.Dial("tcp", left.ip+":9100"); err != nil {
		t.Errorf("the old node has stopped serving before it was stopped: %v", err)
	} else {
		c.Close()
	}
	tr.mustBeUnbroken()
	left.stop()
	first.apply(serviceOnAll("more", "9101", "127.0.0.1:1"))
	anew.mustAgree()
	after.mustBeUnbroken()
}

// sameNames reports whether two lists contain the same resource names.
func sameNames(a, b string) bool {
	names := func(text string) (list []string) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, `"name":`) {
				list = append(list, line)
			}
		}
		slices.Sort(list)
		return list
	}
	return len(names(a)) > 0 && slices.Equal(names(a), names(b))
}
