package endpoint

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestEndpointsRetainNoDocuments replaces the endpoints of a service one at a
// time, each time by a new document with all of them: the endpoints must not
// keep the documents alive.
func TestEndpointsRetainNoDocuments(t *testing.T) {
	const size, count = 1 << 20, 64
	g := NewGroup("apps", nil)
	var specs []Spec
	for i := range count {
		address, tag, path := fmt.Sprintf("10.0.0.%d:80", i), "v1", fmt.Sprintf("/run/%d", i)
		document := strings.Repeat("x", size) + address + tag + path
		tail := document[size:]
		for j, s := range specs { // the other strings are from the new document as well
			specs[j] = Spec{Address: strings.Clone(s.Address), Unix: strings.Clone(s.Unix), Tags: map[string]string{"v": tag}}
		}
		specs = append(specs, Spec{
			Address: tail[:len(address)],
			Tags:    map[string]string{"v": tail[len(address) : len(address)+len(tag)]},
			Unix:    tail[len(address)+len(tag):],
		})
		for j, e := range g.Update(specs, time.Unix(0, 0)) {
			if e.Address != specs[j].Address || e.Unix != specs[j].Unix || e.Tags["v"] != "v1" {
				t.Fatalf("endpoint %d is %+v", j, e)
			}
		}
	}
	clear(specs)
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	if mem.HeapAlloc > 8*size {
		t.Errorf("%d MiB are in use after %d documents of 1 MiB", mem.HeapAlloc>>20, count)
	}
	runtime.KeepAlive(g)
}
