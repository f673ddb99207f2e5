package integration

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

// long reports whether long tests are enabled (make test-long).
func long() bool { return os.Getenv("PENSTOCK_LONG") != "" }

// echoOutside starts a backend that nodes in network namespaces can reach.
func (l *testLab) echoOutside() string {
	ln := testkit.ListenOn(l.t, "tcp", net.JoinHostPort(l.Outside(), "0"))
	testkit.ServeOn(l.t, ln, echoAny)
	return ln.Addr().String()
}

// partition is a way to cut links. cut applies it, given the hosts of the
// leader and of another node, and returns the hosts that can still decide; nil:
// none.
type partition struct {
	name string
	cut  func(leader, other int) (majority []int)
}

// otherHosts returns the numbers of all other hosts.
func (l *testLab) otherHosts(out ...int) (rest []int) {
	for h := 1; h <= l.Hosts(); h++ {
		if !slices.Contains(out, h) {
			rest = append(rest, h)
		}
	}
	return rest
}

// hostPartitions are partitions that separate some hosts from the others.
func hostPartitions(l *testLab) []partition {
	partitions := []partition{
		{"the leader alone", func(leader, _ int) []int {
			l.split([]int{leader}, l.otherHosts(leader))
			return l.otherHosts(leader)
		}},
		{"a follower alone", func(_, other int) []int {
			l.split([]int{other}, l.otherHosts(other))
			return l.otherHosts(other)
		}},
		{"everyone alone", func(_, _ int) []int {
			var single [][]int
			for _, h := range l.otherHosts() {
				single = append(single, []int{h})
			}
			l.split(single...)
			return nil
		}},
	}
	if l.Hosts() == 5 {
		partitions = append(partitions, partition{"two and three", func(leader, other int) []int {
			l.split([]int{leader, other}, l.otherHosts(leader, other))
			return l.otherHosts(leader, other)
		}})
	}
	return partitions
}

// linkPartitions are partitions in which some hosts do not receive from others,
// whose packets still reach their neighbours.
func linkPartitions(l *testLab) []partition {
	return []partition{
		{"the leader is not heard", func(leader, _ int) []int {
			for _, h := range l.otherHosts(leader) {
				l.cutOneWay(leader, h)
			}
			return l.otherHosts(leader)
		}},
		{"the leader does not hear", func(leader, _ int) []int {
			for _, h := range l.otherHosts(leader) {
				l.cutOneWay(h, leader)
			}
			return l.otherHosts(leader)
		}},
		{"leader and one follower do not see each other", func(leader, other int) []int {
			l.cut(leader, other)
			return l.otherHosts(leader, other)
		}},
	}
}

// Partitions of every kind: nodes that reach a majority of the voters decide,
// the others report that they cannot, and no connection is affected.
func TestPartitionsBreakNoConnection(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]func(l *testLab) []partition{"of hosts": hostPartitions, "of links": linkPartitions} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 3
			if long() {
				n = 5
			}
			l := newLab(t, n)
			runPartitions(l, partitions(l))
		})
	}
}

// runPartitions applies the partitions to a cluster, one after the other.
func runPartitions(l *testLab, partitions []partition) {
	t := l.t
	const held = 100
	f := startClusterIn(l)
	backend := l.echoOutside()
	f.members[0].apply(serviceOnAll("svc", "9100", backend))
	tr := startTraffic(f, "9100", held)
	for i, p := range partitions {
		leader := f.waitLeader()
		at := slices.Index(f.members, leader) + 1
		majority := p.cut(at, at%l.Hosts()+1)
		name := fmt.Sprint("during-", i)
		change := serviceOnAll(name, fmt.Sprint(9200+i), backend)
		if len(majority) > 0 {
			m := f.members[majority[0]-1]
			testkit.WaitFor(t, p.name+": a write on the side that can decide", func() bool {
				r := m.pipe(change, "apply", "-f", "-", "--wait", "none", "--timeout", "5s")
				return r.code == 0
			})
		}
		if len(majority) == 0 || len(majority) == l.Hosts()-1 {
			for _, h := range l.otherHosts(majority...) {
				m := f.members[h-1]
				testkit.WaitFor(t, p.name+": "+m.name+" to say that it is alone", func() bool { return m.status().Alone != "" })
				r := m.pipe(serviceOnAll("never", "9300", backend), "apply", "-f", "-", "--timeout", "1s")
				if r.code == 0 {
					t.Errorf("%s: %s took a write alone", p.name, m.name)
				}
			}
		}
		l.heal()
		f.waitSettled(l.Hosts())
		f.mustAgree()
		if len(majority) > 0 && !strings.Contains(f.members[at-1].must("get", "services"), name) {
			t.Errorf("%s: what was decided is gone", p.name)
		}
	}
	tr.mustBeUnbroken()
	for _, m := range f.members {
		if strings.Contains(m.must("get", "services"), "never") {
			t.Error("a refused write acts")
		}
	}
}

// mustAgree waits until all running nodes have the same content.
func (f *cluster) mustAgree() {
	f.t.Helper()
	testkit.WaitFor(f.t, "all nodes to have the same content", func() bool {
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

// A slow link makes the cluster slow, and has no other effect.
func TestSlowLinksBreakNoConnection(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	f := startClusterIn(l)
	backend := l.echoOutside()
	f.members[0].apply(serviceOnAll("svc", "9100", backend))
	tr := startTraffic(f, "9100", 50)
	l.slow(30_000)
	for i := range 10 {
		// An incompressible change: about a second of the link's bandwidth.
		noise := make([]byte, 10_000)
		if _, err := rand.Read(noise); err != nil {
			t.Fatal(err)
		}
		change := serviceOnAll(fmt.Sprint("slow", i), fmt.Sprint(9200+i), backend)
		for j := range 100 {
			change += fmt.Sprintf("---\n"+
				"kind: Service\n"+
				"name: n%d-%d\n"+
				"spec: {endpoints: [{address: %q, tags: {noise: %x}}]}\n", i, j, backend, noise[j*30:j*30+30])
		}
		testkit.WaitFor(t, "a change over slow links", func() bool {
			return f.members[0].pipe(change, "apply", "-f", "-", "--wait", "none", "--timeout", "20s").code == 0
		})
	}
	l.heal()
	f.waitSettled(3)
	f.mustAgree()
	tr.mustBeUnbroken()
}
