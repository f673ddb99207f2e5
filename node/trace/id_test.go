package trace

import (
	"encoding/binary"
	"math/bits"
	"testing"
)

func TestIDsOfConnectionsSpread(t *testing.T) {
	const n = 20_000
	policy := Policy{Sample: 0.05, Overall: 1}
	traces, spans, sampled, ones := map[ID]bool{}, map[SpanID]bool{}, 0, 0
	for i := range uint64(n) {
		name := binary.BigEndian.AppendUint64([]byte("instance"), i)
		id := IDOf(name)
		if id != IDOf(name) || id == (ID{}) {
			t.Fatalf("%x gives %x", name, id)
		}
		traces[id] = true
		for _, node := range []string{"", "node-1", "node-2"} {
			for part := range uint64(3) {
				spans[SpanOf(id, node, part)] = true
			}
		}
		if policy.Samples(id, false) {
			sampled++
		}
		ones += bits.OnesCount64(binary.BigEndian.Uint64(id[8:]))
	}
	if len(traces) != n || len(spans) != 9*n {
		t.Errorf("%d traces and %d spans, want %d and %d", len(traces), len(spans), n, 9*n)
	}
	if share := float64(sampled) / n; share < 0.045 || share > 0.055 {
		t.Errorf("5 %% sampled %v", share)
	}
	if mean := float64(ones) / n; mean < 31.5 || mean > 32.5 {
		t.Errorf("%v of 64 bits are set", mean)
	}
}

func TestNewIDsDiffer(t *testing.T) {
	a, b := NewTraceID(), NewTraceID()
	c, d := NewSpanID(), NewSpanID()
	if a == b || c == d {
		t.Error("an ID comes twice")
	}
}

func BenchmarkTraceOf(b *testing.B) {
	name := []byte("instance00000001")
	policies := []*Policy{{Sample: 0.01, Overall: 1, Errors: true}}
	for b.Loop() {
		o := Outcome{TraceID: IDOf(name)}
		o.WantedBy(policies)
	}
}
