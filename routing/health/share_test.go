package health

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"penstock/routing/endpoint"
)

// others simulates the other nodes: they probe everything if theirs is true,
// and says has their verdicts.
type others struct {
	mu     sync.Mutex
	theirs bool
	says   map[ID]bool
}

func (o *others) Probes(ID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.theirs
}

func (o *others) Verdict(id ID) (healthy, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	healthy, known = o.says[id]
	return healthy, known
}

func (o *others) say(id ID, healthy bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.says[id] = healthy
}

func (o *others) silence(theirs bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.theirs, o.says = theirs, map[ID]bool{}
}

// A node that is not to probe uses the verdicts of others, and probes by itself
// as soon as there are none: health checks continue without gossip.
func TestPeerVerdictsReplaceProbes(t *testing.T) {
	inBubble(t, func(w *world) {
		g := w.group("apps", 1)
		check := plain()
		target := targets(check, g)
		id := idOf(keyOf(target[0], check.key()), check)
		o := &others{theirs: true, says: map[ID]bool{id: true}}
		w.c.Share(o)
		w.c.Set(target)
		w.after(10 * time.Second)
		w.wantHealth(g, healthy)
		if n := w.net.count("10.0.0.0:80"); n != 0 {
			t.Errorf("asked %d times although others do", n)
		}
		if list := w.c.Verdicts(10); len(list) != 0 {
			t.Errorf("verdicts %x passed on as its own", list)
		}

		o.say(id, false)
		w.after(1500 * time.Millisecond)
		w.wantHealth(g, unhealthy)
		w.wantEvents("apps 10.0.0.0:80 healthy", "apps 10.0.0.0:80 unhealthy reported by other nodes")

		o.silence(true)
		w.after(4 * time.Second) // the endpoint is up, and two results are required
		w.wantHealth(g, healthy)
		if n := w.net.count("10.0.0.0:80"); n < 2 {
			t.Errorf("probed %d times although no other node reports", n)
		}
		if list := w.c.Verdicts(10); !slices.Equal(list, []uint32{id.Verdict(true)}) {
			t.Errorf("verdicts %x, want its own", list)
		}
	})
}

// A node probes what it is to probe, whatever verdicts others have.
func TestOwnProbesIgnorePeerVerdicts(t *testing.T) {
	inBubble(t, func(w *world) {
		w.net.set("10.0.0.0:80", "down")
		g := w.group("apps", 1)
		check := plain()
		target := targets(check, g)
		w.c.Share(&others{says: map[ID]bool{idOf(keyOf(target[0], check.key()), check): true}})
		w.c.Set(target)
		w.after(10 * time.Second)
		w.wantHealth(g, unhealthy)
	})
}

// A probe without a result, or with an old one, has no verdict for others.
func TestNoVerdictWithoutRecentResult(t *testing.T) {
	inBubble(t, func(w *world) {
		w.net.set("10.0.0.0:80", "hung")
		g := w.group("apps", 1)
		w.c.Set(targets(plain(), g))
		w.after(time.Millisecond)
		w.wantHealth(g, endpoint.Unchecked)
		if list := w.c.Verdicts(10); len(list) != 0 {
			w.Errorf("verdicts %x before there is an answer", list)
		}
	})
}

func TestVerdictsAreRecentOwnResults(t *testing.T) {
	inBubble(t, func(w *world) {
		w.net.set("10.0.0.1:80", "down")
		g := w.group("apps", 3)
		w.c.Set(targets(plain(), g))
		w.after(10 * time.Millisecond)
		list := w.c.Verdicts(10)
		well := 0
		for _, v := range list {
			well += int(v & 1)
		}
		if len(list) != 3 || well != 2 || !slices.IsSorted(list) {
			t.Errorf("verdicts %x: want three, two of them well, in order", list)
		}
		if got := w.c.Verdicts(2); !slices.Equal(got, list[:2]) {
			t.Errorf("%x, want the first two of %x", got, list)
		}
		w.c.Set(nil)
		if list := w.c.Verdicts(10); len(list) != 0 {
			t.Errorf("verdicts %x on nothing", list)
		}
	})
}

func TestOnlyNodeIndependentChecksHaveIDs(t *testing.T) {
	of := func(addr string, change func(*Check)) ID {
		check := plain()
		if change != nil {
			change(check)
		}
		a := netip.MustParseAddrPort(addr)
		return idOf(keyOf(Target{Endpoint: &endpoint.Endpoint{Address: addr, Addr: a}, Check: check}, check.key()), check)
	}
	if a, b := of("10.0.0.1:80", nil), of("10.0.0.1:80", nil); a != b || a == 0 || a&1 != 0 {
		t.Errorf("%x and %x, want one ID with the lowest bit clear", a, b)
	}
	for port := range 100 {
		if id := of(fmt.Sprintf("10.0.0.1:%d", port+1), nil); id&1 != 0 {
			t.Fatalf("the lowest bit of %x is not free", id)
		}
	}
	named := func(name string) ID {
		check := plain()
		check.Type = HTTP
		a := netip.MustParseAddrPort("10.0.0.1:80")
		return idOf(keyOf(Target{Endpoint: &endpoint.Endpoint{Address: name, Addr: a}, Check: check}, check.key()), check)
	}
	if named("a.example:80") == named("b.example:80") {
		t.Error("checks that ask for different hosts have the same ID")
	}
	if of("10.0.0.1:80", nil) == of("10.0.0.2:80", nil) || of("10.0.0.1:80", nil) == of("10.0.0.1:80", func(c *Check) { c.Interval *= 2 }) {
		t.Error("another address or another check has the same ID")
	}
	for name, id := range map[string]ID{
		"loopback":   of("127.0.0.1:80", nil),
		"link local": of("[fe80::1]:80", nil),
		"tls":        of("10.0.0.1:80", func(c *Check) { c.TLS = new(tls.Config) }),
	} {
		if id != 0 {
			t.Errorf("%s is shared as %x", name, id)
		}
	}
	unix := Target{Endpoint: &endpoint.Endpoint{Unix: "/run/x"}, Check: plain()}
	if id := idOf(keyOf(unix, unix.Check.key()), unix.Check); id != 0 {
		t.Errorf("a unix socket is shared as %x", id)
	}
}
