package health

import (
	"testing"
	"time"

	"penstock/routing/endpoint"
)

// failing returns a service with two endpoints, the first of which is ejected
// for an hour after its first failure in use.
func (w *world) failing() (g *endpoint.Group, e *endpoint.Endpoint) {
	g = w.group("apps", 2)
	g.Configure(&endpoint.Ejection{Failures: 1, Window: time.Second, Duration: time.Hour, MaxShare: 50}, time.Now())
	return g, g.Endpoints()[0]
}

// failsInUse fails a client's connect and checks that the endpoint is ejected.
func (w *world) failsInUse(g *endpoint.Group, e *endpoint.Endpoint) {
	w.Helper()
	g.RecordFault(e, endpoint.Fault{Failure: endpoint.ConnectFailed, Error: "refused"}, time.Now())
	if !e.Ejected(time.Now()) || !e.Paused(time.Now()) {
		w.Fatal("it is not ejected and passed over")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = nil
}

// A check that finds an endpoint healthy again ends the ejection and the pause
// that its outage caused.
func TestRecoveredEndpointIsNoLongerEjected(t *testing.T) {
	inBubble(t, func(w *world) {
		g, e := w.failing()
		w.net.set(e.Address, "down")
		w.c.Set(targets(plain(), g))
		w.after(2 * time.Millisecond)
		w.wantHealth(g, unhealthy, healthy)
		w.failsInUse(g, e)

		w.net.set(e.Address, "up")
		w.after(1200 * time.Millisecond) // one of the two required checks has passed
		if w.wantHealth(g, unhealthy, healthy); !e.Ejected(time.Now()) {
			t.Error("the ejection ended before the endpoint was well")
		}
		w.after(1200 * time.Millisecond)
		w.wantHealth(g, healthy, healthy)
		if now := time.Now(); e.Ejected(now) || !e.Ready(now) {
			t.Errorf("it is well, and %+v", g.Condition(e, now))
		}
		w.wantEvents("apps 10.0.0.0:80 healthy", "apps 10.0.0.0:80 resumed", "apps 10.0.0.0:80 returned")
	})
}

// An endpoint that fails in use while its checks pass has another fault, which
// the checks do not cover: they do not end the ejection.
func TestPassingCheckWithoutRecoveryEndsNoEjection(t *testing.T) {
	inBubble(t, func(w *world) {
		g, e := w.failing()
		w.c.Set(targets(plain(), g))
		w.after(2 * time.Millisecond)
		w.failsInUse(g, e)
		w.after(10 * time.Second)
		w.wantHealth(g, healthy, healthy)
		if !e.Ejected(time.Now()) {
			t.Error("the ejection ended")
		}
		w.after(time.Hour)
		if e.Ejected(time.Now()) {
			t.Error("the ejection never ended")
		}
	})
}

// A healthy verdict of other nodes has the same effect as a check of this node.
func TestHealthyPeerVerdictEndsEjection(t *testing.T) {
	inBubble(t, func(w *world) {
		g, e := w.failing()
		check := plain()
		all := targets(check, g)
		id := idOf(keyOf(all[0], check.key()), check)
		o := &others{theirs: true, says: map[ID]bool{id: false}}
		w.c.Share(o)
		w.c.Set(all)
		w.after(2 * time.Millisecond)
		w.wantHealth(g, unhealthy, healthy)
		w.failsInUse(g, e)
		o.say(id, true)
		w.after(1200 * time.Millisecond)
		w.wantHealth(g, healthy, healthy)
		if e.Ejected(time.Now()) {
			t.Error("it is ejected although others found it well")
		}
		w.wantEvents("apps 10.0.0.0:80 healthy", "apps 10.0.0.0:80 resumed", "apps 10.0.0.0:80 returned")
	})
}
