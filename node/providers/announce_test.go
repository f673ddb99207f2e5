package providers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/routing"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

func nodeID(n int) string { return fmt.Sprintf("node-%d", n) }

// leaderID, members and tell are those of Config.
func (c *cluster) leaderID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader < 0 {
		return ""
	}
	return nodeID(c.leader)
}

func (c *cluster) members() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for _, n := range c.nodes {
		if !c.removed[nodeID(n.id)] {
			ids = append(ids, nodeID(n.id))
		}
	}
	return ids
}

// ask is the node that calls tell.
type ask struct {
	cluster *cluster
	from    *testNode
}

func (a ask) tell(_ context.Context, to string, m *Announcements) (*AnnouncementsResult, error) {
	c := a.cluster
	c.mu.Lock()
	c.told++
	i := slices.IndexFunc(c.nodes, func(n *testNode) bool { return nodeID(n.id) == to })
	n, delay := c.nodes[i], c.delay
	c.mu.Unlock()
	<-time.After(delay)
	select {
	case <-n.done:
		return nil, errors.New("connection refused")
	default:
		return n.Receive(nodeID(a.from.id), m)
	}
}

// kill stops a node without a word.
func (c *cluster) kill(id int) {
	c.nodes[id].cancel()
	<-c.nodes[id].done
}

func (c *cluster) remove(id int) {
	c.mu.Lock()
	c.removed[nodeID(id)] = true
	c.mu.Unlock()
	settle()
}

func announcing(name string) resource.Change {
	s := &resource.Service{Discovery: &resource.Discovery{Announce: &resource.Announce{Port: 80}}}
	return resource.Put(resource.Object{Key: resource.Key{Kind: "Service", Name: name}, Spec: s})
}

func (c *cluster) announce(node int, address string) (withdraw func()) {
	return c.nodes[node].Announce("web", provider.Endpoint{Address: address, Weight: 1})
}

var announcedRef = provider.Ref{Provider: routing.Announced, Query: provider.Query{Service: "web"}}

// wantAnnounced checks what every live node has of the service web.
func (c *cluster) wantAnnounced(addresses ...string) {
	c.t.Helper()
	for i, n := range c.nodes {
		select {
		case <-n.done:
			continue
		default:
		}
		var got []string
		for _, f := range n.Directory.Lookup(announcedRef) {
			got = append(got, f.Address)
		}
		if !slices.Equal(got, addresses) {
			c.t.Errorf("node %d has %q, want %q", i, got, addresses)
		}
	}
}

// wantOps checks how many endpoints have been put or removed in the store.
func (c *cluster) wantOps(n int, when string) {
	c.t.Helper()
	if got := c.stored(); got != n {
		c.t.Errorf("%d operations %s, want %d", got, when, n)
	}
}

func TestAnnouncedEndpointsAreEverywhere(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.apply(announcing("web"))
		for _, s := range c.nodes[0].Status() {
			if s.Name != "announced" || len(s.Queries) != 1 || s.Queries[0].Stale {
				t.Errorf("status %+v", s)
			}
		}
		leave0, leave2 := c.announce(0, "10.0.0.1:80"), c.announce(2, "10.0.0.2:80")
		settle()
		c.wantAnnounced("10.0.0.1:80", "10.0.0.2:80")
		c.wantOps(2, "for two endpoints")
		leave2()
		leave2()
		settle()
		c.wantAnnounced("10.0.0.1:80")
		leave0()
		settle()
		c.wantAnnounced()
		c.wantOps(4, "after both left")
	})
}

func TestAnnouncedEndpointsAreUsedWhileTheServiceSaysSo(t *testing.T) {
	inBubble(t, 2, func(c *cluster) {
		c.announce(1, "10.0.0.1:80")
		settle()
		c.wantAnnounced()
		c.apply(announcing("web"))
		c.wantAnnounced("10.0.0.1:80")
		c.apply(putService("web"))
		c.wantAnnounced()
	})
}

func TestAnAddressStaysUntilTheLastStreamEnds(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.apply(announcing("web"))
		first, second := c.announce(1, "10.0.0.1:80"), c.announce(1, "10.0.0.1:80")
		elsewhere := c.announce(2, "[::ffff:10.0.0.1]:80")
		settle()
		c.wantAnnounced("10.0.0.1:80")
		first()
		settle()
		second()
		settle()
		c.wantAnnounced("10.0.0.1:80")
		c.wantOps(1, "while a stream lives")
		elsewhere()
		settle()
		c.wantAnnounced()
	})
}

func TestTheLastAnnouncementSaysWhatAnEndpointIs(t *testing.T) {
	inBubble(t, 2, func(c *cluster) {
		c.apply(announcing("web"))
		version := func(v string) (withdraw func()) {
			return c.nodes[1].Announce("web", provider.Endpoint{Address: "10.0.0.1:80", Weight: 1, Tags: map[string]string{"version": v}})
		}
		want := func(v string) {
			t.Helper()
			settle()
			if list := c.nodes[0].Directory.Lookup(announcedRef); len(list) != 1 || list[0].Tags["version"] != v {
				t.Errorf("got %+v, want version %s", list, v)
			}
		}
		version("1")
		want("1")
		end := version("2")
		want("2")
		end()
		want("1")
	})
}

func TestEndpointsOfANodeThatDiesStayUntilTheyAreElsewhere(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.apply(announcing("web"))
		c.announce(1, "10.0.0.1:80")
		c.announce(1, "10.0.0.2:80")
		settle()
		c.kill(1)
		settle()
		c.wantAnnounced("10.0.0.1:80", "10.0.0.2:80")
		c.announce(2, "10.0.0.1:80")
		<-time.After(lease + renewEvery)
		settle()
		c.wantAnnounced("10.0.0.1:80")
		c.wantOps(3, "after one of two came to another node")
	})
}

func TestEndpointsOfARemovedNodeLeaveAtOnce(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.apply(announcing("web"))
		c.announce(1, "10.0.0.1:80")
		c.announce(2, "10.0.0.2:80")
		settle()
		c.kill(1)
		c.remove(1)
		c.wantAnnounced("10.0.0.2:80")
	})
}

func TestTheNextLeaderKeepsWhatIsAnnounced(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.apply(announcing("web"))
		c.announce(0, "10.0.0.1:80")
		leave := c.announce(2, "10.0.0.2:80")
		settle()
		c.elect(-1)
		<-time.After(2 * lease)
		leave()
		c.announce(2, "10.0.0.3:80")
		settle()
		c.wantAnnounced("10.0.0.1:80", "10.0.0.2:80")
		c.elect(1)
		<-time.After(renewEvery)
		c.wantAnnounced("10.0.0.1:80", "10.0.0.3:80")
		c.wantOps(4, "after a change of the leader")
		c.elect(0)
		<-time.After(2 * lease)
		c.wantAnnounced("10.0.0.1:80", "10.0.0.3:80")
		c.wantOps(4, "after the former leader is back")
	})
}

func TestALeaderThatReturnsDoesNotTrustOldLists(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.apply(announcing("web"))
		c.announce(2, "10.0.0.1:80")
		settle()
		c.elect(1)
		c.announce(2, "10.0.0.2:80")
		settle()
		c.mu.Lock()
		c.delay = 4 * time.Second // the new list comes late
		c.mu.Unlock()
		c.elect(0)
		<-time.After(lease)
		c.wantAnnounced("10.0.0.1:80", "10.0.0.2:80")
		c.wantOps(2, "after two changes of the leader")
	})
}

func TestTheNextLeaderWaitsOneLeaseForTheOldOnesEndpoints(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.apply(announcing("web"))
		c.announce(0, "10.0.0.1:80")
		c.announce(2, "10.0.0.2:80")
		settle()
		c.kill(0)
		c.elect(1)
		<-time.After(lease - 10*time.Second)
		c.wantAnnounced("10.0.0.1:80", "10.0.0.2:80")
		c.wantOps(2, "within the lease")
		<-time.After(15 * time.Second)
		c.wantAnnounced("10.0.0.2:80")
	})
}

func TestANewProcessBeginsWithItsOwnList(t *testing.T) {
	inBubble(t, 2, func(c *cluster) {
		c.apply(announcing("web"))
		c.announce(1, "10.0.0.1:80")
		settle()
		old := c.nodes[1]
		c.kill(1)
		c.nodes = c.nodes[:1]
		c.start().Apply([]resource.Change{announcing("web")}) // with the same ID
		c.announce(1, "10.0.0.2:80")
		settle()
		c.wantAnnounced("10.0.0.2:80")
		if old.announcer == c.nodes[1].announcer {
			t.Error("the node did not start again")
		}
	})
}

func TestProxiesThatLeaveADrainingNodeDoNotFlap(t *testing.T) {
	inBubble(t, 3, func(c *cluster) {
		c.apply(announcing("web"))
		first, second := c.announce(1, "10.0.0.1:80"), c.announce(1, "10.0.0.2:80")
		settle()
		c.nodes[1].drains.Store(true)
		first()
		second()
		settle()
		c.wantAnnounced("10.0.0.1:80", "10.0.0.2:80")
		c.announce(2, "10.0.0.1:80")
		<-time.After(lease)
		settle()
		c.wantAnnounced("10.0.0.1:80")
		c.wantOps(3, "after a drain")
		c.announce(1, "10.0.0.2:80")
		again := c.announce(1, "10.0.0.3:80") // the drain is undone
		c.nodes[1].drains.Store(false)
		again()
		<-time.After(2 * lease)
		c.wantAnnounced("10.0.0.1:80", "10.0.0.2:80")
	})
}

func TestALongListComesInParts(t *testing.T) {
	inBubble(t, 2, func(c *cluster) {
		c.apply(announcing("web"))
		const n = 6000
		tags := map[string]string{"x": strings.Repeat("x", 200)}
		var withdraw []func()
		for i := range n {
			e := provider.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250+1), Weight: 1, Tags: tags}
			withdraw = append(withdraw, c.nodes[1].Announce("web", e))
		}
		<-time.After(time.Minute) // the rate of changes is bounded
		if got := len(c.nodes[0].Directory.Lookup(announcedRef)); got != n {
			t.Errorf("%d endpoints, want %d", got, n)
		}
		c.elect(-1)
		c.mu.Lock()
		before := c.told
		c.mu.Unlock()
		c.elect(0)
		<-time.After(2 * time.Minute)
		c.mu.Lock()
		after := c.told
		c.mu.Unlock()
		if parts := after - before; parts < 5 {
			t.Errorf("%d messages, want a list in parts", parts)
		}
		c.wantOps(n, "for a long list")
		for _, w := range withdraw {
			w()
		}
		<-time.After(time.Minute)
		c.wantAnnounced()
	})
}

func TestAnnouncementsAreBounded(t *testing.T) {
	a := newAnnouncer(nil)
	address := func(i int) string { return fmt.Sprintf("10.%d.%d.%d:80", i>>16, i>>8&255, i&255) }
	var last func()
	for i := range maxAnnounced {
		var err error
		if last, err = a.announce("web", provider.Endpoint{Address: address(i)}); err != nil {
			t.Fatal(err)
		}
	}
	one := provider.Endpoint{Address: address(maxAnnounced)}
	withdraw, err := a.announce("web", one)
	if err == nil || !strings.Contains(err.Error(), "20000 endpoints") {
		t.Errorf("one too many: %v", err)
	}
	withdraw()
	last()
	if _, err := a.announce("web", one); err != nil {
		t.Error("a place that became free is not used:", err)
	}
	for _, address := range []string{"", "10.0.0.1", "10.0.0.1:0", "0.0.0.0:80", "[ff02::1]:80", "a b:80"} {
		if _, err := a.announce("web", provider.Endpoint{Address: address}); err == nil {
			t.Errorf("%q is taken", address)
		}
	}
	if n, refused := a.counts(); n != maxAnnounced || refused != 7 {
		t.Errorf("%d endpoints, %d refused", n, refused)
	}
}

func TestReceiverChecksWhatNodesSay(t *testing.T) {
	c, now := newCollector(), time.Now()
	put := func(addresses ...string) (list []AnnouncedEndpoint) {
		for _, a := range addresses {
			list = append(list, AnnouncedEndpoint{Service: "web", Address: a})
		}
		return list
	}
	steps := []struct {
		what    string
		m       Announcements
		unknown bool
		want    int // endpoints afterwards
	}{
		{"a change of an unknown list", Announcements{Instance: "i", Base: 1, Version: 2, Put: put("a:1")}, true, 0},
		{"a list", Announcements{Instance: "i", Base: 1, Version: 2, Reset: true, Put: put("a:1", "b:1")}, false, 2},
		{"a change", Announcements{Instance: "i", Base: 2, Version: 3, Put: put("c:1"), Gone: put("a:1", "z:1")}, false, 2},
		{"a change twice", Announcements{Instance: "i", Base: 2, Version: 3, Put: put("d:1")}, true, 2},
		{"a change of another process", Announcements{Instance: "j", Base: 3, Version: 4, Put: put("d:1")}, true, 2},
		{"a part of a list", Announcements{Instance: "j", Base: 0, Version: 1, Reset: true, More: true, Put: put("e:1")}, false, 2},
		{"another part", Announcements{Instance: "j", Base: 1, Version: 2, More: true, Put: put("f:1", "g:1")}, false, 2},
		{"the last part", Announcements{Instance: "j", Base: 2, Version: 3, Put: put("h:1")}, false, 4},
		{"a part of a list that never ends", Announcements{Instance: "j", Base: 3, Version: 4, Reset: true, More: true}, false, 4},
		{"a list instead", Announcements{Instance: "j", Base: 4, Version: 5, Reset: true, Put: put("x:1")}, false, 1},
	}
	for _, s := range steps {
		res, err := c.receive("n", &s.m, now)
		if err != nil || res.Unknown != s.unknown {
			t.Errorf("%s: %+v, %v", s.what, res, err)
		}
		if got := len(c.union("web")); got != s.want {
			t.Errorf("%s: %d endpoints, want %d", s.what, got, s.want)
		}
	}
	var many []AnnouncedEndpoint
	for i := range maxAnnounced {
		many = append(many, put(fmt.Sprintf("h%d:1", i))...)
	}
	if _, err := c.receive("n", &Announcements{Instance: "j", Base: 5, Version: 6, Put: many}, now); err == nil {
		t.Error("a list over the limit is taken")
	}
	c.expire(now.Add(lease), []string{"n"})
	if got := len(c.union("web")); got != 0 {
		t.Errorf("%d endpoints after the lease", got)
	}
}

// sourceFunc is a source.
type sourceFunc func(ctx context.Context, sink provider.Sink) error

func (f sourceFunc) Run(ctx context.Context, sink provider.Sink) error { return f(ctx, sink) }

func BenchmarkOneOfTenThousandAnnounced(b *testing.B) {
	c, now := newCollector(), time.Now()
	for n := range 3 {
		m := Announcements{Instance: "i", Version: 1, Reset: true}
		for i := range 10_000 / 3 {
			m.Put = append(m.Put, AnnouncedEndpoint{Service: "web", Address: fmt.Sprintf("10.%d.%d.%d:80", n, i/250, i%250+1), Weight: 1})
		}
		if _, err := c.receive(nodeID(n), &m, now); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	source := func(_ context.Context, sink provider.Sink) error {
		defer cancel()
		q := provider.Query{Service: "web"}
		sink.Report(q, c.union("web"))
		for i := uint64(1); b.Loop(); i++ {
			m := Announcements{Instance: "i", Base: i, Version: i + 1}
			m.Put = []AnnouncedEndpoint{{Service: "web", Address: "10.1.0.1:80", Weight: int(i%2) + 1}}
			if _, err := c.receive(nodeID(1), &m, now); err != nil {
				return err
			}
			sink.Report(q, c.union("web"))
		}
		return ctx.Err()
	}
	r := provider.NewRunner(provider.Config{
		Name: "announced", Source: sourceFunc(source), HoldFor: -1,
		Apply: func(context.Context, []provider.Change) error { return nil },
	})
	r.Want([]provider.Query{{Service: "web"}})
	_ = r.Run(ctx)
}
