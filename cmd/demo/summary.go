package demo

import "fmt"

// printSummary prints the final counts.
func (v *view) printSummary() {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, t := v.traffic.stats(), v.scenario.stats()
	say := func(format string, args ...any) { fmt.Fprintf(v.out, format+"\n", args...) }
	say("")
	say("%d connections opened, %d answered (shop v1 %d, shop v2 %d, secure %d, flaky a %d, flaky b %d), %d lost with the killed "+
		"node that carried them",
		s.opened, s.answered, s.answers["shop v1"], s.answers["shop v2"],
		s.answers["secure"], s.answers["flaky a"], s.answers["flaky b"], s.lostWithNode)
	say("%d long-lived connections, %d exchanges on them, %d lost with the killed node that carried them, %d broken otherwise",
		longLived, s.exchanges, s.longLost, s.longBroken)
	say("nodes killed: %d, back: %d, leader changes: %d (at most %s after the kill); killed nodes carried %d connections, of which "+
		"%d broke",
		t.kills, t.restarts, t.leaderChanges, seconds(t.slowestElection), v.cluster.balancer.carriedByKilledNodes(), s.lostWithNode+s.longLost)
	say("%d changes, %d of them retried, the slowest took %s; nodes stopped using an endpoint %d times and resumed %d times",
		t.changes, t.retried, seconds(t.slowestChange), v.avoided, v.recovered)
	say("%s; tenants added and removed: %d", v.kafka.summaryLine(), t.tenants)
	for i, n := range v.cluster.nodes {
		c := v.cluster.balancer.counts(i)
		say("%s carried %d connections; %d more could not connect to it and went to another node", n.name, c.total, c.refused)
	}
	for _, f := range s.faults {
		say("not answered: %s", f)
	}
	for _, f := range v.kafka.faults {
		say("kafka: %s", f)
	}
}

// verdict returns nil if every connection was answered except those that a
// killed node carried.
func (v *view) verdict() error {
	s := v.traffic.stats()
	if s.opened == 0 || s.answered+s.lostWithNode != s.opened || s.longBroken > 0 {
		return fmt.Errorf("%w: %d of %d, %d long-lived ones broken", ErrUnanswered, s.opened-s.answered-s.lostWithNode, s.opened, s.longBroken)
	}
	if v.kafka.consumed.Load() == 0 {
		return fmt.Errorf("%w: no Kafka record was consumed", ErrUnanswered)
	}
	if wrong, broken := v.kafka.misplaced.Load(), v.kafka.broken.Load(); wrong > 0 || broken > 0 {
		return fmt.Errorf("%w: %d Kafka records were lost, duplicated or out of order, and %d connections broke", ErrUnanswered, wrong, broken)
	}
	if broke, carried := s.lostWithNode+s.longLost, v.cluster.balancer.carriedByKilledNodes(); broke > carried {
		return fmt.Errorf("%w: killed nodes carried %d connections, and %d broke", ErrUnanswered, carried, broke)
	}
	return nil
}
