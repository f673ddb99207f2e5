package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// idleFor is how long a cluster that has nothing to do is watched.
const idleFor = 60 * time.Second

// network is a namespace for each node, joined by a bridge. What a node sends
// and gets is counted at the outer end of its cable, with the headers of
// Ethernet. It needs root.
type network struct {
	name, prefix string
	hosts        int
}

func newNetwork(hosts int) (*network, error) {
	pid := os.Getpid()
	n := &network{name: fmt.Sprintf("pb%d", pid%100000), prefix: fmt.Sprintf("10.%d.77.", 200+pid%50), hosts: hosts}
	commands := []string{
		"ip link add " + n.name + " type bridge", "ip addr add " + n.prefix + "254/24 dev " + n.name, "ip link set " + n.name + " up",
	}
	for i := range hosts {
		ns, outer := n.namespace(i), n.cable(i)
		commands = append(commands, "ip netns add "+ns,
			"ip link add "+outer+" type veth peer name eth0 netns "+ns,
			"ip link set "+outer+" master "+n.name, "ip link set "+outer+" up",
			fmt.Sprintf("ip -n %s addr add %s%d/24 dev eth0", ns, n.prefix, i+1),
			"ip -n "+ns+" link set eth0 up", "ip -n "+ns+" link set lo up")
	}
	for _, c := range commands {
		argv := strings.Fields(c)
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil { //nolint:noctx // these are short
			n.close()
			return nil, fmt.Errorf("%s: %w\n%s", c, err, out)
		}
	}
	return n, nil
}

func (n *network) namespace(i int) string { return fmt.Sprintf("%s-%d", n.name, i+1) }
func (n *network) cable(i int) string     { return fmt.Sprintf("%s.%d", n.name, i+1) }

func (n *network) close() {
	for i := range n.hosts {
		_ = exec.Command("ip", "netns", "del", n.namespace(i)).Run() //nolint:noctx // these are short
	}
	_ = exec.Command("ip", "link", "del", n.name).Run() //nolint:noctx // these are short
}

// bytes is what went through a node's cable, both ways.
func (n *network) bytes(i int) (float64, error) {
	sum := 0.0
	for _, which := range []string{"rx_bytes", "tx_bytes"} {
		text, err := os.ReadFile("/sys/class/net/" + n.cable(i) + "/statistics/" + which)
		if err != nil {
			return 0, err
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// measureIdle watches five nodes that have nothing to do, each in a network of
// its own.
func measureIdle(e *env) error {
	const nodes = 5
	network, err := newNetwork(nodes)
	if err != nil {
		return err
	}
	defer network.close()
	f, err := startFleet(e, plan{size: nodes, prefix: network.prefix,
		inside: func(i int) []string { return []string{"ip", "netns", "exec", network.namespace(i)} }})
	if err != nil {
		return err
	}
	defer f.stop()
	leader, err := f.leader()
	if err != nil {
		return err
	}
	for _, n := range f.nodes {
		n.client.Close() // nobody asks anything
	}
	pause := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-e.ctx.Done():
			return e.ctx.Err()
		}
	}
	if err := pause(20 * time.Second); err != nil { // what forming led to comes to rest
		return err
	}
	cpu, traffic := make([]time.Duration, nodes), make([]float64, nodes)
	for i, n := range f.nodes {
		cpu[i] = n.proc.CPU()
		if traffic[i], err = network.bytes(i); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := pause(idleFor); err != nil {
		return err
	}
	took := time.Since(began)
	var leaderCPU, leaderBytes, mostCPU, mostBytes float64
	for i, n := range f.nodes {
		share := 100 * float64(n.proc.CPU()-cpu[i]) / float64(took)
		bytes, err := network.bytes(i)
		if err != nil {
			return err
		}
		rate := (bytes - traffic[i]) / 1e3 / took.Seconds()
		e.say("%s: leads %v, %.2f %% of a core, %.2f KB/s, RSS %d MiB", n.name, n == leader, share, rate, n.proc.RSS()>>20)
		if n == leader {
			leaderCPU, leaderBytes = share, rate
			continue
		}
		mostCPU, mostBytes = max(mostCPU, share), max(mostBytes, rate)
	}
	if now, err := f.leader(); err != nil || now != leader {
		return fmt.Errorf("the lead went elsewhere meanwhile: %w", err)
	}
	e.atMost("idle, 5 nodes: CPU of the leader", "% of a core", leaderCPU, 0.5)
	e.atMost("idle, 5 nodes: CPU of the busiest follower", "% of a core", mostCPU, 0.5)
	e.atMost("idle, 5 nodes: sent and received by the leader", "KB/s", leaderBytes, 5)
	e.atMost("idle, 5 nodes: sent and received by the busiest follower", "KB/s", mostBytes, 5)
	return nil
}
