package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"penstock/integration/lab"
	"penstock/internal/testkit"
)

// testLab is a lab whose errors fail the test.
type testLab struct {
	*lab.Lab
	t testing.TB
}

// newLab creates the hosts. It requires root, ip and nft: without them the test
// fails in CI and is skipped elsewhere.
func newLab(t testing.TB, n int) *testLab {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.NotTested(t, "hosts with a network of their own want root")
	}
	requirePeer(t, "ip")
	requirePeer(t, "nft")
	l, err := lab.New(n)
	if errors.Is(err, lab.ErrNotPermitted) {
		testkit.NotTested(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return &testLab{l, t}
}

func (h *testLab) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *testLab) heal()                  { h.t.Helper(); h.must(h.Heal()) }
func (h *testLab) cut(a, b int)           { h.t.Helper(); h.must(h.Cut(a, b)) }
func (h *testLab) cutOneWay(from, to int) { h.t.Helper(); h.must(h.CutOneWay(from, to)) }
func (h *testLab) slow(bytes int)         { h.t.Helper(); h.must(h.Slow(bytes)) }

// split cuts all links between the groups.
func (h *testLab) split(groups ...[]int) {
	h.t.Helper()
	for i, one := range groups {
		for _, other := range groups[i+1:] {
			for _, a := range one {
				for _, b := range other {
					h.cut(a, b)
				}
			}
		}
	}
}

// startClusterIn is startCluster with one host per node.
func startClusterIn(l *testLab, flags ...string) *cluster {
	l.t.Helper()
	f := &cluster{t: l.t}
	for i := 1; i <= l.Hosts(); i++ {
		m := f.add(fmt.Sprintf("n%d", i), l.Address(i), append([]string{"--http-insecure"}, flags...)...)
		m.inside = l.Inside(i)
		if i == 1 {
			m.launch("--init")
			f.join = m.joinFlags()
		} else {
			m.launch(f.join...)
		}
	}
	f.waitSettled(l.Hosts() - (l.Hosts()+1)%2)
	return f
}

// Networks of killed processes are removed before a new one is created; those
// of running processes are not.
func TestNetworksOfKilledProcessesAreRemoved(t *testing.T) {
	living := newLab(t, 1)
	const dead = "pk0-0" // as New names them; no process claims 10.0.0.0
	for _, argv := range [][]string{
		{"ip", "link", "add", dead, "type", "bridge"},
		{"ip", "netns", "add", dead + "-1"},
	} {
		mustRunCommand(t, argv)
	}
	newLab(t, 1)
	for path, want := range map[string]bool{
		"/sys/class/net/" + dead:            false,
		"/var/run/netns/" + dead + "-1":     false,
		"/sys/class/net/" + living.Cable(1): true,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
	mustRunCommand(t, append(living.Inside(1), "true"))
}

// mustRunCommand runs a command that must succeed.
func mustRunCommand(t testing.TB, argv []string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}
