package directory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"penstock/node/rpc"
)

// Gossip takes seconds to detect a dead node, so that a node which only hung
// for a moment is not taken for dead. A list of the members, or the reason why
// nothing can be decided, has to be current, so the other nodes are probed. No
// agreement rests on the answers; they also rank the candidates for the lead
// (leader.HandOver).

const (
	// probeTimeout bounds the wait for one node's answer.
	probeTimeout = time.Second
	// probeFresh is how long results are shared, so that many callers cost the
	// other nodes little more than one.
	probeFresh = 200 * time.Millisecond
	// probeMaxAge is how long a result is used at all.
	probeMaxAge = 5 * time.Second
	// maxProbed bounds the nodes that are probed, voters first; for the others
	// there is gossip alone.
	maxProbed = 64
)

// livenessProbes holds the results of probing the other members.
type livenessProbes struct {
	mu      sync.Mutex
	results map[string]probeResult // by ID; members only
	at      time.Time              // when the last round ended
	round   chan struct{}          // closed when the current round ends; nil: none
}

// probeResult is the result of probing one node.
type probeResult struct {
	answers bool
	since   time.Time // when answers changed
	at      time.Time // when it was last probed
}

// ProbeLiveness probes the other members, unless that was done within
// probeFresh, and waits for the results, for little more than probeTimeout.
func (d *Directory) ProbeLiveness(ctx context.Context) {
	p := &d.probes
	p.mu.Lock()
	round := p.round
	if round != nil || time.Since(p.at) < probeFresh {
		p.mu.Unlock()
		if round != nil { // another call is probing
			select {
			case <-round:
			case <-ctx.Done():
			}
		}
		return
	}
	p.round = make(chan struct{})
	p.mu.Unlock()
	next := d.probeAll()
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, b := range next {
		if b.answers {
			d.contacted.Store(true)
		}
		if old, ok := p.results[id]; ok && old.answers == b.answers {
			b.since = old.since
			next[id] = b
		}
	}
	p.results, p.at = next, time.Now()
	close(p.round)
	p.round = nil
}

// probeAll probes the voters, and the non-voters that are up, maxProbed at
// most, all at once.
func (d *Directory) probeAll() map[string]probeResult {
	list := slices.DeleteFunc(d.Members(), func(m Member) bool { return m.Self || !m.Up() && m.Role == RoleNonVoter })
	slices.SortStableFunc(list, func(a, b Member) int { return rank(a) - rank(b) })
	list = list[:min(len(list), maxProbed)]
	next := make(map[string]probeResult, len(list))
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range list {
		all.Go(func() {
			began := time.Now()
			b := probeResult{answers: d.alive(m.ID), since: began, at: time.Now()}
			mu.Lock()
			defer mu.Unlock()
			next[m.ID] = b
		})
	}
	all.Wait()
	return next
}

// rank orders members: voters come first.
func rank(m Member) int {
	if m.Role == RoleNonVoter {
		return 1
	}
	return 0
}

// alive reports whether a node answers a request.
func (d *Directory) alive(id string) bool {
	ctx, cancel := context.WithTimeout(d.ctx, probeTimeout)
	defer cancel()
	client, err := d.Pool.Get(ctx, id)
	if err != nil {
		return false
	}
	_, err = rpc.Call[LocateResult](ctx, client, MethodLocate, &LocateRequest{})
	return err == nil
}

// probed returns the results that are not older than probeMaxAge, by ID.
func (d *Directory) probed() map[string]probeResult {
	d.probes.mu.Lock()
	defer d.probes.mu.Unlock()
	known := maps.Clone(d.probes.results)
	maps.DeleteFunc(known, func(_ string, b probeResult) bool { return time.Since(b.at) > probeMaxAge })
	return known
}

// Silent returns the members that did not answer this node's last probe.
func (d *Directory) Silent() map[string]bool {
	silent := map[string]bool{}
	for id, b := range d.probed() {
		if !b.answers {
			silent[id] = true
		}
	}
	return silent
}

// ProbeWhileLeaderless probes the others repeatedly while there is no leader,
// so that this node can say why.
func (d *Directory) ProbeWhileLeaderless() {
	for logged := false; ; {
		changed := d.Leader.Changed()
		var again <-chan time.Time
		if d.Leader.ID() == "" {
			d.ProbeLiveness(d.ctx)
			if d.isolated() && !logged {
				logged = true
				d.Log.Warn("no other node has been reached since this one started; "+isolatedAdvice, "why", d.Alone())
			}
			again = time.After(d.Tick)
		}
		select {
		case <-changed:
		case <-again:
		case <-d.ctx.Done():
			return
		}
	}
}

// Alone says why nothing can be decided now, as far as this node knows; "" if
// there is a leader.
func (d *Directory) Alone() string {
	without := d.Leader.AbsentFor()
	if without == 0 {
		return ""
	}
	results := d.probed()
	// A node that answered while there was a leader may have been lost with it.
	maps.DeleteFunc(results, func(_ string, b probeResult) bool { return time.Since(b.at) > without })
	why := aloneReason(d.Members(), results, without, d.Election+probeTimeout, time.Now())
	if d.isolated() {
		why += "; " + isolatedAdvice
	}
	return why
}

// isolatedAdvice is for a node that has reached no other since it was started.
const isolatedAdvice = "if all nodes have other addresses now, start each with --join and the new address of at least one of them"

// isolatedAfter is the number of ticks after which a node without contact says
// what may be wrong.
const isolatedAfter = 15

// isolated reports whether this node has looked for the others in vain since it
// was started: they may be at addresses that it does not know.
func (d *Directory) isolated() bool {
	if d.contacted.Load() || d.Leader.AbsentFor() < isolatedAfter*d.Tick {
		return false
	}
	return slices.ContainsFunc(d.Members(), func(m Member) bool { return !m.Self })
}

// aloneReason says why there has been no leader for the time without, by what
// gossip reports about the voters and by which of them answered.
func aloneReason(members []Member, results map[string]probeResult, without, election time.Duration, now time.Time) string {
	voters, reached, asked := 0, 0, 0
	var missing []string
	for _, m := range members {
		if m.Role != RoleVoter {
			continue
		}
		voters++
		b, known := results[m.ID]
		since := b.since
		if known {
			asked++
		}
		if !known || !m.Up() && !m.Since.IsZero() && m.Since.Before(since) {
			since = m.Since
		}
		switch {
		case m.Self, known && b.answers, !known && m.Up():
			reached++
		case since.IsZero():
			missing = append(missing, m.Name)
		default:
			missing = append(missing, fmt.Sprintf("%s (for %s)", m.Name, seconds(now.Sub(since))))
		}
	}
	need := voters/2 + 1
	switch late := without > election; {
	case voters == 0:
		return "no leader: this node has not heard from its cluster yet"
	case reached < need && late:
		return fmt.Sprintf("no leader: %d of %d voters reachable, %d needed; unreachable: %s; "+
			"start nodes again, or restore the links to them, until a majority is reachable", reached, voters, need, ListNames(missing))
	case reached < need:
		return fmt.Sprintf("no leader: %d of %d voters reachable, %d needed; unreachable: %s", reached, voters, need, ListNames(missing))
	case late:
		return fmt.Sprintf("no leader for %s, although %d of %d voters answer: see their logs for the reason",
			seconds(without), reached, voters)
	case asked == 0 && voters > 1:
		return "no leader: the voters are electing one, or too few of them are left: probing them"
	}
	return "no leader: an election is under way"
}

// seconds formats a duration for people, at least 1s.
func seconds(d time.Duration) string { return max(d, time.Second).Round(time.Second).String() }
