package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"penstock/internal/testkit/scenario"
)

// TestFormScenarios runs the scenarios in testdata/form. Steps:
//
//	start N... expect=E       nodes start
//	stop N                    a node dies for good: its directory is wiped
//	crash N                   its process ends; the next one has the same directory
//	off|on N                  it goes down with its directory; it runs again
//	cut|link A B              the link between A and B is cut, or restored
//	at T                      the time since the beginning
//	round                     each node in turn requests all views and decides
//	ask A B                   A requests B's view, and gets it
//	decide A                  A decides; offers of a charter arrive at once
//	lose A                    A decides; its offers of a charter are lost
//	settle                    rounds, a second apart, until five bring nothing new
//	clusters                  the clusters and their members
func TestFormScenarios(t *testing.T) {
	scenario.Run(t, "testdata/form", func(*testing.T) scenario.Command { return scenario.Steps(newFounding().step) })
}

func (f *founding) step(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "start":
		expect := 0
		d.ScanArgs(t, "expect", &expect)
		for _, id := range idsOf(t, d) {
			f.add(id, expect)
		}
	case "at":
		f.now = timeOf(t, d)
	case "round":
		f.now = f.now.Add(time.Second)
		return strings.Join(f.round(), "\n")
	case "settle":
		return f.settle(t)
	case "clusters":
		return f.clusters()
	default:
		var nodes []*simNode
		for _, id := range idsOf(t, d) {
			if nodes = append(nodes, f.find(id)); f.find(id) == nil {
				d.Fatalf(t, "%s: there is no %s", d.FullCmd(), id)
			}
		}
		switch len(nodes) {
		case 1:
			return f.stepOfOne(t, d, nodes[0])
		case 2:
			f.stepOfTwo(t, d, nodes[0], nodes[1])
		default:
			d.Fatalf(t, "%s: too many nodes", d.FullCmd())
		}
	}
	return ""
}

func (f *founding) stepOfOne(t *testing.T, d *datadriven.TestData, n *simNode) string {
	send := f.deliver(n)
	switch d.Cmd {
	case "stop":
		n.alive = false
	case "crash":
		f.crash(n)
	case "off", "on":
		n.alive = d.Cmd == "on"
		f.crash(n)
	case "lose":
		send = func(*simNode, Charter) {}
		fallthrough
	case "decide":
		d := f.decide(n, send)
		return fmt.Sprintf("%s: %s: %s", n.ID, d.Action, d.Why)
	default:
		d.Fatalf(t, "%s: no such step", d.FullCmd())
	}
	return ""
}

func (f *founding) stepOfTwo(t *testing.T, d *datadriven.TestData, a, b *simNode) {
	switch d.Cmd {
	case "ask":
		f.now = f.now.Add(time.Millisecond)
		f.ask(a, b)
	case "cut", "link":
		f.cut[pair(a.ID, b.ID)] = d.Cmd == "cut"
	default:
		d.Fatalf(t, "%s: no such step", d.FullCmd())
	}
}

// settle lists each decision once, and ends when five rounds bring nothing new.
func (f *founding) settle(t *testing.T) string {
	var out []string
	for quiet := 0; quiet < 5; quiet++ {
		f.now = f.now.Add(time.Second)
		for _, line := range f.round() {
			if !slices.Contains(out, line) {
				out, quiet = append(out, line), 0
			}
		}
		if len(out) > 200 {
			t.Fatalf("no end after %v", out)
		}
	}
	return strings.Join(append(out, f.clusters()), "\n")
}

func (f *founding) clusters() string {
	var out []string
	by := map[string][]string{}
	for _, n := range f.nodes {
		if n.alive {
			by[n.Cluster] = append(by[n.Cluster], n.ID)
		}
	}
	for cluster, ids := range by {
		if cluster == "" {
			cluster = "no cluster"
		} else if !f.charters[cluster].decides {
			cluster += ", without a majority"
		}
		out = append(out, cluster+": "+strings.Join(ids, " "))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestFormNeverFoundsTwoClusters runs N+2 nodes whose links break, that crash,
// are wiped, request views, offer, accept and decide in random order and
// timing. Of two charters with a common node only one ever has a majority that
// begins, and no charter is begun before all of its members have accepted it.
func TestFormNeverFoundsTwoClusters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFounding()
		expect := rapid.IntRange(2, 5).Draw(t, "expect")
		for i := range expect + 2 {
			f.add(fmt.Sprintf("n%d", i), expect)
		}
		for i := range rapid.IntRange(0, 400).Draw(t, "steps") {
			f.randomEvent(t, i)
			f.check(t)
		}
		f.mustConverge(t, expect)
	})
}

// randomEvent runs one random event.
func (f *founding) randomEvent(t *rapid.T, i int) {
	a := f.nodes[rapid.IntRange(0, len(f.nodes)-1).Draw(t, "a")]
	b := f.nodes[rapid.IntRange(0, len(f.nodes)-1).Draw(t, "b")]
	switch rapid.SampledFrom([]string{
		"ask", "fly", "fly", "fly", "decide", "decide", "round", "cut", "link", "crash", "wait", "long", "wipe",
	}).Draw(t, "event") {
	case "ask":
		f.ask(a, b)
	case "fly":
		f.deliverLate(t, a, b)
	case "decide":
		f.giveUp(a)
		if a.alive && !a.Formed {
			f.decide(a, func(to *simNode, c Charter) {
				f.flying = append(f.flying, &exchange{from: a, to: to, asked: f.now, offer: &c})
			})
		}
	case "round":
		f.round()
	case "cut":
		f.cut[pair(a.ID, b.ID)] = true
	case "link":
		f.cut[pair(a.ID, b.ID)] = false
	case "crash":
		f.crash(a)
	case "wait":
		f.now = f.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
	case "long":
		f.now = f.now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
	case "wipe":
		if len(f.nodes) < 10 && rapid.IntRange(0, 4).Draw(t, "wipes") == 0 {
			a.alive = false
			f.add(fmt.Sprintf("n%d-%d", rapid.IntRange(0, 9).Draw(t, "new"), i), a.Expect)
		}
	}
}

// deliverLate sends a request, or moves a request, response or offer in flight
// one step further, or loses it.
func (f *founding) deliverLate(t *rapid.T, a, b *simNode) {
	if len(f.flying) == 0 || len(f.flying) < 8 && rapid.Bool().Draw(t, "new") {
		if a != b {
			f.flying = append(f.flying, &exchange{from: a, to: b, asked: f.now})
		}
		return
	}
	i := rapid.IntRange(0, len(f.flying)-1).Draw(t, "flying")
	x := f.flying[i]
	arrives := f.linked(x.from, x.to) && f.answers(x.to)
	if x.offer == nil && x.answer == nil && arrives {
		answer := f.tell(x.to, x.from)
		x.answer = &answer
		return
	}
	f.flying = slices.Delete(f.flying, i, i+1)
	if x.offer != nil && arrives {
		_ = f.offer(x.to, *x.offer)
	}
	if x.answer != nil && x.from.alive && x.from.views[x.to.ID].asked.Before(x.asked) {
		x.from.views[x.to.ID] = view{*x.answer, x.asked}
	}
}

func (f *founding) check(t *rapid.T) {
	var deciding []*charterState
	for _, c := range f.charters {
		if !c.decides {
			continue
		}
		if len(c.gaveUp) > 0 {
			t.Fatalf("%v may commit entries, but was given up by %v", c.Charter, c.gaveUp)
		}
		for _, o := range deciding {
			if slices.ContainsFunc(o.Members, func(id string) bool { return slices.Contains(c.Members, id) }) {
				t.Fatalf("two clusters of the same nodes: %v and %v", c.Charter, o.Charter)
			}
		}
		deciding = append(deciding, c)
	}
	for _, n := range f.nodes {
		if n.Formed && n.Accepted != nil && n.Accepted.Cluster != n.Cluster && n.alive {
			t.Fatalf("%s is in %s, and bound to %v", n.ID, n.Cluster, n.Accepted)
		}
	}
}

// mustConverge restores all links: then all nodes join a cluster, unless most
// of the voters of a begun charter were wiped. They might as well be down, so
// an operator must decide.
func (f *founding) mustConverge(t *rapid.T, expect int) {
	clear(f.cut)
	for range 4*int(TakeBackAfter/time.Second) + 20 {
		f.now = f.now.Add(time.Second)
		f.round()
		f.check(t)
	}
	open, halves, formed := 0, 0, map[string]bool{}
	for _, n := range f.nodes {
		switch {
		case !n.alive:
		case n.Formed && f.charters[n.Cluster].decides:
			formed[n.Cluster] = true
		case n.Formed:
			halves++
		case n.mayAccept():
			open++
		}
	}
	if len(formed) == 0 && halves == 0 && open >= expect {
		t.Fatalf("no cluster was founded: %v", f.round())
	}
	for _, n := range f.nodes {
		if n.alive && !n.Formed && len(formed) == 1 && halves == 0 {
			t.Fatalf("%s is in no cluster: %v", n.ID, n.decision)
		}
	}
}

func TestFormIgnoresOldViews(t *testing.T) {
	self := Peer{ID: "a", Expect: 2, PledgedTo: "a", PledgedFor: time.Hour}
	peer := Peer{ID: "b", Expect: 2, PledgedTo: "a", Seen: []string{"a"}, Age: ActWithin}
	if d := Form(self, []Peer{peer}); d.Action != FormDraw {
		t.Errorf("a pledge that is fresh: %v", d)
	}
	late := peer
	late.Age++
	if d := Form(self, []Peer{late}); d.Action != FormWait {
		t.Errorf("a view older than %v: %v", ActWithin, d)
	}
	young := self
	young.PledgedFor = peer.Age
	if d := Form(young, []Peer{peer}); d.Action != FormWait {
		t.Errorf("a view from before the node was its own candidate: %v", d)
	}
	blind := peer
	blind.Seen = nil
	if d := Form(self, []Peer{blind}); d.Action != FormWait {
		t.Errorf("a peer that has not seen the node: %v", d)
	}
}

// TestFormKeepsItsPledge: a node is pledged to b, and a has a lower ID. The
// table lists when it may change its pledge to a.
func TestFormKeepsItsPledge(t *testing.T) {
	all := []string{"a", "b", "c"}
	for what, test := range map[string]struct {
		b          Peer // b's view of itself
		told, held time.Duration
		free       bool
	}{
		"b wants to found the cluster": {
			Peer{PledgedTo: "b", Age: time.Second}, 2 * time.Second, time.Minute, false,
		},
		"b gave way, and said so when asked after it was told of the pledge": {
			Peer{PledgedTo: "a", Age: time.Second}, 2 * time.Second, time.Minute, true,
		},
		"b gave way, and may since have been told of the pledge": {
			Peer{PledgedTo: "a", Age: 2 * time.Second}, time.Second, time.Minute, false,
		},
		"b gave way, and was told of the pledge at the very time": {
			Peer{PledgedTo: "a", Age: time.Second}, time.Second, time.Minute, false,
		},
		"b said so before the pledge was made": {
			Peer{PledgedTo: "a", Age: 3 * time.Second}, 4 * time.Second, 2 * time.Second, false,
		},
		"b is silent, and was told lately": {
			Peer{PledgedTo: "b", Age: time.Minute}, TakeBackAfter, time.Hour, false,
		},
		"b is silent, and has not been told for long": {
			Peer{PledgedTo: "b", Age: time.Minute}, TakeBackAfter + 1, time.Hour, true,
		},
		"b is silent; the pledge is young, whatever is said of when it was told": {
			Peer{PledgedTo: "b", Age: time.Minute}, time.Hour, TakeBackAfter, false,
		},
	} {
		self := Peer{ID: "c", Expect: 3, PledgedTo: "b", SinceTold: test.told, PledgedFor: test.held}
		b := test.b
		b.ID, b.Expect, b.Seen = "b", 3, all
		peers := []Peer{{ID: "a", Expect: 3, PledgedTo: "a", Seen: append(all, "d")}, b}
		if b.Age > ActWithin { // b's view is too old, so d completes the set
			peers = append(peers, Peer{ID: "d", Expect: 3, PledgedTo: "a", Seen: all})
		}
		if d := Form(self, peers); (d.Action == FormPledge && d.Peer == "a") != test.free {
			t.Errorf("%s: %v", what, d)
		}
	}
}

func TestFormTerminatesWithManyPeers(t *testing.T) {
	self := Peer{ID: "p000", Expect: maxExpect}
	var peers []Peer
	for i := range 500 {
		p := Peer{ID: fmt.Sprintf("p%03d", i+1), Expect: maxExpect, Seen: []string{"p000"}}
		for j := range 500 { // each has seen half of the others
			if (i+j)%2 == 0 {
				p.Seen = append(p.Seen, fmt.Sprintf("p%03d", j+1))
			}
		}
		peers = append(peers, p)
	}
	begun := time.Now()
	Form(self, peers)
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
