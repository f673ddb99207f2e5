package integration

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
)

// long tells whether the tests may take their time (make test-long).
func long() bool { return os.Getenv("PENSTOCK_LONG") != "" }

// echoOutside is a backend that nodes with a network of their own reach.
func (l *hosts) echoOutside() string {
	ln := listen(l.t, "tcp", net.JoinHostPort(l.Outside(), "0"))
	serveOn(l.t, ln, echoAny)
	return ln.Addr().String()
}

// Partitions of every shape: whoever can reach most of the voters decides,
// whoever cannot says so, and no connection notices any of it.
func TestPartitionsBreakNoConnection(t *testing.T) {
	t.Parallel()
	const held = 100
	hosts := 3
	if long() {
		hosts = 5
	}
	l := newLab(t, hosts)
	f := startFleetIn(l)
	backend := l.echoOutside()
	f.members[0].apply(serviceOnAll("svc", "9100", backend))
	tr := startTraffic(f, "9100", held)
	all := make([]int, hosts)
	for i := range all {
		all[i] = i + 1
	}
	without := func(out ...int) []int {
		return slices.DeleteFunc(slices.Clone(all), func(h int) bool { return slices.Contains(out, h) })
	}
	single := make([][]int, hosts)
	for i := range all {
		single[i] = []int{i + 1}
	}
	shapes := []struct {
		name string
		cut  func(leader, other int) (decides []int) // who can go on deciding; none: nil
	}{
		{"the leader alone", func(leader, _ int) []int {
			l.split([]int{leader}, without(leader))
			return without(leader)
		}},
		{"a follower alone", func(_, other int) []int {
			l.split([]int{other}, without(other))
			return without(other)
		}},
		{"everyone alone", func(_, _ int) []int {
			l.split(single...)
			return nil
		}},
		{"the leader is not heard", func(leader, _ int) []int {
			for _, h := range without(leader) {
				l.cutOneWay(leader, h)
			}
			return without(leader)
		}},
		{"the leader does not hear", func(leader, _ int) []int {
			for _, h := range without(leader) {
				l.cutOneWay(h, leader)
			}
			return without(leader)
		}},
		{"leader and one follower do not see each other", func(leader, other int) []int {
			l.cut(leader, other)
			return without(leader, other)
		}},
	}
	if hosts == 5 {
		shapes = append(shapes, struct {
			name string
			cut  func(leader, other int) []int
		}{"two and three", func(leader, other int) []int {
			l.split([]int{leader, other}, without(leader, other))
			return without(leader, other)
		}})
	}
	for i, shape := range shapes {
		leader := f.waitLeader()
		at := slices.Index(f.members, leader) + 1
		decides := shape.cut(at, at%hosts+1)
		name := fmt.Sprint("during-", i)
		change := serviceOnAll(name, fmt.Sprint(9200+i), backend)
		if len(decides) > 0 {
			m := f.members[decides[0]-1]
			waitFor(t, shape.name+": a write on the side that can decide", func() bool {
				r := m.pipe(change, "apply", "-f", "-", "--wait", "none", "--timeout", "5s")
				return r.code == 0
			})
		}
		if len(decides) == 0 || len(decides) == hosts-1 {
			for _, h := range without(decides...) {
				m := f.members[h-1]
				waitFor(t, shape.name+": "+m.name+" to say that it is alone", func() bool { return m.status().Alone != "" })
				r := m.pipe(serviceOnAll("never", "9300", backend), "apply", "-f", "-", "--timeout", "1s")
				if r.code == 0 {
					t.Errorf("%s: %s took a write alone", shape.name, m.name)
				}
			}
		}
		l.heal()
		f.waitSettled(hosts)
		f.mustAgree()
		if len(decides) > 0 && !strings.Contains(f.members[at-1].must("get", "services"), name) {
			t.Errorf("%s: what was decided is gone", shape.name)
		}
	}
	tr.mustBeWhole()
	for _, m := range f.members {
		if strings.Contains(m.must("get", "services"), "never") {
			t.Error("a refused write acts")
		}
	}
}

// mustAgree waits until all running nodes have the same content, and compares it.
func (f *fleet) mustAgree() {
	f.t.Helper()
	waitFor(f.t, "all nodes to have the same content", func() bool {
		first := ""
		for i, m := range f.up() {
			r := m.run("get", "services", "--stale", "-o", "yaml")
			if r.code != 0 || i > 0 && r.out != first {
				return false
			}
			first = r.out
		}
		return true
	})
}

// A slow link makes the cluster slow, and nothing else.
func TestSlowLinksBreakNoConnection(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	f := startFleetIn(l)
	backend := l.echoOutside()
	f.members[0].apply(serviceOnAll("svc", "9100", backend))
	tr := startTraffic(f, "9100", 50)
	l.slow(30_000)
	for i := range 10 {
		// A change that does not compress: about a second of such a link.
		noise := make([]byte, 10_000)
		if _, err := rand.Read(noise); err != nil {
			t.Fatal(err)
		}
		change := serviceOnAll(fmt.Sprint("slow", i), fmt.Sprint(9200+i), backend)
		for j := range 100 {
			change += fmt.Sprintf("---\nkind: Service\nname: n%d-%d\nspec: {endpoints: [{address: %q, tags: {noise: %x}}]}\n", i, j, backend, noise[j*30:j*30+30])
		}
		waitFor(t, "a change over slow links", func() bool {
			return f.members[0].pipe(change, "apply", "-f", "-", "--wait", "none", "--timeout", "20s").code == 0
		})
	}
	l.heal()
	f.waitSettled(3)
	f.mustAgree()
	tr.mustBeWhole()
}
