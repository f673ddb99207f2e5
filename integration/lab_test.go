package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// lab is a network of several hosts on this machine: a network namespace for
// each node, joined by a bridge on which the test itself has an address too
// (clients and backends are there). Links between nodes can be cut, one way or
// both, while the test reaches all of them.
type lab struct {
	t      testing.TB
	name   string // of the bridge; namespaces are name-1 and on
	prefix string // of the addresses, "10.231.7."
	hosts  int
}

var labs atomic.Int32

// newLab makes the hosts. It needs root, ip and nft: an error in CI, a skip
// elsewhere.
func newLab(t testing.TB, hosts int) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("hosts with a network of their own want root")
		}
		t.Skip("NOT TESTED: hosts with a network of their own want root")
	}
	requirePeer(t, "ip")
	requirePeer(t, "nft")
	n := labs.Add(1)
	l := &lab{t: t, name: fmt.Sprintf("pk%d-%d", os.Getpid()%100000, n), prefix: fmt.Sprintf("10.%d.%d.", 100+os.Getpid()%100, n), hosts: hosts}
	t.Cleanup(l.remove)
	// Where even root may make no networks, as in some containers, the test
	// is skipped.
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil && strings.Contains(string(out), "not permitted") {
		t.Skip("NOT TESTED: no network of its own can be made here, not even by root")
	}
	l.run("ip", "link", "add", l.name, "type", "bridge")
	l.run("ip", "addr", "add", l.prefix+"254/24", "dev", l.name)
	l.run("ip", "link", "set", l.name, "up")
	for i := 1; i <= hosts; i++ {
		ns, outside := l.namespace(i), fmt.Sprintf("%s.%d", l.name, i)
		l.run("ip", "netns", "add", ns)
		l.run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", ns)
		l.run("ip", "link", "set", outside, "master", l.name)
		l.run("ip", "link", "set", outside, "up")
		l.run("ip", "-n", ns, "addr", "add", fmt.Sprint(l.prefix, i, "/24"), "dev", "eth0")
		l.run("ip", "-n", ns, "link", "set", "eth0", "up")
		l.run("ip", "-n", ns, "link", "set", "lo", "up")
	}
	l.heal()
	return l
}

func (l *lab) namespace(host int) string { return fmt.Sprintf("%s-%d", l.name, host) }

// outside is the test's own address.
func (l *lab) outside() string { return l.prefix + "254" }

func (l *lab) run(argv ...string) {
	l.t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		l.t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

func (l *lab) remove() {
	for i := 1; i <= l.hosts; i++ {
		_ = exec.Command("ip", "netns", "del", l.namespace(i)).Run()
	}
	_ = exec.Command("ip", "link", "del", l.name).Run()
}

// heal mends all links.
func (l *lab) heal() {
	l.t.Helper()
	for i := 1; i <= l.hosts; i++ {
		l.run("ip", "netns", "exec", l.namespace(i), "nft",
			"flush ruleset; add table ip lab; add chain ip lab in { type filter hook input priority 0; }")
	}
}

// cutOneWay drops everything that one host sends to another.
func (l *lab) cutOneWay(from, to int) {
	l.t.Helper()
	l.run("ip", "netns", "exec", l.namespace(to), "nft", fmt.Sprintf("add rule ip lab in ip saddr %s%d drop", l.prefix, from))
}

// cut drops everything between two hosts.
func (l *lab) cut(a, b int) {
	l.t.Helper()
	l.cutOneWay(a, b)
	l.cutOneWay(b, a)
}

// split leaves links within the groups alone.
func (l *lab) split(groups ...[]int) {
	l.t.Helper()
	for i, one := range groups {
		for _, other := range groups[i+1:] {
			for _, a := range one {
				for _, b := range other {
					l.cut(a, b)
				}
			}
		}
	}
}

// slow lets each host take that many bytes a second from the other hosts, and
// drops the rest.
func (l *lab) slow(bytes int) {
	l.t.Helper()
	for i := 1; i <= l.hosts; i++ {
		l.run("ip", "netns", "exec", l.namespace(i), "nft",
			fmt.Sprintf("add rule ip lab in ip saddr != %s limit rate over %d bytes/second drop", l.outside(), bytes))
	}
}

// startFleetIn is startFleet with a host for each node.
func startFleetIn(l *lab, flags ...string) *fleet {
	l.t.Helper()
	f := &fleet{t: l.t}
	for i := 1; i <= l.hosts; i++ {
		m := f.add(fmt.Sprintf("n%d", i), fmt.Sprint(l.prefix, i), append([]string{"--http-insecure"}, flags...)...)
		m.inside = []string{"ip", "netns", "exec", l.namespace(i)}
		if i == 1 {
			m.launch("--init")
			f.join = m.joinFlags()
		} else {
			m.launch(f.join...)
		}
	}
	f.waitSettled(l.hosts - (l.hosts+1)%2)
	return f
}
