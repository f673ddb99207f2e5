package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"penstock/node/trust"
)

// Default ports.
const (
	shopPort, flakyPort, edgePort       = 9000, 9001, 9443
	kafkaPort, plainPort                = 9092, 9192
	clusterPort, gossipPort, statusPort = 7947, 7946, 7948
)

// ports are the ports of each node, the same on every node's address. plain is
// the first of a range; see plainPorts.
type ports struct{ cluster, gossip, http, shop, flaky, edge, kafka, plain int }

// listeners is the number of client listeners of each node.
const listeners = 4 + 1 + kafkaBrokers

// cluster holds the nodes and the balancer in front of them.
type cluster struct {
	nodes    []*node
	ports    ports
	balancer *balancer
	spawn    *spawner
	// Addresses for clients.
	shop, flaky, edge, kafka, plain string
}

// conditionTimeout bounds each wait of the demo; it allows for a busy machine.
const conditionTimeout = time.Minute

// newCluster reserves addresses. It does not start the nodes.
func newCluster(ctx context.Context, exe, dir string) (*cluster, error) {
	f := &cluster{balancer: newBalancer(nodeCount), spawn: newSpawner()}
	var frontends []net.Listener
	for _, port := range []int{shopPort, flakyPort, edgePort} {
		l, err := listen(ctx, port)
		if err != nil {
			for _, l := range frontends {
				l.Close()
			}
			f.close()
			return nil, err
		}
		frontends = append(frontends, l)
	}
	hosts := hosts(portOf(frontends[0]))
	for _, p := range []struct {
		at    *int
		usual int
	}{
		{&f.ports.cluster, clusterPort}, {&f.ports.gossip, gossipPort}, {&f.ports.http, statusPort},
		{&f.ports.shop, shopPort}, {&f.ports.flaky, flakyPort}, {&f.ports.edge, edgePort}, {&f.ports.kafka, kafkaPort},
	} {
		var err error
		if *p.at, err = freePort(ctx, hosts, p.usual); err != nil {
			for _, l := range frontends {
				l.Close()
			}
			f.close()
			return nil, err
		}
	}
	var err error
	if f.ports.plain, err = plainPorts(ctx, hosts); err == nil {
		err = f.openKafka(ctx, hosts)
	}
	if err != nil {
		for _, l := range frontends {
			l.Close()
		}
		f.close()
		return nil, err
	}
	for i, host := range hosts {
		f.nodes = append(f.nodes, newNode(exe, dir, fmt.Sprintf("n%d", i+1), host, f.ports, f.spawn))
	}
	for i, port := range []int{f.ports.shop, f.ports.flaky, f.ports.edge} {
		f.balancer.open(frontends[i], targets(hosts, port))
	}
	f.shop, f.flaky, f.edge = frontends[0].Addr().String(), frontends[1].Addr().String(), frontends[2].Addr().String()
	return f, nil
}

// bootstrap starts the nodes and waits until all of them have formed one
// cluster, in which every node is a voter from the start.
func (f *cluster) bootstrap(ctx context.Context) error {
	token := trust.NewExpectToken().Reveal()
	var join []string
	for _, n := range f.nodes {
		join = append(join, at(n.host, f.ports.cluster))
	}
	for _, n := range f.nodes {
		if err := n.start(token, "--expect", strconv.Itoa(len(f.nodes)), "--join", strings.Join(join, ",")); err != nil {
			return err
		}
	}
	for i, n := range f.nodes {
		if err := f.await(ctx, n, "is not ready", func() bool {
			return n.lastReport() != nil && f.balancer.counts(i).up
		}); err != nil {
			return err
		}
	}
	return nil
}

// await waits until holds returns true. what names the failed condition in the
// error.
func (f *cluster) await(ctx context.Context, about *node, what string, holds func() bool) error {
	deadline := time.Now().Add(conditionTimeout)
	for !holds() {
		if err := f.checkAlive(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return about.withLog(fmt.Errorf("%s after %v", what, conditionTimeout))
		}
		pause(ctx, 20*time.Millisecond)
	}
	return nil
}

// checkAlive returns an error if a node ended unexpectedly.
func (f *cluster) checkAlive() error {
	for _, n := range f.nodes {
		if err := n.checkAlive(); err != nil {
			return err
		}
	}
	return nil
}

// leader returns the node that all running nodes, itself included, report as
// the leader; nil if there is none.
func (f *cluster) leader() *node {
	var leader *node
	for _, n := range f.nodes {
		if n.isLeader() {
			leader = n
		}
	}
	if leader == nil {
		return nil
	}
	for _, n := range f.nodes {
		if r := n.lastReport(); n.running() != nil && (r == nil || r.leader != leader.name) {
			return nil
		}
	}
	return leader
}

// allVoting reports whether all nodes are voters and follow the same leader.
func (f *cluster) allVoting() bool {
	for _, n := range f.nodes {
		if r := n.lastReport(); r == nil || r.self.State != "serving" || r.self.Role != "leader" && r.self.Role != "voter" {
			return false
		}
	}
	return f.leader() != nil
}

// randomNode returns a random running node.
func (f *cluster) randomNode() *node {
	for _, i := range rand.Perm(len(f.nodes)) { //nolint:gosec // no secret
		if f.nodes[i].lastReport() != nil {
			return f.nodes[i]
		}
	}
	return f.nodes[0]
}

// index returns the index of a node, or -1.
func (f *cluster) index(n *node) int {
	for i := range f.nodes {
		if f.nodes[i] == n {
			return i
		}
	}
	return -1
}

// kill ends a node with SIGKILL and returns how many connections it carried.
func (f *cluster) kill(n *node) (carried int) {
	p := n.detach()
	f.balancer.markKilled(f.index(n))
	p.kill()
	return f.balancer.counts(f.index(n)).carriedAtKill
}

// restart starts a node with nothing but its data folder.
func (f *cluster) restart(n *node) error {
	f.balancer.markStarted(f.index(n))
	return n.start("")
}

const stopTimeout = 15 * time.Second

// stop stops the nodes one by one, the leader last, so that no election is
// needed.
func (f *cluster) stop() error {
	var errs []error
	leader := f.leader()
	for _, last := range []bool{false, true} {
		for _, n := range f.nodes {
			if (n == leader) != last {
				continue
			}
			err := n.checkAlive()
			if p := n.detach(); err == nil && p != nil {
				if err = p.stop(stopTimeout); err != nil {
					err = n.withLog(err)
				}
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// close kills the remaining processes.
func (f *cluster) close() {
	f.balancer.close()
	for _, n := range f.nodes {
		if p := n.detach(); p != nil {
			p.kill()
		}
	}
	f.spawn.close()
}
