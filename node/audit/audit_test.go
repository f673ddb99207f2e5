package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/rpc"
)

// newLog returns the log of a node whose store is shared with others.
func newLog(name string, shared Store, cfg Config) *Log {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := New(cfg)
	l.Join(Cluster{
		Node: name, Store: shared, Leads: func() bool { return true },
		ToLeader: func(ctx context.Context, a *api.AuditActs) error { _, err := l.Add(ctx, a); return err },
	})
	return l
}

// elapse lets time pass in a synctest bubble.
func elapse(d time.Duration) { <-time.After(d) }

func (l *Log) mustAdd(t *testing.T, act string, what ...string) {
	t.Helper()
	acts := &api.AuditActs{ID: fmt.Appendf(nil, "%16x", l.position)}
	l.position++
	for _, w := range what {
		acts.Entries = append(acts.Entries, api.AuditEntry{At: time.Now(), Count: 1, Act: act, What: w, Outcome: api.AuditDone})
	}
	if _, err := l.Add(t.Context(), acts); err != nil {
		t.Fatal(err)
	}
}

func whats(entries []api.AuditEntry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.What)
	}
	return strings.Join(all, " ")
}

func TestARingKeepsTheNewestEntriesAcrossLeaders(t *testing.T) {
	shared := store.NewMemory(store.Limits{})
	a, b := newLog("a", shared, Config{Entries: 3}), newLog("b", shared, Config{Entries: 3})
	a.mustAdd(t, api.MethodTokenNew, "1", "2")
	b.mustAdd(t, api.MethodTokenNew, "3") // b leads now
	a.mustAdd(t, api.MethodTokenNew, "4") // and a again
	for i := range 50 {                   // another ring
		b.mustAdd(t, api.MethodApply, fmt.Sprint("apply", i))
	}
	got := whats(Entries(shared.Snapshot(), 0, time.Time{}))
	if got != "apply47 apply48 apply49 2 3 4" {
		t.Errorf("the rings have %s", got)
	}
	if s := a.Stats(); s.Entries[ringCluster] != 3 || s.Entries[ringResources] != 3 || s.Entries[ringIssued] != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestARetriedRecordIsMadeOnce(t *testing.T) {
	shared := store.NewMemory(store.Limits{})
	l := newLog("a", shared, Config{})
	acts := &api.AuditActs{ID: make([]byte, 16), Entries: []api.AuditEntry{{Act: api.MethodDrain, What: "n1"}}}
	acts.ID[0] = 1
	for range 2 {
		if _, err := l.Add(t.Context(), acts); err != nil {
			t.Fatal(err)
		}
	}
	if got := whats(Entries(shared.Snapshot(), 0, time.Time{})); got != "n1" {
		t.Errorf("recorded %q", got)
	}
	acts.ID = acts.ID[:3]
	if _, err := l.Add(t.Context(), acts); err == nil {
		t.Error("an ID of 3 bytes was taken")
	}
}

// TestFullRingsStaySmall: what full rings add to each snapshot of the log is
// bounded, however often they have turned.
func TestFullRingsStaySmall(t *testing.T) {
	shared := store.NewMemory(store.Limits{})
	l := newLog("a", shared, Config{Entries: 200})
	long := strings.Repeat("x", 10_000)
	size := func() (n int) {
		for _, act := range []string{api.MethodApply, api.MethodIdentityIssue, api.MethodRemove} {
			for range 10 {
				l.mustAdd(t, act, strings.Fields(strings.Repeat(long+" ", 40))...)
			}
		}
		if err := shared.Snapshot().WriteBlocks(func(b []byte) error { n += len(b); return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first, second := size(), size()
	const most = 3 * 200 * (maxText + 512)
	if first > most || second > first+first/20 {
		t.Errorf("a snapshot has %d bytes, later %d; want at most %d", first, second, most)
	}
}

func TestOldEntriesAreRemovedButTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory(store.Limits{})
		l := newLog("a", shared, Config{Age: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		l.mustAdd(t, api.MethodTokenNew, "1", "2")
		elapse(50 * time.Minute)
		l.mustAdd(t, api.MethodTokenNew, "3")
		elapse(15 * time.Minute)
		if got := whats(Entries(shared.Snapshot(), 0, time.Time{})); got != "3" {
			t.Errorf("after an hour: %s", got)
		}
		elapse(2 * time.Hour) // its number is where another leader goes on
		newLog("b", shared, Config{}).mustAdd(t, api.MethodTokenNew, "4")
		if got := whats(Entries(shared.Snapshot(), 0, time.Time{})); got != "3 4" {
			t.Errorf("at the end: %s", got)
		}
		cancel()
		synctest.Wait()
	})
}

func TestActsWaitForALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory(store.Limits{})
		l := newLog("a", shared, Config{})
		var led atomic.Bool
		c := *l.cluster.Load()
		add := c.ToLeader
		c.ToLeader = func(ctx context.Context, a *api.AuditActs) error {
			if !led.Load() {
				return api.Errorf(api.NoLeader, "no leader")
			}
			return add(ctx, a)
		}
		l.Join(c)
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		ops := api.Principal{Name: "ops", Role: api.RoleOperator, TokenID: "t1"}
		for i := range maxQueue + 5 {
			l.Record(rpc.Event{Principal: ops, Method: api.MethodDrain, Summary: fmt.Sprint(i), At: time.Now(), Peer: "192.0.2.1:5"})
		}
		elapse(time.Minute)
		if got := Entries(shared.Snapshot(), 0, time.Time{}); len(got) > 0 {
			t.Fatalf("recorded without a leader: %v", got)
		}
		led.Store(true)
		elapse(10 * time.Second)
		got := Entries(shared.Snapshot(), 0, time.Time{})
		if len(got) != maxQueue || l.Stats().Dropped != 5 {
			t.Fatalf("%d recorded, %d dropped", len(got), l.Stats().Dropped)
		}
		if e := got[0]; e.Node != "a" || e.Who != "ops" || e.Role != "operator" || e.Token != "t1" || e.From != "192.0.2.1:5" ||
			e.Act != "drain" || e.What != "0" || e.Outcome != api.AuditDone || e.Count != 1 {
			t.Errorf("recorded %+v", e)
		}
		cancel()
		synctest.Wait()
	})
}

func TestWhatChangesNothingIsNoAct(t *testing.T) {
	shared := store.NewMemory(store.Limits{})
	l := newLog("a", shared, Config{})
	l.Record(rpc.Event{Method: api.MethodApply, Summary: "5 resources"})                    // unchanged, or a dry run
	l.Record(rpc.Event{Method: api.MethodTokenNew, Summary: "token \"x\"", Recorded: true}) // in the batch of the change
	l.flush(t.Context())
	if got := Entries(shared.Snapshot(), 0, time.Time{}); len(got) != 0 {
		t.Errorf("recorded %+v", got)
	}
}

// kept returns what a node has kept since a position.
func (l *Log) kept(t interface{ Fatal(...any) }, after uint64) ([]api.AuditEntry, uint64) {
	k, err := l.Kept(context.Background(), &api.AuditKeptRequest{After: after})
	if err != nil {
		t.Fatal(err)
	}
	return k.Entries, k.Position
}

func TestRefusedActsAreKeptByWhoTriedThem(t *testing.T) {
	l := newLog("a", store.NewMemory(store.Limits{}), Config{})
	who := api.Principal{Name: "reader", Role: api.RoleReader, TokenID: "r"}
	for i := range 1000 { // from as many ports
		l.Record(rpc.Event{
			Principal: who, Method: api.MethodApply, At: time.Now(), Peer: fmt.Sprint("192.0.2.1:", 1000+i),
			Err: api.Errorf(api.Forbidden, "apply requires role admin"),
		})
	}
	l.Record(rpc.Event{Method: api.MethodJoin, At: time.Now(), Err: api.Errorf(api.UnknownOutcome, "lost")})
	got, _ := l.kept(t, 0)
	if len(got) != 2 || got[0].Count != 1000 || got[0].Outcome != api.AuditRefused || got[0].Error != "apply requires role admin" ||
		got[1].Outcome != api.AuditUnknown {
		t.Errorf("kept %+v", got)
	}
}

func TestAFloodOfDenialsLeavesTheOtherLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		l := newLog("a", store.NewMemory(store.Limits{}), Config{Log: slog.New(slog.NewTextHandler(&lines, nil))})
		l.Denied(&Denial{Act: "connect", From: "192.0.2.9", What: "db at edge", Rule: "quiet", Error: "TrafficPermission quiet denies it"})
		_, position := l.kept(t, 0)
		for i := range 5000 {
			l.Denied(&Denial{Act: "connect", From: fmt.Sprint("2001:db8::", i), What: "apps at edge", Rule: "flood"})
		}
		if n := strings.Count(lines.String(), "\n"); n != logged || !strings.Contains(lines.String(), "permission=quiet") {
			t.Errorf("%d lines of the process's log, want %d:\n%s", n, logged, &lines)
		}
		elapse(2 * staleAfter) // a later source has its own line
		l.Denied(&Denial{Act: "connect", From: "192.0.2.10", What: "apps at edge", Rule: "flood"})
		if !strings.Contains(lines.String(), "unlogged=4991") {
			t.Errorf("the log does not say how many it left out:\n%s", &lines)
		}
		all, _ := l.kept(t, 0)
		sum, found := uint64(0), map[string]bool{}
		for _, e := range all {
			sum += e.Count
			found[e.From] = true
		}
		if !found["192.0.2.9"] || !found["192.0.2.10"] || !found[""] || len(all) != 1+maxLines+1 || sum != 5001 {
			t.Errorf("%d lines, %d denials: %+v", len(all), sum, all)
		}
		if fresh, _ := l.kept(t, position); len(fresh) != maxLines+1 {
			t.Errorf("%d lines are new since, want %d", len(fresh), maxLines+1)
		}
	})
}

// A line about requests has the last one, cut, and another path makes no other line.
func TestPathsMakeNoLines(t *testing.T) {
	l := newLog("a", store.NewMemory(store.Limits{}), Config{})
	for i := range 100 {
		l.Denied(&Denial{Act: "request", From: "192.0.2.9", What: "apps at edge", Rule: "r", Method: "GET", Path: fmt.Sprint("/", i)})
	}
	lines, _ := l.kept(t, 0)
	if len(lines) != 1 || lines[0].Count != 100 || lines[0].Request != "GET /99" {
		t.Errorf("%+v", lines)
	}
	l.Denied(&Denial{
		Act: "request", From: "192.0.2.9", What: "apps at edge", Rule: "r", Method: strings.Repeat("M", 1000), Path: strings.Repeat("/\u00e9", 1000),
	})
	lines, _ = l.kept(t, 0)
	if got := lines[0].Request; len(got) > maxRequest || len(got) < maxRequest-2 || !strings.HasPrefix(got, "MMM") || !strings.Contains(got, " /") ||
		!utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
}

// TestTablesAreBounded: whatever is denied, a table keeps to its bounds, loses only
// what it counts as evicted, and its positions lead through all changes.
func TestTablesAreBounded(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := newLog("a", store.NewMemory(store.Limits{}), Config{Age: 1000 * time.Hour})
		rules := rapid.IntRange(1, 2*maxGroups).Draw(r, "rules")
		sources := rapid.IntRange(1, 3*maxLines).Draw(r, "sources")
		events := rapid.IntRange(1, 2000).Draw(r, "events")
		seen, position := map[string]uint64{}, uint64(0)
		for i := range events {
			l.Denied(&Denial{
				Rule: fmt.Sprint(rapid.IntRange(1, rules).Draw(r, "rule")), From: fmt.Sprint(rapid.IntRange(1, sources).Draw(r, "source")),
			})
			if i%97 == 0 {
				fresh, at := l.kept(r, position)
				position = at
				for _, e := range fresh {
					seen[e.Rule+" "+e.From] = e.Count
				}
			}
		}
		fresh, _ := l.kept(r, position)
		for _, e := range fresh {
			seen[e.Rule+" "+e.From] = e.Count
		}
		all, _ := l.kept(r, 0)
		sum := uint64(0)
		for _, e := range all {
			sum += e.Count
			if seen[e.Rule+" "+e.From] != e.Count {
				r.Fatalf("a follower has %d for %+v", seen[e.Rule+" "+e.From], e)
			}
		}
		if len(all) > maxGroups*(maxLines+1) || len(l.denied.groups) > maxGroups {
			r.Fatalf("%d lines in %d groups", len(all), len(l.denied.groups))
		}
		if sum > uint64(events) || sum < uint64(events) && l.denied.evicted == 0 {
			r.Fatalf("%d of %d events, %d lines evicted", sum, events, l.denied.evicted)
		}
	})
}

func TestLongTextsAreCutAtACharacter(t *testing.T) {
	if got := cut(strings.Repeat("x", maxText-1) + "é"); got != strings.Repeat("x", maxText-1) {
		t.Errorf("cut to %q", got[maxText-4:])
	}
}

func TestAnErrorThatDoesNotPassIsNotRetried(t *testing.T) {
	l := newLog("a", store.NewMemory(store.Limits{}), Config{})
	c := *l.cluster.Load()
	c.ToLeader = func(context.Context, *api.AuditActs) error { return api.Errorf(api.Forbidden, "no") }
	l.Join(c)
	l.Record(rpc.Event{Method: api.MethodDrain})
	l.flush(t.Context())
	if s := l.Stats(); s.Dropped != 1 || len(l.queue) != 0 {
		t.Errorf("stats %+v, %d wait", s, len(l.queue))
	}
	if !passes(errors.New("connection refused")) {
		t.Error("a lost connection does not pass")
	}
}
