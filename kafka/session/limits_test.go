package session

import (
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// costs is a Limiter without a burst: what it charges takes time to come back.
type costs struct {
	w                      *world
	request, response, kib time.Duration
	until                  time.Duration
	closed                 int
}

func (c *costs) charge(d time.Duration) { c.until = max(c.until, c.w.now) + d }

func (c *costs) Request(_ int16, _ string, size int) {
	c.charge(c.request + c.kib*time.Duration(size)/1024)
}
func (c *costs) Response(int16, int)     { c.charge(c.response) }
func (c *costs) Wait() time.Duration     { return max(c.until-c.w.now, 0).Round(time.Millisecond) }
func (c *costs) Throttle() time.Duration { return c.Wait() }
func (c *costs) Close()                  { c.closed++ }

func (s *story) setCosts(d *datadriven.TestData) {
	s.costs = new(costs)
	names := map[string]*time.Duration{"request": &s.costs.request, "response": &s.costs.response, "kib": &s.costs.kib}
	for _, arg := range d.CmdArgs {
		if names[arg.Key] == nil || len(arg.Vals) != 1 {
			d.Fatalf(s.t, "no cost is called %s", arg.Key)
		}
		*names[arg.Key] = s.duration(arg.Vals[0])
	}
}

// What a session does for its limiter with each request and response allocates nothing.
func TestLimitsAllocateNothing(t *testing.T) {
	w := newWorld(Limits{})
	w.limiter = &costs{w: w, request: time.Second}
	w.charged = true
	body := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		w.limiter.Request(keyMetadata, "client", 100)
		w.holdBack()
		setThrottle(keyMetadata, 9, body, w.throttle())
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
