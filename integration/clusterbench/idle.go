package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"penstock/integration/lab"
)

// idleFor is how long the idle cluster is measured.
const idleFor = 60 * time.Second

// bytesOn returns the bytes sent and received on a host's link, including
// Ethernet headers.
func bytesOn(cable string) (float64, error) {
	sum := 0.0
	for _, which := range []string{"rx_bytes", "tx_bytes"} {
		text, err := os.ReadFile("/sys/class/net/" + cable + "/statistics/" + which)
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

// measureIdle measures five idle nodes, each in its own network namespace. It
// requires root.
func measureIdle(e *env) error {
	const nodes = 5
	network, err := lab.New(nodes)
	if err != nil {
		return err
	}
	defer network.Close()
	f, err := startCluster(e, plan{size: nodes, prefix: network.Prefix(),
		inside: func(i int) []string { return network.Inside(i + 1) }})
	if err != nil {
		return err
	}
	defer f.stop()
	leader, err := f.leader()
	if err != nil {
		return err
	}
	for _, n := range f.nodes {
		n.client.Close() // no requests from here on
	}
	pause := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-e.ctx.Done():
			return e.ctx.Err()
		}
	}
	if err := pause(20 * time.Second); err != nil { // let the activity of forming the cluster end
		return err
	}
	cpu, traffic := make([]time.Duration, nodes), make([]float64, nodes)
	for i, n := range f.nodes {
		cpu[i] = n.proc.CPU()
		if traffic[i], err = bytesOn(network.Cable(i + 1)); err != nil {
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
		bytes, err := bytesOn(network.Cable(i + 1))
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
