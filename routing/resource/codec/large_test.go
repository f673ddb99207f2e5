//go:build !race

package codec

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/routing/resource"
)

// Tests of large inputs run without the race detector: they use one goroutine,
// and the detector makes them take ten times as long. `make test` runs them in a
// second step.

// Expensive documents are refused before the work is done.
func TestLargeDocumentsAreRefusedAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		file, text, want string
	}{
		"size":           {"x.yaml", strings.Repeat("# much text\n", 50<<20/12), "file: is larger than 16 MiB: split it"},
		"flow values":    {"x.yaml", "kind: [" + strings.Repeat("a,", 8<<20-10) + "]", "more than 1000000 values"},
		"block values":   {"x.yaml", strings.Repeat("- \n", 5<<20), "more than 1000000 values"},
		"lines":          {"x.yaml", strings.Repeat("#\n", 8<<20), "more than 1000000 values"},
		"documents":      {"x.yaml", strings.Repeat("---\n", 1<<20), "more than 100000 documents"},
		"depth":          {"x.yaml", "kind: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nested deeper than 64 levels"},
		"block depth":    {"x.yaml", strings.Repeat("- ", 9000) + "a", "nested deeper than 64 levels"},
		"very deep":      {"x.yaml", strings.Repeat("{a: ", 1<<18), "exceeded max depth"},
		"json depth":     {"x.json", strings.Repeat("[", 8<<20), "nested deeper than 64 levels"},
		"json values":    {"x.json", `[` + strings.Repeat("1,", 8<<20-10) + "1]", "more than 1000000 values"},
		"json documents": {"x.json", strings.Repeat("1 ", 150_000), "more than 100000 documents"},
		"not UTF-8":      {"x.yaml", "kind: a\nname: \xff", "x.yaml:2: file: is not UTF-8 text"},
		"UTF-16":         {"x.yaml", "\xff\xfek\x00i\x00", "not UTF-8 text"},
		"zero byte":      {"x.yaml", "kind: \x00", "control characters are not allowed"},
		"directive":      {"x.yaml", "%YAML 1.1\n---\n", "directives (%YAML, %TAG) are not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			before := cpuTime(t)
			_, faults := Decode(c.file, []byte(c.text), resource.RoutingKinds())
			if len(faults) != 1 || !strings.Contains(faults[0].Error(), c.want) {
				t.Errorf("faults %.500s, want one with %q", faults.Error(), c.want)
			}
			if took := cpuTime(t) - before; took > 5*time.Second {
				t.Errorf("it took %v of a CPU", took)
			}
		})
	}
}

// cpuTime returns the CPU time of this process: on a busy machine it is less
// than the elapsed time.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// Lists whose items are compared with each other take linear time: four times as
// many items take about four times as long.
func TestLargeListsTakeLinearTime(t *testing.T) {
	for name, c := range map[string]struct{ before, item, after string }{
		"protocols": {"kind: Service\nname: a\nspec: {tls: {alpn: [", "a%d,", "]}}"},
		"certificates": {
			"kind: Listener\nname: a\nspec: {address: ':1', protocol: tls, tls: {mode: terminate, certificateRefs: [", "a%d,", "]}}",
		},
		"destinations": {"kind: MeshTCPRoute\nname: a\nspec: {to: [", "{targetRef: {kind: MeshService, name: a%d}, rules: [{}]},", "]}"},
		"endpoints":    {"kind: Service\nname: a\nspec: {endpoints: [", "{address: 'a:1', tags: {a: b%d}},", "]}"},
		"same host": {
			"kind: Listener\nname: a\nspec: {address: ':1', protocol: tls, hosts: [",
			"{names: [a.example], service: s, alpn: [a%d]},", "]}",
		},
		"unknown fields": {"kind: Service\nname: a\nspec: {", "resolv%d: 1s,", "}"},
		"faults":         {"kind: Service\nname: a\nspec: {endpoints: [", "{address: x%d, foo: 1},", "]}"},
		"duplicates":     {"", "kind: Service\nname: a\nspec: {} # %d\n---\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(items int) time.Duration {
				text := []byte(c.before)
				for i := range items {
					text = fmt.Appendf(text, c.item, i)
				}
				text = append(text, c.after...)
				runtime.GC()
				before := cpuTime(t)
				Decode("x.yaml", text, resource.RoutingKinds())
				return cpuTime(t) - before
			}
			var few, many time.Duration
			for range 5 { // garbage collection and other processes may disturb one
				few, many = cost(5_000), cost(20_000)
				if many < 8*few {
					return
				}
			}
			t.Errorf("20,000 items take %v of a CPU, 5,000 take %v", many, few)
		})
	}
}
