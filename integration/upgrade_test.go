package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"penstock/internal/testkit"
)

// previous is the commit of the previous release, which the tests upgrade from.
const previous = "a9f5ec0"

// previousProgram builds the previous release from the repository's history.
// Without that history the test fails in CI and is skipped elsewhere.
func previousProgram(t *testing.T) string {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		testkit.NotTested(t, "no upgrade from the previous release: git is missing")
	}
	top := root(t)
	if out, err := exec.Command(git, "-C", top, "cat-file", "-e", previous+"^{commit}").CombinedOutput(); err != nil {
		testkit.NotTested(t, "no upgrade from the previous release: its commit %s is not in the history of this copy: %v %s", previous, err, out)
	}
	program(t) // creates the shared build folder
	dir := filepath.Join(built, "previous")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(built, "previous.tar")
	build := []string{"build", "-ldflags=-s -w", "-o", filepath.Join(built, "penstock-previous")}
	if raceEnabled {
		build = append(build, "-race")
	}
	for _, argv := range [][]string{
		{git, "-C", top, "archive", "-o", archive, previous},
		{"tar", "-C", dir, "-xf", archive},
		append(append([]string{"go"}, build...), "./cmd/penstock"),
	} {
		cmd := exec.Command(argv[0], argv[1:]...)
		if argv[0] == "go" {
			cmd.Dir = dir
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	return filepath.Join(built, "penstock-previous")
}

// runWith runs a command of either release against a node.
func (m *member) runWith(bin, in string, args ...string) result {
	m.t.Helper()
	return commandOf(m.t, bin, nil, in, append(args, "--addr", m.sock())...)
}

// bothReleasesUp returns 1 while nodes of both releases run, else 0.
func (f *cluster) bothReleasesUp() int {
	old, new := 0, 0
	for _, m := range f.up() {
		if m.bin == "" {
			new = 1
		} else {
			old = 1
		}
	}
	return old * new
}

// A cluster is upgraded from the previous release node by node, under traffic:
// nodes of both releases vote together and accept each other's requests, and
// the commands of either work with both. Then one node is downgraded and
// upgraded again. Only connections of stopped nodes break.
func TestUpgradeNodeByNode(t *testing.T) {
	t.Parallel()
	old := previousProgram(t)
	f := startClusterOf(t, old, 3)
	f.members[0].apply(serviceOnAll("plain", "9100", testkit.Serve(t, echo)))
	ca := newAuthority(t, "ca")
	f.members[0].apply(tlsService(ca.issue("a.example.com"), "a.example.com", "9443", named(t, "b")))
	secret := f.members[0].token("--name", "old", "--role", "admin")
	tr := startTraffic(f, "9100", 100)
	changes := 0
	// works makes a change at every node with the commands of the other release,
	// and checks that asked has all changes.
	works := func(when string, asked *member) {
		t.Helper()
		for _, m := range f.up() {
			bin := old
			if m.bin == old {
				bin = program(t)
			}
			changes++
			doc := fmt.Sprintf("kind: Service\nname: c%d\nspec: {endpoints: [{address: \"127.0.0.1:%d\"}]}\n", changes, changes)
			if r := m.runWith(bin, doc, "apply", "-f", "-"); r.code != 0 || r.err != "" {
				t.Errorf("%s: apply at %s: %+v", when, m.name, r)
			}
			c := dialTLS(t, m.ip+":9443", ca.Client("a.example.com"))
			mustRead(t, c, "b\n")
			c.Close()
			if m != asked {
				continue
			}
			// Many changes at once, which a leader combines into one log entry, but
			// must not while a node of the other release is a member.
			var wg sync.WaitGroup
			for range 12 * f.bothReleasesUp() {
				changes++
				doc := fmt.Sprintf("kind: Service\nname: c%d\nspec: {endpoints: [{address: \"127.0.0.1:%d\"}]}\n", changes, changes)
				wg.Go(func() {
					if r := m.runWith(bin, doc, "apply", "-f", "-"); r.code != 0 || r.err != "" {
						t.Errorf("%s: apply at %s: %+v", when, m.name, r)
					}
				})
			}
			wg.Wait()
			for _, args := range [][]string{{"get", "services"}, {"members"}, {"status"}, {"history", "service", "plain"}, {"token", "list"}} {
				if r := m.runWith(bin, "", args...); r.code != 0 {
					t.Errorf("%s: %v at %s: %+v", when, args, m.name, r)
				}
			}
			if r := m.remote(secret, "", "status"); r.code != 0 {
				t.Errorf("%s: a token at %s: %+v", when, m.name, r)
			}
		}
		testkit.WaitFor(t, when+": all nodes to have all changes", func() bool {
			for _, m := range f.up() {
				if strings.Count(m.run("get", "services", "--stale").out, "\n") != changes+3 { // a header, and two services
					return false
				}
			}
			return true
		})
	}
	restart := func(m *member, bin string) {
		t.Helper()
		tr.excuseNode(m)
		m.stop()
		m.bin = bin
		m.launch()
		f.waitSettled(3)
		tr.endExcuse(m)
	}
	works("all of the previous release", f.members[0])
	for i, m := range f.members {
		restart(m, "")
		works(fmt.Sprint(i+1, " of 3 upgraded"), m)
	}
	restart(f.members[1], old)
	works("one went back", f.members[1])
	restart(f.members[1], "")
	tr.mustBeUnbroken()

	// Nodes of either release join through nodes of either.
	late := f.add("late", newNetwork()+"1")
	late.bin = old
	late.launch("--join", f.members[0].ip+":"+clusterPort, "--token", f.members[0].token("--role", "join"))
	next := f.add("next", newNetwork()+"1")
	next.bin = ""
	next.launch("--join", late.ip+":"+clusterPort, "--token", late.token("--role", "join"))
	f.waitSettled(5)
	// A kind that the previous release does not support is refused while one of
	// its nodes is a member: that node would have to stop.
	const unknown = "kind: PhysicalCluster\nname: p\nspec: {bootstrap: [\"127.0.0.1:9092\"]}\n"
	tr = startTraffic(f, "9100", 20)
	for _, m := range f.up() {
		if r := m.pipe(unknown, "apply", "-f", "-"); r.code != 1 || !strings.Contains(r.err, "late") && !strings.Contains(r.err, "unknown kind") {
			t.Errorf("a new kind beside an old node, at %s: %+v", m.name, r)
		}
	}
	works("five nodes, one of them old", late)
	tr.excuseNode(late)
	late.stop()
	late.bin = ""
	late.launch()
	tr.endExcuse(late)
	f.waitSettled(5)
	testkit.WaitFor(t, "the new kind to be taken", func() bool {
		return late.pipe(unknown, "apply", "-f", "-").code == 0
	})
	works("all upgraded", next)
	tr.mustBeUnbroken()
}
