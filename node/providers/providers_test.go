package providers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"penstock/consensus/store"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is an outside place: what its source reports, and who asks.
type place struct {
	mu      sync.Mutex
	answers map[string][]string // service -> addresses
	changed chan struct{}
	sources int // that run now
}

func (p *place) set(service string, addresses ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[service] = addresses
	close(p.changed)
	p.changed = make(chan struct{})
}

// silence makes sources that start from now on report nothing of a service.
func (p *place) silence(service string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.answers, service)
}

func (p *place) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sources
}

// Run implements provider.Source.
func (p *place) Run(ctx context.Context, sink provider.Sink) error {
	p.mu.Lock()
	p.sources++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.sources--
		p.mu.Unlock()
	}()
	for {
		queries, replaced := sink.Wanted()
		p.mu.Lock()
		changed := p.changed
		for _, q := range queries {
			addresses, known := p.answers[q.Service]
			if !known {
				continue
			}
			list := make([]provider.Endpoint, len(addresses))
			for i, a := range addresses {
				list[i] = provider.Endpoint{Address: a, Weight: 1}
			}
			sink.Report(q, list)
		}
		p.mu.Unlock()
		select {
		case <-replaced:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// cluster is a store with nodes on it, in virtual time. The first node leads.
type cluster struct {
	t      *testing.T
	store  *store.Memory
	place  *place
	leader int

	mu        sync.Mutex
	nodes     []*testNode // only start writes, so a test reads without mu
	proposals int
	ops       int
	removed   map[string]bool // IDs of nodes that are no members any more
	told      int             // messages between nodes about announced endpoints
	delay     time.Duration   // of each of them
}

type testNode struct {
	*Providers
	id     int
	drains atomic.Bool
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	changes int // calls of Changed
}

func inBubble(t *testing.T, nodes int, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			t: t, store: store.NewMemory(store.Limits{}),
			place:   &place{answers: map[string][]string{}, changed: make(chan struct{})},
			removed: map[string]bool{},
		}
		for range nodes {
			c.start()
		}
		test(c)
		for _, n := range c.nodes {
			n.cancel()
			<-n.done
		}
	})
}

// Propose, Snapshot and Wait implement Store.
func (c *cluster) Propose(ctx context.Context, b *store.Batch) (store.Pending, error) {
	c.mu.Lock()
	c.proposals++
	c.ops += len(b.Ops)
	c.mu.Unlock()
	return c.store.Propose(ctx, b)
}

func (c *cluster) Snapshot() store.Snapshot { return c.store.Snapshot() }

func (c *cluster) Wait(ctx context.Context, after uint64) (store.Snapshot, error) {
	return c.store.Wait(ctx, after)
}

// stored returns the number of operations so far.
func (c *cluster) stored() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops
}

func (c *cluster) leads(id int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader == id
}

func (c *cluster) elect(id int) {
	c.mu.Lock()
	c.leader = id
	c.mu.Unlock()
	settle()
}

// start adds a node.
func (c *cluster) start() *testNode {
	n := &testNode{id: len(c.nodes), done: make(chan struct{})}
	n.Providers = New(Config{
		Store: c,
		Source: func(spec *resource.EndpointProvider) (provider.Source, error) {
			if spec.Type == "dns" {
				return nil, errors.New("spec.dns is missing")
			}
			return c.place, nil
		},
		Leads: func() bool { return c.leads(n.id) },
		Await: func(context.Context, uint64) error { return nil },
		Changed: func([]provider.Ref) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.changes++
		},
		Self: nodeID(n.id), Leader: c.leaderID, Members: c.members, Tell: ask{c, n}.tell, Leaving: n.drains.Load,
	})
	ctx, cancel := context.WithCancel(c.t.Context())
	n.cancel = cancel
	c.mu.Lock() // nodes that run ask for the members
	c.nodes = append(c.nodes, n)
	c.mu.Unlock()
	go func() {
		defer close(n.done)
		n.Run(ctx)
	}()
	return n
}

func settle() {
	<-time.After(3 * time.Second)
	synctest.Wait()
}

func (c *cluster) apply(changes ...resource.Change) {
	for _, n := range c.nodes {
		n.Apply(changes)
	}
	settle()
}

func putProvider(name, scope string) resource.Change {
	return resource.Put(resource.Object{
		Key: resource.Key{Kind: resource.KindProvider, Name: name}, Spec: &resource.EndpointProvider{Type: "file", Scope: scope},
	})
}

func putService(name string, providers ...string) resource.Change {
	s := &resource.Service{}
	for _, p := range providers {
		s.EndpointsFrom = append(s.EndpointsFrom, resource.EndpointsFrom{Provider: p, Service: "web"})
	}
	return resource.Put(resource.Object{Key: resource.Key{Kind: "Service", Name: name}, Spec: s})
}

var webRef = provider.Ref{Provider: "p", Query: provider.Query{Service: "web"}}

// want checks what every node has of the provider p.
func (c *cluster) want(addresses ...string) {
	c.t.Helper()
	for i, n := range c.nodes {
		var got []string
		for _, f := range n.Directory.Lookup(webRef) {
			got = append(got, f.Address)
		}
		if !slices.Equal(got, addresses) {
			c.t.Errorf("node %d has %q, want %q", i, got, addresses)
		}
	}
}

func TestTheLeaderStoresWhatEveryNodeUses(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.place.set("web", "10.0.0.1:80", "10.0.0.2:80")
		c.apply(putProvider("p", ""), putService("shop", "p"), putService("other", "p"))
		c.want("10.0.0.1:80", "10.0.0.2:80")
		if n := c.place.asked(); n != 1 {
			t.Errorf("%d nodes ask, want the leader alone", n)
		}
		since := c.nodes[2].Directory.Lookup(webRef)[0].Since
		c.place.set("web", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
		settle()
		c.want("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
		if n := c.stored(); n != 3 {
			t.Errorf("%d operations, want one for each endpoint", n)
		}
		if list := c.nodes[2].Directory.Lookup(webRef); list[0].Since != since || !list[2].Since.After(since) {
			t.Errorf("since %v and %v, before %v", list[0].Since, list[2].Since, since)
		}
		c.apply(resource.Delete(resource.Key{Kind: "Service", Name: "other"}))
		c.want("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
		c.apply(putService("shop"))
		c.want() // nobody uses them
	})
}

func TestTheNextLeaderGoesOn(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.place.set("web", "10.0.0.1:80", "10.0.0.2:80")
		c.apply(putProvider("p", ""), putService("shop", "p"))
		c.elect(1)
		c.want("10.0.0.1:80", "10.0.0.2:80")
		if n := c.stored(); n != 2 {
			t.Errorf("%d operations after a change of the leader, want 2", n)
		}
		c.place.set("web", "10.0.0.2:80")
		settle()
		c.want("10.0.0.2:80")
		c.elect(-1) // nobody
		c.place.set("web", "10.0.0.2:80", "10.0.0.7:80")
		settle()
		c.want("10.0.0.2:80")
		if n := c.place.asked(); n != 0 {
			t.Errorf("%d nodes ask without a leader", n)
		}
		if len(c.nodes[1].Status()) != 0 {
			t.Error("a node that no longer leads shows the state of providers")
		}
		c.elect(2)
		c.want("10.0.0.2:80", "10.0.0.7:80")
		late := c.start()
		late.Apply([]resource.Change{putProvider("p", ""), putService("shop", "p")})
		settle()
		c.want("10.0.0.2:80", "10.0.0.7:80")
		late.mu.Lock()
		defer late.mu.Unlock()
		if late.changes != 0 { // it began with what the store had
			t.Errorf("a new node took %d steps", late.changes)
		}
	})
}

func TestEndpointsOfADeletedProviderGo(t *testing.T) {
	inBubble(t, 2, func(c *cluster) {
		c.place.set("web", "10.0.0.1:80")
		c.apply(putProvider("p", ""), putProvider("q", ""), putService("shop", "p", "q"))
		c.elect(-1)
		c.apply(resource.Delete(resource.Key{Kind: resource.KindProvider, Name: "p"}))
		c.want("10.0.0.1:80") // there is nobody to delete them
		c.elect(1)
		c.want()
		q := provider.Ref{Provider: "q", Query: webRef.Query}
		if len(c.nodes[0].Directory.Lookup(q)) != 1 {
			t.Error("the endpoints of another provider are gone")
		}
	})
}

func TestProvidersOfScopeNodeRunEverywhere(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.place.set("web", "10.0.0.1:80")
		c.apply(putProvider("p", "node"), putService("shop", "p"))
		c.want("10.0.0.1:80")
		if asked, stored := c.place.asked(), c.stored(); asked != 3 || stored != 0 {
			t.Errorf("%d nodes ask, %d operations; want 3 and 0", asked, stored)
		}
		c.elect(-1)
		c.place.set("web", "10.0.0.1:80", "10.0.0.2:80")
		settle()
		c.want("10.0.0.1:80", "10.0.0.2:80")
		c.apply(resource.Delete(resource.Key{Kind: resource.KindProvider, Name: "p"}))
		c.want()
	})
}

func TestChangeOfScopeLosesNothing(t *testing.T) {
	inBubble(t, 2, func(c *cluster) {
		c.place.set("web", "10.0.0.1:80", "10.0.0.2:80")
		c.apply(putProvider("p", ""), putService("shop", "p"))
		c.place.silence("web")
		c.apply(putProvider("p", "node"))
		c.want("10.0.0.1:80", "10.0.0.2:80")
		left := slices.Collect(c.store.Snapshot().Kind(kind))
		if len(left) != 0 {
			t.Errorf("%d entries are left in the store", len(left))
		}
		c.place.set("web", "10.0.0.2:80")
		c.apply(putProvider("p", "cluster"))
		c.want("10.0.0.2:80")
	})
}

func TestProvidersThatCannotStartAreReported(t *testing.T) {
	inBubble(t, 1, func(c *cluster) {
		bad := resource.Put(resource.Object{
			Key: resource.Key{Kind: resource.KindProvider, Name: "p"}, Spec: &resource.EndpointProvider{Type: "dns"},
		})
		c.apply(bad)
		if s := c.nodes[0].Status(); len(s) != 1 || s[0].Err != "spec.dns is missing" {
			t.Errorf("status %+v", s)
		}
		c.apply(putProvider("p", ""))
		if s := c.nodes[0].Status(); len(s) != 1 || s[0].Err != "" {
			t.Errorf("status %+v", s)
		}
	})
}

func TestKeys(t *testing.T) {
	ref := provider.Ref{Provider: "p", Query: provider.Query{Service: "ns/web", Port: "http"}}
	key, err := keyOf(ref, "[2001:db8::1]:80")
	if err != nil {
		t.Fatal(err)
	}
	if got, address, ok := parseKey(key); !ok || got != ref || address != "[2001:db8::1]:80" {
		t.Errorf("%q is %v %q", key.Name, got, address)
	}
	for _, service := range []string{"a\x01b", "a\x00b", strings.Repeat("x", 600)} {
		if _, err := keyOf(provider.Ref{Provider: "p", Query: provider.Query{Service: service}}, "10.0.0.1:80"); err == nil {
			t.Errorf("a key of service %.20q was made", service)
		}
	}
	for _, k := range []store.Key{{Kind: "Service", Name: key.Name}, {Kind: kind, Name: "p"}, {Kind: kind, Name: key.Name + sep}} {
		if _, _, ok := parseKey(k); ok {
			t.Errorf("%v is taken for an endpoint", k)
		}
	}
}

func BenchmarkOneOfTenThousandStored(b *testing.B) {
	memory := store.NewMemory(store.Limits{})
	p := New(Config{Store: memory, Changed: func([]provider.Ref) {}})
	var all []provider.Endpoint
	for i := range 10_000 {
		all = append(all, provider.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250+1), Weight: 1})
	}
	ctx := b.Context()
	if err := p.applyInStore(ctx, "p", []provider.Change{{Query: webRef.Query, Put: all}}); err != nil {
		b.Fatal(err)
	}
	old := memory.Snapshot()
	p.update(p.updates(store.Snapshot{}, old))
	for i := 0; b.Loop(); i++ {
		e := all[5000]
		e.Weight = i%2 + 1
		if err := p.applyInStore(ctx, "p", []provider.Change{{Query: webRef.Query, Put: []provider.Endpoint{e}}}); err != nil {
			b.Fatal(err)
		}
		view := memory.Snapshot()
		p.update(p.updates(old, view))
		old = view
	}
}
