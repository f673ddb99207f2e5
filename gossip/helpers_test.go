package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// memberlist's probes end only after their own timeout.
func TestMain(m *testing.M) { testkit.VerifyTestMain(m) }

// fastTiming has intervals short enough for tests: seconds instead of half a
// minute.
var fastTiming = timing{
	probe: 150 * time.Millisecond, answer: 60 * time.Millisecond,
	gossip: 30 * time.Millisecond, pushPull: time.Second, reclaim: 700 * time.Millisecond,
	stream: time.Second, facts: 50 * time.Millisecond, heal: 300 * time.Millisecond, leave: time.Second,
}

// node is one member with its configuration and cut links.
type node struct {
	*Gossip
	config Config
	cut    *cuts
}

// cuts is the set of addresses that a member cannot reach.
type cuts struct {
	mu  sync.Mutex
	set map[string]bool
}

func (c *cuts) reach(addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.set[addr]
}

func (c *cuts) setCut(addr string, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set[addr] = cut
}

var instances atomic.Int64

// open starts a member, in cluster "c" unless change sets another.
func open(t *testing.T, id string, change ...func(*Config)) *node {
	t.Helper()
	n := &node{cut: &cuts{set: map[string]bool{}}}
	fast := fastTiming
	n.config = Config{
		ID: id, Bind: "127.0.0.1:0", Label: "c", timing: &fast, reach: n.cut.reach,
		Meta: Meta{Name: "name of " + id, Cluster: "10.0.0.1:7001", Instance: fmt.Sprint(instances.Add(1))},
		Log:  slog.New(slog.NewTextHandler(tee{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for _, f := range change {
		f(&n.config)
	}
	g, err := Open(n.config)
	if err != nil {
		t.Fatal(err)
	}
	n.Gossip = g
	t.Cleanup(func() { n.Close() })
	return n
}

// tee writes to the test's log until the test ends.
type tee struct{ t *testing.T }

func (w tee) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

func bindTo(addr string) func(*Config) { return func(c *Config) { c.Bind = addr } }

func label(l string) func(*Config) { return func(c *Config) { c.Label = l } }

func keyed(keys ...[]byte) func(*Config) { return func(c *Config) { c.Keys = keys } }

func timed(f func(*timing)) func(*Config) { return func(c *Config) { f(c.timing) } }

func key(b byte) []byte { return slices.Repeat([]byte{b}, 32) }

func (n *node) mustJoin(t *testing.T, others ...*node) {
	t.Helper()
	for _, o := range others {
		var err error
		// A busy member may not respond within the stream timeout.
		if !testkit.Poll(testkit.Patience, func() bool {
			var reached int
			reached, err = n.Join(t.Context(), []string{o.Addr()})
			return reached == 1 && err == nil
		}) {
			t.Fatalf("%s joins %s: %v", n.id, o.id, err)
		}
	}
}

func (n *node) see(id string) Member {
	for _, m := range n.Members() {
		if m.ID == id {
			return m
		}
	}
	return Member{}
}

func (n *node) sees(id string, s State) func() bool {
	return func() bool { return n.see(id).State == s }
}

// group starts members and joins them.
func group(t *testing.T, ids ...string) []*node {
	t.Helper()
	var all []*node
	for i, id := range ids {
		n := open(t, id, bindTo(fmt.Sprintf("127.0.0.%d:0", i+1)))
		if i > 0 {
			n.mustJoin(t, all[0])
		}
		all = append(all, n)
	}
	for _, n := range all {
		for _, id := range ids {
			testkit.WaitFor(t, n.id+" sees "+id, n.sees(id, Alive))
		}
	}
	return all
}

func timeoutContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
