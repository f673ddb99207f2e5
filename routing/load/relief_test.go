package load

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/routing/endpoint"
)

// cluster is servers in virtual time, with sessions that each use some CPU all the time.
type cluster struct {
	now      time.Time
	sessions [][]float64 // of each server, by age there
	base     []float64   // CPU usage of other work
	meters   []meter
	seconds  []float64
	relief   Relief[int]
	rules    Rules
	moves    int
}

func newCluster(base []float64, sessions ...[]float64) *cluster {
	return &cluster{
		now: time.Now(), sessions: sessions, base: base, rules: testRules,
		meters: make([]meter, len(base)), seconds: make([]float64, len(base)),
	}
}

func (c *cluster) usage(i int) float64 {
	sum := c.base[i]
	for _, s := range c.sessions[i] {
		sum += s
	}
	return min(sum, 1)
}

func (c *cluster) servers() []Server[int] {
	var list []Server[int]
	for i := range c.meters {
		l := c.meters[i].load(&c.rules, c.now)
		list = append(list, Server[int]{
			ID: i, Load: &l, Sessions: len(c.sessions[i]), Movable: len(c.sessions[i]), Takes: true, Near: true,
		})
	}
	return list
}

// run lets time pass: samples every 5 s, a look every second, at which up to pace sessions
// move.
func (c *cluster) run(d time.Duration, pace int) {
	for end := c.now.Add(d); c.now.Before(end); {
		c.now = c.now.Add(time.Second)
		for i := range c.seconds {
			c.seconds[i] += c.usage(i) * 8
			if c.now.Unix()%5 == 0 {
				c.meters[i].add(Sample{CPUSeconds: c.seconds[i], Procs: 8, Resident: 1, Quota: 100}, c.now, c.rules.Interval)
			}
		}
		b := c.relief.Plan(c.now, &c.rules, c.servers())
		for n := 0; b != nil && b.Left > 0 && n < pace && len(c.sessions[b.From]) > 0; n++ {
			s := c.sessions[b.From][0]
			c.sessions[b.From] = c.sessions[b.From][1:]
			c.sessions[b.To] = append(c.sessions[b.To], s)
			c.moves++
			c.relief.Moved(b.From, b.To, c.now)
		}
	}
}

func same(n int, each float64) []float64 { return slices.Repeat([]float64{each}, n) }

// A hot server loses sessions until the difference is below the gap, and no more.
func TestHotServerIsRelieved(t *testing.T) {
	c := newCluster([]float64{0, 0, 0}, same(95, 0.01), same(10, 0.01), same(20, 0.01))
	c.run(5*time.Minute, 10)
	spread := func() float64 {
		u := []float64{c.usage(0), c.usage(1), c.usage(2)}
		return slices.Max(u) - slices.Min(u)
	}
	if spread() >= testRules.Gap && slices.Max([]float64{c.usage(0), c.usage(1), c.usage(2)}) >= testRules.High {
		t.Errorf("the usages are %v, %v and %v", c.usage(0), c.usage(1), c.usage(2))
	}
	moves := c.moves
	if moves == 0 || moves > 60 {
		t.Errorf("%d moves", moves)
	}
	if c.run(time.Hour, 10); c.moves != moves {
		t.Errorf("%d moves later", c.moves-moves)
	}
}

func TestNobodyMoves(t *testing.T) {
	for name, c := range map[string]*cluster{
		"both are hot":           newCluster([]float64{0, 0}, same(90, 0.01), same(80, 0.01)),
		"below the high usage":   newCluster([]float64{0, 0}, same(45, 0.01), nil),
		"below the gap":          newCluster([]float64{0, 0}, same(60, 0.01), same(50, 0.01)),
		"one session is it all":  newCluster([]float64{0, 0}, same(1, 0.9), same(20, 0.001)),
		"other work is the load": newCluster([]float64{0.9, 0}, same(1, 0.001), nil),
	} {
		if c.run(10*time.Minute, 10); c.moves != 0 {
			t.Errorf("%s: %d moves", name, c.moves)
		}
	}
}

// Without samples sessions stay, both at the server without them and at the others.
func TestUnknownLoadMovesNobody(t *testing.T) {
	for _, lost := range []int{0, 1} {
		c := newCluster([]float64{0, 0}, same(95, 0.01), same(5, 0.01))
		c.run(6*time.Second, 0)
		list := c.servers()
		list[lost].Load = &endpoint.Load{CPU: endpoint.Unknown, Latest: endpoint.Unknown, Memory: endpoint.Unknown, Share: 1}
		if b := c.relief.Plan(c.now, &c.rules, list); b != nil {
			t.Errorf("without the load of %d: %+v", lost, b)
		}
		list[lost].Load = nil
		if b := c.relief.Plan(c.now, &c.rules, list); b != nil {
			t.Errorf("with no load of %d: %+v", lost, b)
		}
	}
}

// Whatever sessions use, moves end: a session moves to and fro a few times at most, and
// equal ones not even once.
func TestNoFlapping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "servers")
		equal := rapid.Bool().Draw(t, "equal")
		each := rapid.Float64Range(0.002, 0.05).Draw(t, "each")
		c := newCluster(make([]float64, n), make([][]float64, n)...)
		total := 0
		for i := range n {
			c.base[i] = rapid.Float64Range(0, 0.3).Draw(t, "base")
			for range rapid.IntRange(0, 40).Draw(t, "sessions") {
				one := each
				if !equal {
					one = rapid.SampledFrom([]float64{0, 0.001, 0.01, 0.1, 0.6}).Draw(t, "one")
				}
				c.sessions[i] = append(c.sessions[i], one)
				total++
			}
		}
		pace := rapid.IntRange(1, 50).Draw(t, "pace")
		c.run(2*time.Hour, pace)
		most := total
		if !equal {
			most = 4 * total
		}
		if c.moves > most {
			t.Fatalf("%d moves of %d sessions in two hours", c.moves, total)
		}
		moves := c.moves
		c.run(4*time.Hour, pace)
		if equal && c.moves != moves {
			t.Fatalf("%d moves of equal sessions after two hours", c.moves-moves)
		}
		if late := c.moves - moves; late > 8*total {
			t.Fatalf("%d moves of %d sessions in four more hours", late, total)
		}
	})
}

// A batch is followed by the next one only when samples from after its last move are there.
func TestNextBatchWaitsForSamples(t *testing.T) {
	now := time.Now()
	at := func(cpu float64, from time.Time) *endpoint.Load {
		return &endpoint.Load{CPU: cpu, Latest: cpu, From: from, At: from.Add(5 * time.Second), Memory: endpoint.Unknown}
	}
	servers := func(from time.Time) []Server[string] {
		return []Server[string]{
			{ID: "a", Load: at(0.9, from), Sessions: 90, Movable: 90, Takes: true},
			{ID: "b", Load: at(0.1, from), Sessions: 10, Movable: 10, Takes: true},
		}
	}
	var r Relief[string]
	b := r.Plan(now, &testRules, servers(now.Add(-5*time.Second)))
	if b == nil || b.From != "a" || b.To != "b" || b.Left != 20 {
		t.Fatalf("planned %+v", b)
	}
	for range 20 {
		r.Moved("a", "b", now)
	}
	if b := r.Plan(now.Add(time.Second), &testRules, servers(now.Add(-time.Second))); b != nil {
		t.Errorf("the next batch is planned by old samples: %+v", b)
	}
	if b := r.Plan(now.Add(6*time.Second), &testRules, servers(now.Add(time.Second))); b == nil {
		t.Error("no next batch")
	}
	if r.Evens(now.Add(30*time.Second), &testRules, "a", at(0.3, now), at(0.3, now)) {
		t.Error("a server that has lost sessions gets some for balance")
	}
	if !r.Evens(now.Add(shortWait), &testRules, "a", at(0.3, now), at(0.3, now)) {
		t.Error("it gets none after a minute")
	}
}

// Sessions that turn the difference around wait, longer each time.
func TestReverseMovesWait(t *testing.T) {
	var r Relief[string]
	now := time.Now()
	a := Server[string]{ID: "a", Sessions: 9, Movable: 9, Takes: true}
	b := Server[string]{ID: "b", Sessions: 9, Movable: 9, Takes: true}
	hot := func(from time.Time, cpu float64) *endpoint.Load {
		return &endpoint.Load{CPU: cpu, Latest: cpu, From: from, Memory: endpoint.Unknown}
	}
	for _, wait := range []time.Duration{0, time.Minute, 2 * time.Minute, 4 * time.Minute} {
		for _, tt := range []struct {
			after time.Duration
			want  bool
		}{{wait - time.Second, wait == 0}, {wait, true}} {
			at := now.Add(tt.after)
			a.Load, b.Load = hot(at, 0.9), hot(at, 0.1)
			r.batch = nil
			if got := r.Plan(at, &testRules, []Server[string]{a, b}) != nil; got != tt.want {
				t.Errorf("%v after the last move with a wait of %v: %v", tt.after, wait, got)
			}
		}
		now = now.Add(wait)
		r.Moved(a.ID, b.ID, now)
		a, b = b, a
	}
}

// A server that has received sessions loses none to a third one for a while, and one that
// has lost some receives none from it.
func TestBothSidesWait(t *testing.T) {
	now := time.Now()
	for _, hot := range []string{"b", "c"} { // a has lost sessions to b
		var r Relief[string]
		r.Moved("a", "b", now)
		plan := func(at time.Time) bool {
			var list []Server[string]
			for _, id := range []string{"a", "b", "c"} {
				if hot == "b" && id == "a" || hot == "c" && id == "b" {
					continue // of the two others only one has to wait
				}
				cpu := 0.1
				if id == hot {
					cpu = 0.9
				}
				l := &endpoint.Load{CPU: cpu, Latest: cpu, From: at, Memory: endpoint.Unknown}
				list = append(list, Server[string]{ID: id, Load: l, Sessions: 9, Movable: 9, Takes: true})
			}
			r.batch = nil
			return r.Plan(at, &testRules, list) != nil
		}
		if plan(now.Add(shortWait - time.Second)) {
			t.Errorf("%s: no wait", hot)
		}
		if !plan(now.Add(shortWait)) && hot == "c" {
			t.Errorf("%s: it waits longer than %v", hot, shortWait)
		}
	}
}

func TestMemory(t *testing.T) {
	now := time.Now()
	full := func(usage float64, risk int, fullIn time.Duration) *endpoint.Load {
		return &endpoint.Load{CPU: 0.1, Latest: 0.1, At: now, From: now, Memory: usage, MemoryAt: now, Risk: risk, FullIn: fullIn}
	}
	for name, tt := range map[string]struct {
		from, to *endpoint.Load
		want     int
	}{
		"high":          {full(0.8, 2, 0), full(0.3, 0, 0), 10},
		"nearly full":   {full(0.8, 2, 30*time.Second), full(0.3, 0, 0), 120},
		"both are high": {full(0.8, 2, 0), full(0.7, 1, 0), 0},
		"some risk":     {full(0.7, 1, 0), full(0.3, 0, 0), 0},
		"unknown":       {full(0.8, 2, 0), full(-1, 0, 0), 0},
	} {
		var r Relief[string]
		b := r.Plan(now, &testRules, []Server[string]{
			{ID: "a", Load: tt.from, Sessions: 120, Movable: 120, Takes: true},
			{ID: "b", Load: tt.to, Sessions: 3, Movable: 3, Takes: true},
		})
		if n := left(b); n != tt.want || n > 0 && (!b.Memory || b.From != "a") {
			t.Errorf("%s: %+v, want %d", name, b, tt.want)
		}
	}
}

func left(b *Batch[string]) int {
	if b == nil {
		return 0
	}
	return b.Left
}

// Servers of other zones and priorities, and those that take no sessions, are no targets.
func TestTargets(t *testing.T) {
	l := func(cpu float64) *endpoint.Load {
		return &endpoint.Load{CPU: cpu, Latest: cpu, From: time.Now(), Memory: endpoint.Unknown}
	}
	for name, change := range map[string]func(from, to *Server[string], r *Rules){
		"zone":       func(_, to *Server[string], _ *Rules) { to.Near = true },
		"priority":   func(_, to *Server[string], _ *Rules) { to.Level = 1 },
		"takes none": func(_, to *Server[string], _ *Rules) { to.Takes = false },
		"no session": func(from, _ *Server[string], _ *Rules) { from.Movable = 0 },
		"memory":     func(_, to *Server[string], _ *Rules) { to.Load.Risk = 1 },
		"off":        func(_, _ *Server[string], r *Rules) { r.MoveCPU = false },
		"a peak":     func(from, _ *Server[string], _ *Rules) { from.Load.CPU = 0.2 },
		"it is over": func(from, _ *Server[string], _ *Rules) { from.Load.Latest = 0.2 },
		"nothing":    nil,
	} {
		list := []Server[string]{
			{ID: "a", Load: l(0.9), Sessions: 90, Movable: 90, Takes: true}, {ID: "b", Load: l(0.1), Sessions: 9, Movable: 9, Takes: true},
		}
		rules := testRules
		if change != nil {
			change(&list[0], &list[1], &rules)
		}
		var r Relief[string]
		if got := r.Plan(time.Now(), &rules, list) != nil; got != (change == nil) {
			t.Errorf("%s: a batch: %v", name, got)
		}
	}
}

// Balance does not undo what was moved because of the load.
func TestEvens(t *testing.T) {
	l := func(cpu float64, risk int) *endpoint.Load {
		return &endpoint.Load{CPU: cpu, Latest: cpu, Memory: 0.1, Risk: risk}
	}
	for name, tt := range map[string]struct {
		from, to *endpoint.Load
		want     bool
	}{
		"unknown":      {l(0.2, 0), nil, true},
		"idle":         {l(0.1, 0), l(0.3, 0), true},
		"busier":       {l(0.1, 0), l(0.4, 0), false},
		"less busy":    {l(0.6, 0), l(0.5, 0), true},
		"from unknown": {nil, l(0.5, 0), false},
		"memory":       {l(0.6, 0), l(0.1, 1), false},
	} {
		var r Relief[string]
		if got := r.Evens(time.Now(), &testRules, "b", tt.from, tt.to); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A session counts for the mean usage of all, or of those of its own server where that is
// more, and for something even if the servers seem idle.
func TestSessionsCountForTheirUsage(t *testing.T) {
	now := time.Now()
	server := func(cpu float64, sessions int) Server[int] {
		return Server[int]{
			Load:     &endpoint.Load{CPU: cpu, Latest: cpu, From: now, At: now, Memory: endpoint.Unknown, Share: 1},
			Sessions: sessions, Movable: sessions, Takes: true,
		}
	}
	for name, tt := range map[string]struct {
		servers []Server[int]
		want    int
	}{
		"as on its server":    {[]Server[int]{server(0.9, 30), server(0.3, 100)}, 5},  // 0.03 each: 10 would even it out
		"as on all servers":   {[]Server[int]{server(0.9, 300), server(0.3, 10)}, 39}, // 1.2 by 310 each, not 0.9 by 300
		"at least some usage": {[]Server[int]{server(0.3, 9000), server(0.1, 9000)}, 50},
	} {
		if n := cpuCount(&tt.servers[0], &tt.servers[1], tt.servers); n != tt.want {
			t.Errorf("%s: %d sessions move, want %d", name, n, tt.want)
		}
	}
}
