package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"penstock/node/api"
)

// chunk is the number of resources per change.
const chunk = 1000

// measureLarge fills three nodes with resources, saves a snapshot, restores it
// into three empty nodes, and restarts a node, using the command line.
func measureLarge(e *env) error {
	f, err := startCluster(e, plan{size: 3})
	if err != nil {
		return err
	}
	defer f.stop()
	if err := fill(e, f); err != nil {
		return err
	}
	e.atMost("the same, RSS of the largest node", "MiB", f.mostRSS(), 400)

	file := filepath.Join(e.base, "large.snap")
	defer func() { _ = os.Remove(file) }()
	took, err := command(e, f.nodes[0], "snapshot", "save", file)
	if err != nil {
		return err
	}
	e.atMost("the same, snapshot save", "s", took.Seconds(), 2)
	if info, err := os.Stat(file); err == nil {
		e.note("the same, size of the snapshot", "MiB", float64(info.Size())/(1<<20))
	}
	if err := restarts(e, f, "the same, restart to ready"); err != nil {
		return err
	}
	f.stop()

	g, err := startCluster(e, plan{size: 3})
	if err != nil {
		return err
	}
	defer g.stop()
	if took, err = command(e, g.nodes[0], "snapshot", "restore", file, "--yes"); err != nil {
		return err
	}
	e.atMost("the same, restore into an empty cluster of 3, all acting", "s", took.Seconds(), 3)
	for _, n := range g.nodes {
		if err := n.has(e.names); err != nil {
			return err
		}
	}
	e.atMost("after the restore, RSS of the largest node", "MiB", g.mostRSS(), 400)
	return restarts(e, g, "after the restore, restart to ready")
}

// fill applies a listener, a service, and hosts up to the requested number of
// resources.
func fill(e *env, f *cluster) error {
	n := f.nodes[0]
	docs := [][]byte{
		service("apps", 1),
		[]byte(`{"kind":"Listener","name":"edge","spec":{"address":":7443","protocol":"tls",` +
			`"hosts":[{"names":["apps.example.com"],"service":"apps"}]}}`),
	}
	began := time.Now()
	for i := 0; i < e.names; {
		for len(docs) < chunk && i+len(docs) < e.names {
			k := i + len(docs)
			docs = append(docs, fmt.Appendf(nil,
				`{"kind":"Host","name":"tenant-%d","spec":{"listener":"edge","names":["tenant-%d.example.com"],"service":"apps"}}`, k, k))
		}
		if _, err := ask[api.ApplyResult](n, 60*time.Second, api.MethodApply, api.ApplyRequest{Documents: docs}); err != nil {
			return err
		}
		i, docs = i+len(docs), nil
	}
	e.note(fmt.Sprintf("%d resources, applied by %d to 3 nodes", e.names, chunk), "s", time.Since(began).Seconds())
	return n.has(e.names)
}

// has checks that a node acts on that many resources.
func (n *node) has(want int) error {
	r, err := ask[api.Status](n, 30*time.Second, api.MethodStatus, api.Empty{})
	if err != nil {
		return err
	}
	for _, s := range r.Nodes {
		if s.Name == n.name && s.Resources != want {
			return fmt.Errorf("%s acts on %d resources, want %d", n.name, s.Resources, want)
		}
	}
	return nil
}

func (f *cluster) mostRSS() float64 {
	most := 0.0
	for _, n := range f.nodes {
		rss := float64(n.proc.SettledRSS()) / (1 << 20)
		f.e.say("%s: RSS %.0f MiB", n.name, rss)
		most = max(most, rss)
	}
	return most
}

// command runs the penstock command against a node's unix socket, and returns
// how long it took.
func command(e *env, n *node, args ...string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(e.ctx, 60*time.Second)
	defer cancel()
	argv := append(args, "--addr", "unix:"+filepath.Join(n.dir, "penstock.sock"))
	began := time.Now()
	out, err := exec.CommandContext(ctx, e.penstock, argv...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%v: %w\n%s", args, err, out)
	}
	e.say("%s", out)
	return time.Since(began), nil
}

// restarts stops a follower, gracefully and by a crash, and restarts it, until
// it is ready and has applied everything.
func restarts(e *env, f *cluster, name string) error {
	leader, err := f.leader()
	if err != nil {
		return err
	}
	n := f.nodes[0]
	if n == leader {
		n = f.nodes[1]
	}
	for _, how := range []struct {
		name string
		sig  syscall.Signal
	}{{"after SIGTERM", syscall.SIGTERM}, {"after SIGKILL", syscall.SIGKILL}} {
		var times []float64
		for range 3 {
			if err := n.proc.Signal(how.sig); err != nil {
				return err
			}
			if _, err := n.proc.ExitCode(60 * time.Second); err != nil {
				return err
			}
			began := time.Now()
			if err := n.begin(); err != nil {
				return err
			}
			if err := untilEvery(5*time.Millisecond, n.name+" to be ready", 60*time.Second, n.ready); err != nil {
				return err
			}
			times = append(times, time.Since(began).Seconds())
			if err := n.has(e.names); err != nil {
				return err
			}
			if err := f.waitSettled(60 * time.Second); err != nil {
				return err
			}
		}
		e.atMost(name+", "+how.name, "s", median(times), 5)
	}
	e.atMost(name+", RSS after", "MiB", float64(n.proc.SettledRSS())/(1<<20), 400)
	return nil
}
