package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/node/kinds"
	"penstock/routing/resource/codec"
)

// scenario runs the events of the demo, in a loop.
type scenario struct {
	fixtures *fixtures
	cluster  *cluster
	event    func(format string, args ...any)

	// firstRound is closed when a leader was killed, replaced, and is back.
	firstRound chan struct{}

	mu              sync.Mutex
	kills           int
	leaderChanges   int           // changes of leader after a kill
	restarts        int           // killed nodes that came back
	slowestElection time.Duration // longest time from a kill to the next leader
	changes         int           // changes made
	retried         int           // of those, changes that took several requests
	slowestChange   time.Duration // longest time from first request to answer
	tenants         int           // tenants added
	lastChange      time.Time     // time of the last change
	v2              int           // percent, set by the last change
}

func newScenario(w *fixtures, f *cluster, event func(string, ...any)) *scenario {
	return &scenario{fixtures: w, cluster: f, event: event, firstRound: make(chan struct{}), v2: firstV2}
}

// scenarioStats is a snapshot of the counters.
type scenarioStats struct {
	kills, leaderChanges, restarts, changes, retried, v2, tenants int
	slowestElection, slowestChange                                time.Duration
}

func (s *scenario) stats() scenarioStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return scenarioStats{s.kills, s.leaderChanges, s.restarts, s.changes, s.retried, s.v2, s.tenants, s.slowestElection, s.slowestChange}
}

func (s *scenario) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// run loops until the context ends or a check fails.
func (s *scenario) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { s.toggleEndpoint(ctx) })
	wg.Go(func() { s.moveSplit(ctx) })
	for round := 0; ; round++ {
		err := s.killNode(ctx, round)
		if err == nil && round == 0 {
			close(s.firstRound)
		}
		if err == nil {
			err = s.waitStable(ctx, 4*time.Second)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// waitStable waits for d, during which no node may end. It returns an error if
// the context ends, because the next event must not happen then.
func (s *scenario) waitStable(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := s.cluster.checkAlive(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause(ctx, 100*time.Millisecond)
	}
	return ctx.Err()
}

// killNode kills a node and restarts it: alternately the leader and another node.
func (s *scenario) killNode(ctx context.Context, round int) error {
	f := s.cluster
	if err := f.await(ctx, f.nodes[0], "the cluster does not have three voters", f.allVoting); err != nil {
		return err
	}
	if err := s.waitStable(ctx, 1500*time.Millisecond); err != nil {
		return err
	}
	var victim *node
	if err := f.await(ctx, f.nodes[0], "no leader", func() bool {
		victim = f.leader()
		return victim != nil
	}); err != nil {
		return err
	}
	leads := round%2 == 0
	if !leads {
		victim = f.nodes[(f.index(victim)+1+mrand.IntN(nodeCount-1))%nodeCount] //nolint:gosec // no secret
	}
	role := map[bool]string{true: "the leader", false: "a follower"}[leads]
	pid, began := victim.pid(), time.Now()
	carried := f.kill(victim)
	s.update(func() { s.kills++ })
	s.event("%s, %s, is killed (SIGKILL to process %d); it carried %d connections", victim.name, role, pid, carried)
	if leads {
		if err := s.awaitNewLeader(ctx, victim, began); err != nil {
			return err
		}
	}
	if err := s.waitStable(ctx, time.Second); err != nil {
		return err
	}
	return s.restartNode(ctx, victim)
}

// awaitNewLeader waits for a new leader and for a change that it commits.
func (s *scenario) awaitNewLeader(ctx context.Context, victim *node, began time.Time) error {
	f := s.cluster
	if err := f.await(ctx, f.randomNode(), "no other leader", func() bool { return f.leader() != nil }); err != nil {
		return err
	}
	took := time.Since(began)
	s.update(func() { s.leaderChanges++; s.slowestElection = max(s.slowestElection, took) })
	s.event("%s is the new leader, %s after %s was killed", f.leader().nameOr("another"), seconds(took), victim.name)
	return f.await(ctx, f.randomNode(), "no change is committed", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.lastChange.After(began.Add(took))
	})
}

// nameOr returns the node's name, or other if the node is nil.
func (n *node) nameOr(other string) string {
	if n == nil {
		return other
	}
	return n.name
}

// restartNode restarts a killed node with its data folder, and waits until it has
// applied everything that it missed and carries connections again.
func (s *scenario) restartNode(ctx context.Context, n *node) error {
	f := s.cluster
	var index uint64
	for _, one := range f.nodes {
		if r := one.lastReport(); r != nil {
			index = max(index, r.self.AppliedIndex)
		}
	}
	i := f.index(n)
	before, began := f.balancer.counts(i).total, time.Now()
	if err := f.restart(n); err != nil {
		return err
	}
	s.event("%s is restarted with only its data folder (process %d)", n.name, n.pid())
	if err := f.await(ctx, n, "is not back", func() bool {
		r := n.lastReport()
		return r != nil && r.alone == "" && r.leader != "" && r.self.AppliedIndex >= index && f.balancer.counts(i).total > before
	}); err != nil {
		return err
	}
	s.update(func() { s.restarts++ })
	s.event("%s is back after %s: it has applied all changes (index %d) and carries connections",
		n.name, seconds(time.Since(began)), n.appliedIndex())
	return nil
}

// appliedIndex returns the last index that the node reported as applied.
func (n *node) appliedIndex() uint64 {
	if r := n.lastReport(); r != nil {
		return r.self.AppliedIndex
	}
	return 0
}

// toggleEndpoint repeatedly stops and restarts an endpoint.
func (s *scenario) toggleEndpoint(ctx context.Context) {
	for {
		if pause(ctx, time.Second); ctx.Err() != nil {
			return
		}
		s.report("endpoint flaky-b stops", s.fixtures.flakyB.stop())
		if pause(ctx, 3*time.Second); ctx.Err() != nil {
			return
		}
		s.report("endpoint flaky-b comes back", s.fixtures.flakyB.start())
		pause(ctx, 3*time.Second)
	}
}

func (s *scenario) report(what string, err error) {
	if err != nil {
		s.event("%s: %v", what, err)
		return
	}
	s.event("%s", what)
}

// firstV2 is the initial share of v2, in percent.
const firstV2 = 10

// moveSplit moves the split, each time through a random node.
func (s *scenario) moveSplit(ctx context.Context) {
	at := firstV2
	for i := 0; ; i++ {
		if pause(ctx, 1500*time.Millisecond); ctx.Err() != nil {
			return
		}
		to := []int{50, 90, 50, firstV2}[i%4]
		began := time.Now()
		n, times, r, err := s.apply(ctx, s.fixtures.route(100-to))
		if ctx.Err() != nil {
			return
		}
		took := time.Since(began)
		if err != nil {
			s.event("%s refused to move the canary: %v", n.name, err)
			continue
		}
		s.update(func() {
			s.changes++
			if times > 1 {
				s.retried++
			}
			s.slowestChange = max(s.slowestChange, took)
			s.lastChange, s.v2 = time.Now(), to
		})
		text := fmt.Sprintf("canary moves from %d %% to %d %% v2, through %s: %d nodes act on it after %s",
			at, to, n.name, r.Reached.Nodes, seconds(took))
		if times > 1 {
			text += fmt.Sprintf(" (%d attempts until there was a leader)", times)
		}
		s.event("%s", text)
		at = to
	}
}

// apply sends a change to a running node, as `penstock apply` does. While there
// is no leader it retries at random nodes under the same ID, so that the change
// is made once, whatever became of earlier requests.
func (s *scenario) apply(ctx context.Context, text string) (n *node, times int, r *api.ApplyResult, err error) {
	objects, faults := codec.Decode("demo.yaml", []byte(text), kinds.All())
	if len(faults) > 0 {
		return s.cluster.nodes[0], 0, nil, faults
	}
	// Not worth a long wait: a node that was just killed cannot act on it.
	req := api.ApplyRequest{ID: make([]byte, 16), Wait: api.Wait{For: time.Second}}
	_, _ = rand.Read(req.ID) // crypto/rand never fails
	for _, o := range objects {
		req.Documents = append(req.Documents, codec.EncodeWithSecrets(o))
	}
	for deadline := time.Now().Add(conditionTimeout); ; {
		n = s.cluster.randomNode()
		times++
		r, err = request[api.ApplyResult](ctx, n, api.MethodApply, req)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) || refused(err) {
			return n, times, r, err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// refused reports whether retrying is pointless.
func refused(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && slices.Contains([]api.Code{api.Invalid, api.Refused, api.TooLarge, api.Forbidden}, e.Code)
}

func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
