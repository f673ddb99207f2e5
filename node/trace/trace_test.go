package trace

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"
)

func randomID(r *rand.Rand) (id TraceID) {
	binary.BigEndian.PutUint64(id[:], r.Uint64())
	binary.BigEndian.PutUint64(id[8:], r.Uint64())
	return id
}

func TestSamplesItsShare(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const n = 100_000
	for _, c := range []struct {
		policy Policy
		parent bool
		want   float64
	}{
		{Policy{Sample: 0.01, Overall: 1}, false, 0.01},
		{Policy{Sample: 1, Overall: 1}, false, 1},
		{Policy{Sample: 0, Client: 1, Overall: 1}, false, 0},
		{Policy{Sample: 0, Client: 1, Overall: 1}, true, 1},
		{Policy{Sample: 0.5, Client: 0.1, Overall: 1}, true, 0.5},
		{Policy{Sample: 0.5, Client: 1, Overall: 0.2}, true, 0.2},
		{Policy{Sample: 1, Client: 1, Overall: 0}, true, 0},
	} {
		got := 0
		for range n {
			if c.policy.Samples(randomID(r), c.parent) {
				got++
			}
		}
		if share := float64(got) / n; share < c.want*0.9 || share > c.want*1.1 {
			t.Errorf("%+v: sampled %v, want %v", c.policy, share, c.want)
		}
	}
}

// A trace in a sample is in every larger one, so that several nodes and Telemetry
// resources keep the same traces.
func TestSamplesNest(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	small, large := Policy{Sample: 0.1, Overall: 1}, Policy{Sample: 0.3, Overall: 1}
	for range 10_000 {
		if id := randomID(r); small.Samples(id, false) && !large.Samples(id, false) {
			t.Fatalf("%x is in the sample of 10 %% and not in that of 30 %%", id)
		}
	}
}

func TestKeepsErrorsAndSlow(t *testing.T) {
	both, none := Policy{Errors: true, Slow: time.Second}, Policy{}
	for _, c := range []struct {
		failed bool
		took   time.Duration
		want   bool
	}{{false, 0, false}, {true, 0, true}, {false, time.Second, true}, {false, time.Second - 1, false}} {
		if got := both.Keeps(c.failed, c.took); got != c.want {
			t.Errorf("failed %v, took %v: kept is %v", c.failed, c.took, got)
		}
		if none.Keeps(c.failed, c.took) {
			t.Errorf("failed %v, took %v: kept by a policy that keeps nothing", c.failed, c.took)
		}
	}
	if !both.Tail() || none.Tail() {
		t.Error("Tail is wrong")
	}
}

func TestSelects(t *testing.T) {
	all := Policy{}
	some := Policy{Listeners: map[string]bool{"edge": true}, Services: map[string]bool{"apps": true}}
	if !all.Selects("x", "") || !some.Selects("edge", "apps") || some.Selects("edge", "") || some.Selects("x", "apps") {
		t.Error("a selection is wrong")
	}
}

func TestTracerWithoutPolicies(t *testing.T) {
	var none *Tracer
	var zero Tracer
	if none.Enabled() || zero.Enabled() {
		t.Error("enabled without a policy")
	}
	zero.Set([]*Policy{{Telemetry: "otel"}})
	if !zero.Enabled() || zero.Policies()[0].Telemetry != "otel" {
		t.Error("the policy does not show")
	}
	zero.Set(nil)
	if zero.Enabled() {
		t.Error("enabled after the policies went")
	}
}
