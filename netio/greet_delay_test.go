package netio

import (
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// The delay of a connection that a Greeter has limited at its login comes before the
// first endpoint is asked for, and not again before the next.
func TestAGreeterIsDelayedOnce(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	refuses := r.at(lineServer{name: "a", refuse: true}.serve(t))
	pacer := &delayingPacer{}
	pacer.delayed.Store(true)
	all := greeted(t, r, func(s *lineSession) { s.pacer = pacer }, refuses, r.at(lineServer{name: "b"}.serve(t)))
	c := dial(t, r.serve(t, Listener{}))
	mustRead(t, c, "hello\n")
	mustWrite(t, c, "login me\n")
	s := testkit.Receive(t, "a session", all)
	r.waitPhase(t, "waiting")
	testkit.WaitFor(t, "the pacer was asked twice", func() bool { return pacer.asked.Load() >= 2 })
	if n := s.starts.Load(); n != 0 {
		t.Errorf("%d endpoints during the delay", n)
	}
	pacer.delayed.Store(false)
	mustRead(t, c, "ok\n")
	if n := s.starts.Load(); n != 2 {
		t.Errorf("%d endpoints, want 2", n)
	}
	r.end(t, c)
}

// The time to wait may be over before it is a client's turn.
func TestAGreeterThatIsDelayedTooLong(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	pacer := &delayingPacer{why: LimitRate}
	greeted(t, r, func(s *lineSession) { s.pacer = pacer }, r.at(lineServer{name: "a"}.serve(t)))
	c := dial(t, r.serve(t, Listener{}))
	mustRead(t, c, "hello\n")
	mustWrite(t, c, "login me\n")
	mustRead(t, c, "refused "+string(LimitRate)+"\n")
	r.wantEnd(t, LimitRate)
}

// delayingPacer delays connections as long as delayed is set, or refuses them.
type delayingPacer struct {
	slowPacer
	why     Reason
	delayed atomic.Bool
	asked   atomic.Int64
}

func (p *delayingPacer) Delay() (time.Duration, Reason) {
	p.asked.Add(1)
	switch {
	case p.why != OK:
		return 0, p.why
	case p.delayed.Load():
		return time.Hour, OK
	}
	return 0, OK
}
