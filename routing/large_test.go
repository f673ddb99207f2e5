//go:build !race

package routing

import (
	"fmt"
	"runtime"
	"testing"

	"penstock/routing/resource"
)

// Tests of large inputs run without the race detector: they are
// single-threaded, and the detector slows them down tenfold. `make test` runs
// them in a second step.

// The product's goal: 100,000 names, ten changes with an open connection from
// each version, and hardly more memory.
func TestOpenConnectionsDoNotRetainTables(t *testing.T) {
	const names = 100_000
	r := NewRouter(Config{})
	listener := func(extra int) resource.Change {
		rules := manyRules(names)
		for i := range extra {
			rules = append(rules, rule(fmt.Sprintf("new-%d.example", i), "service-0"))
		}
		return put("Listener", "edge", &resource.Listener{Protocol: "tls", Hosts: rules})
	}
	mustApply(t, r, listener(0), put("Service", "service-0", &resource.Service{Endpoints: []resource.Endpoint{{Address: "10.0.0.1:1"}}}))
	mustApply(t, r, listener(1)) // from here on names belong to two versions
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	var held []*Decision
	for i := range 10 {
		mustApply(t, r, listener(2+i))
		d, reason := r.Decide(&Input{Listener: "edge", ServerName: fmt.Sprintf("new-%d.example", i), HasServerName: true})
		if reason != OK {
			t.Fatal(reason)
		}
		d.Next(t0)
		d.Connected(t0)
		held = append(held, &d)
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("ten changes took %d KB", grown>>10)
	}
	runtime.KeepAlive(held)
	runtime.KeepAlive(r)
}
