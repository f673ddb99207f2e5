// Package lab builds a network of several hosts on one machine, for tests and
// measurements: a network namespace per host, joined by a bridge on which the
// machine itself has an address (clients and backends run there). Links between
// hosts can be cut, one way or both; the machine still reaches all of them. It
// requires root, ip and nft.
//
//	l, err := lab.New(3)
//	defer l.Close()
//	cmd := exec.Command(l.Inside(1)[0], append(l.Inside(1)[1:], "penstock", "start")...)
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrNotPermitted is returned by New if even root may not create networks, as
// in some containers.
var ErrNotPermitted = errors.New("no network of its own can be made here, not even by root")

// A Lab is such a network. Hosts are numbered from 1.
type Lab struct {
	claim  net.Listener // reserves the subnet until this process ends
	name   string       // of the bridge; namespaces are name-1, ..., cables name.1, ...
	prefix string       // of the addresses, "10.231.7."
	hosts  int
}

// New creates the hosts with all links up. It first removes what killed
// processes left behind: two networks with the same addresses would take each
// other's packets.
func New(hosts int) (*Lab, error) {
	if err := run("unshare", "--net", "true"); err != nil {
		if strings.Contains(err.Error(), "not permitted") {
			return nil, ErrNotPermitted
		}
		return nil, err
	}
	sweep()
	l, err := reserve()
	if err != nil {
		return nil, err
	}
	l.hosts = hosts
	err = l.build()
	if err == nil {
		err = l.Heal()
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// reserve finds an unused subnet. The claim is an abstract socket: it belongs
// to the same network namespace as the bridge, and the kernel releases it when
// the process ends, however that happens.
func reserve() (*Lab, error) {
	const second, third = 100, 250 // 10.100.0.0 to 10.199.249.0
	for i := range second * third {
		n := (os.Getpid()*7 + i) % (second * third)
		a, b := 100+n/third, n%third
		if taken(a, b) {
			continue
		}
		if claim, err := claimed(a, b); err == nil {
			return &Lab{claim: claim, name: fmt.Sprintf("pk%d-%d", a, b), prefix: fmt.Sprintf("10.%d.%d.", a, b)}, nil
		}
	}
	return nil, errors.New("no subnet of 10.100.0.0 to 10.199.249.0 is free")
}

func claimed(a, b int) (net.Listener, error) {
	var conf net.ListenConfig
	return conf.Listen(context.Background(), "unix", fmt.Sprintf("@penstock-lab-%d-%d", a, b))
}

// taken reports whether the machine already has an address in 10.a.b.0/24.
func taken(a, b int) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(a), byte(b), 0}), 24)
	for _, addr := range addrs {
		if p, err := netip.ParsePrefix(addr.String()); err == nil && subnet.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// sweep removes networks whose owners have ended.
func sweep() {
	links, _ := filepath.Glob("/sys/class/net/pk*-*")
	spaces, _ := filepath.Glob("/var/run/netns/pk*-*-*")
	for _, path := range append(links, spaces...) {
		name := filepath.Base(path)
		var a, b int
		if n, _ := fmt.Sscanf(name, "pk%d-%d", &a, &b); n != 2 {
			continue // another program's
		}
		claim, err := claimed(a, b)
		if err != nil {
			continue // its owner still runs
		}
		kind := "link"
		if filepath.Dir(path) == "/var/run/netns" {
			kind = "netns"
		}
		_ = run("ip", kind, "del", name)
		_ = claim.Close()
	}
}

func (l *Lab) build() error {
	commands := []string{
		"ip link add " + l.name + " type bridge",
		"ip addr add " + l.Outside() + "/24 dev " + l.name,
		"ip link set " + l.name + " up",
	}
	for i := 1; i <= l.hosts; i++ {
		ns, cable := l.namespace(i), l.Cable(i)
		commands = append(commands, "ip netns add "+ns,
			"ip link add "+cable+" type veth peer name eth0 netns "+ns,
			"ip link set "+cable+" master "+l.name,
			"ip link set "+cable+" up",
			"ip -n "+ns+" addr add "+l.Address(i)+"/24 dev eth0",
			"ip -n "+ns+" link set eth0 up",
			"ip -n "+ns+" link set lo up")
	}
	for _, c := range commands {
		if err := run(strings.Fields(c)...); err != nil {
			return err
		}
	}
	return nil
}

// Close removes the network. Processes in it must have ended.
func (l *Lab) Close() {
	for i := 1; i <= l.hosts; i++ {
		_ = run("ip", "link", "del", l.Cable(i)) // otherwise the kernel removes it asynchronously, after netns del returns
		_ = run("ip", "netns", "del", l.namespace(i))
	}
	_ = run("ip", "link", "del", l.name)
	_ = l.claim.Close()
}

func (l *Lab) namespace(host int) string { return fmt.Sprintf("%s-%d", l.name, host) }

// Hosts returns the number of hosts.
func (l *Lab) Hosts() int { return l.hosts }

// Prefix returns the common prefix of all addresses, such as "10.231.7.".
func (l *Lab) Prefix() string { return l.prefix }

// Address returns the address of a host.
func (l *Lab) Address(host int) string { return l.prefix + strconv.Itoa(host) }

// Outside returns the machine's own address in the network.
func (l *Lab) Outside() string { return l.prefix + "254" }

// Cable returns the name of the machine's end of the host's only link.
func (l *Lab) Cable(host int) string { return fmt.Sprintf("%s.%d", l.name, host) }

// Inside returns the prefix of a command line that runs on a host.
func (l *Lab) Inside(host int) []string { return []string{"ip", "netns", "exec", l.namespace(host)} }

// Heal restores all links.
func (l *Lab) Heal() error {
	for i := 1; i <= l.hosts; i++ {
		if err := l.nft(i, "flush ruleset; add table ip lab; add chain ip lab in { type filter hook input priority 0; }"); err != nil {
			return err
		}
	}
	return nil
}

// CutOneWay drops all packets from one host to another.
func (l *Lab) CutOneWay(from, to int) error {
	return l.nft(to, fmt.Sprintf("add rule ip lab in ip saddr %s drop", l.Address(from)))
}

// Cut drops all packets between two hosts.
func (l *Lab) Cut(a, b int) error {
	return errors.Join(l.CutOneWay(a, b), l.CutOneWay(b, a))
}

// Slow limits the traffic that each host receives from the other hosts to a
// number of bytes per second, and drops the rest.
func (l *Lab) Slow(bytes int) error {
	for i := 1; i <= l.hosts; i++ {
		if err := l.nft(i, fmt.Sprintf(
			"add rule ip lab in ip saddr != %s limit rate over %d bytes/second drop",
			l.Outside(), bytes)); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) nft(host int, rule string) error {
	return run(append(l.Inside(host), "nft", rule)...)
}

// longest bounds each command; normally they take milliseconds.
const longest = 30 * time.Second

func run(argv ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}
