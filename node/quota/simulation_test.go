package quota

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is a cluster in virtual time: nodes with clocks of their own, messages that
// are delayed and lost, leaders that change, stall and come back.
type world struct {
	t       testing.TB
	rng     *rand.Rand
	now     time.Duration // true time
	nodes   []*simNode
	ids     []string
	budget  Budget
	term    uint64 // the latest that was elected
	leader  int    // its leader; -1: none
	events  []event
	delay   func() time.Duration // of a message
	loss    float64
	cut     func(a, b int) bool // messages between nodes are lost
	used    []float64           // by all nodes in each step
	worst   float64             // largest sum of rates, relative to the budget
	overUse bool                // do not fail for a sum above the budget
}

// simNode is a node: a Holder, and an Allocator while it believes that it leads.
type simNode struct {
	i       int
	offset  time.Duration
	rate    float64 // of its clock
	holder  *Holder
	alloc   *Allocator
	until   time.Duration // true time until which its process is stalled
	demand  float64
	asking  *Asked
	demands []Demand
	held    []func(last bool) bool // of answers that the leader holds: sends one, or reports false
}

type event struct {
	at time.Duration
	do func()
}

const step = 10 * time.Millisecond

var simKey = Key{Limit: "api", Text: "tenant"}

func newWorld(t testing.TB, seed uint64, nodes int) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), budget: Budget{Rate: 1000, Floor: 100}, leader: -1}
	w.delay = func() time.Duration { return time.Duration(1+w.rng.IntN(10)) * time.Millisecond }
	w.cut = func(int, int) bool { return false }
	w.now = time.Hour
	for i := range nodes {
		n := &simNode{i: i, offset: time.Duration(w.rng.Int64N(int64(time.Hour))), rate: 1 + (w.rng.Float64()-0.5)/200}
		n.holder = NewHolder(w.rng.Uint64()|1, n.clock(w.now), nodes)
		w.nodes, w.ids = append(w.nodes, n), append(w.ids, fmt.Sprint("n", i))
	}
	return w
}

func (n *simNode) clock(now time.Duration) time.Duration {
	return n.offset + time.Duration(float64(now)*n.rate)
}

// elect makes a node the leader of a new term. The one before it does not notice.
func (w *world) elect(i int) {
	w.term++
	w.leader = i
	w.nodes[i].alloc = NewAllocator(w.term, w.nodes[i].clock(w.now))
}

func (w *world) after(d time.Duration, do func()) { w.events = append(w.events, event{w.now + d, do}) }

// send delivers a message unless it is lost. A stalled process gets it afterwards.
func (w *world) send(from, to int, do func()) {
	if w.rng.Float64() < w.loss || w.cut(from, to) {
		return
	}
	w.after(w.delay(), func() { w.deliver(to, do) })
}

func (w *world) deliver(to int, do func()) {
	if n := w.nodes[to]; w.now < n.until {
		w.after(n.until-w.now+time.Millisecond, func() { w.deliver(to, do) })
		return
	}
	do()
}

// ask sends the next report of a node, as a Driver does.
func (w *world) ask(n *simNode) {
	n.demands = n.demands[:0]
	if n.demand > 0 {
		n.demands = append(n.demands, Demand{Key: simKey, Budget: w.budget, Want: n.demand})
	}
	now := n.clock(w.now)
	if w.now < n.until || !n.holder.Due(now, n.demands) {
		return
	}
	asked := n.holder.Ask(now, len(w.nodes), n.demands)
	n.asking = asked
	to := w.believes(n)
	if to < 0 {
		return
	}
	r := asked.Report
	w.send(n.i, to, func() { w.serve(to, n, asked, &r) })
}

// believes returns whom a node takes for the leader: the latest that it reaches.
func (w *world) believes(n *simNode) int {
	best, term := -1, uint64(0)
	for _, m := range w.nodes {
		if m.alloc != nil && m.alloc.Term() > term && !w.cut(n.i, m.i) {
			best, term = m.i, m.alloc.Term()
		}
	}
	return best
}

// serve is a leader that gets a report. As a Leader does, it decides, makes sure that it
// led until then, and answers, or holds the answer for a while.
func (w *world) serve(to int, n *simNode, asked *Asked, r *Report) {
	leader := w.nodes[to]
	a := leader.alloc
	if a == nil {
		return
	}
	budgets := func(string, uint8) (Budget, bool) { return w.budget, true }
	send := func(ans Answer) {
		w.send(to, n.i, func() {
			if n.asking == asked && n.holder.Accept(n.clock(w.now), asked, &ans) {
				n.asking = nil
			}
		})
	}
	ans, hold, ok := a.Report(leader.clock(w.now), w.ids[n.i], r, w.ids, budgets)
	if !ok {
		return
	}
	if hold {
		a.Hold(w.ids[n.i], r)
	}
	w.retry(leader)
	until := w.now + HoldTime
	w.after(w.delay(), func() {
		w.deliver(to, func() {
			switch {
			case a.Term() != w.term:
				leader.alloc = nil // it learns that it does not lead
			case !hold:
				send(ans)
			default:
				answered := false
				again := func(last bool) bool {
					if answered {
						return true
					}
					ans, hold, ok := a.Retry(leader.clock(w.now), w.ids[n.i], r, w.ids, budgets)
					if ok && hold && !last {
						a.Hold(w.ids[n.i], r)
						return false
					}
					if answered = true; ok && leader.alloc == a {
						send(ans)
					}
					return true
				}
				leader.held = append(leader.held, again)
				w.after(max(until-w.now, 0), func() { w.deliver(to, func() { again(true) }) })
				again(false)
			}
		})
	})
}

// retry decides anew about the answers that a leader holds, as long as that changes others.
func (w *world) retry(leader *simNode) {
	for leader.alloc != nil && leader.alloc.Moved() {
		leader.held = slices.DeleteFunc(leader.held, func(again func(bool) bool) bool { return again(false) })
	}
}

// run lets time pass. demand sets what clients want on each node at a time since the
// start of the run.
func (w *world) run(d time.Duration, demand func(at time.Duration, node int) float64) {
	start := w.now
	for ; w.now < start+d; w.now += step {
		due := w.events
		w.events = nil
		for _, e := range due {
			if e.at <= w.now {
				e.do()
			} else {
				w.events = append(w.events, e)
			}
		}
		sum, used := 0.0, 0.0
		for i, n := range w.nodes {
			n.demand = demand(w.now-start, i)
			w.ask(n)
			rate := n.holder.Rate(n.clock(w.now), simKey, w.budget)
			sum += rate
			used += min(rate, n.demand) * step.Seconds()
		}
		w.used = append(w.used, used)
		w.worst = max(w.worst, sum/w.budget.Rate)
		if sum > w.budget.Rate*(1+1e-9) && !w.overUse {
			for _, n := range w.nodes {
				w.t.Logf("node %d: %v, contact %v, %+v", n.i, n.holder.Rate(n.clock(w.now), simKey, w.budget),
					n.holder.Contact(n.clock(w.now)), n.holder.leases)
			}
			w.t.Fatalf("after %v: the nodes may use %.3f of the budget", w.now-start, sum/w.budget.Rate)
		}
	}
}

// windows returns the least and the most that was used in any 10 s of the last run of
// d, relative to the budget.
func (w *world) windows(d time.Duration) (least, most float64) {
	const width = int(10 * time.Second / step)
	used := w.used[len(w.used)-int(d/step):]
	least = math.Inf(1)
	sum := 0.0
	for i, u := range used {
		sum += u
		if i >= width {
			sum -= used[i-width]
		}
		if i >= width-1 {
			share := sum / (w.budget.Rate * 10)
			least, most = min(least, share), max(most, share)
		}
	}
	return least, most
}

// loads are ways in which demand moves. Each adds up to at least the budget of 1000.
var loads = map[string]func(nodes int) func(at time.Duration, node int) float64{
	"even": func(nodes int) func(time.Duration, int) float64 {
		return func(time.Duration, int) float64 { return 1500 / float64(nodes) }
	},
	"all on one": func(int) func(time.Duration, int) float64 {
		return func(_ time.Duration, node int) float64 { return only(node == 1, 3000) }
	},
	"swaps": func(nodes int) func(time.Duration, int) float64 {
		return func(at time.Duration, node int) float64 { return only(node == int(at/(10*time.Second))%nodes, 1500) }
	},
	"steps": func(nodes int) func(time.Duration, int) float64 {
		return func(at time.Duration, node int) float64 {
			return 1100 / float64(nodes) * (1 + only(int(at/(5*time.Second))%nodes == node, 4))
		}
	},
	"bursts beside a steady node": func(nodes int) func(time.Duration, int) float64 {
		return func(at time.Duration, node int) float64 {
			if node == 0 {
				return 1200
			}
			return only(at%(4*time.Second) < time.Second, 800)
		}
	},
	"a wave": func(nodes int) func(time.Duration, int) float64 {
		return func(at time.Duration, node int) float64 {
			phase := 2 * math.Pi * (at.Seconds()/20 + float64(node)/float64(nodes))
			return 1400 / float64(nodes) * (1 + math.Sin(phase))
		}
	},
}

func only(when bool, v float64) float64 {
	if when {
		return v
	}
	return 0
}

func TestInPeaceTheBudgetIsUsedWhereverDemandIs(t *testing.T) {
	for name, load := range loads {
		for _, nodes := range []int{1, 3, 10} {
			t.Run(fmt.Sprint(name, " ", nodes), func(t *testing.T) {
				w := newWorld(t, 1, nodes)
				w.elect(0)
				demand := load(nodes)
				w.run(10*time.Second, func(time.Duration, int) float64 { return 0 })
				w.run(5*time.Second, demand)
				const d = 2 * time.Minute
				w.run(d, demand)
				least, most := w.windows(d)
				t.Logf("least %.4f, most %.4f", least, most)
				if nodes == 1 && (name == "all on one" || name == "a wave") {
					return // the only node has less demand than the budget
				}
				if least < 0.95 || most > 1.05 {
					t.Errorf("used in 10 s: between %.3f and %.3f of the budget, want 0.95 to 1.05", least, most)
				}
			})
		}
	}
}
